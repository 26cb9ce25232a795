"""Whether the end of an SSH login ends a supervisor: what logind says, and what its files say."""

import os
import pwd
from pathlib import Path

import pytest

from pp4.doctor import Answer, PathFacts, Status, SystemProbes
from pp4.doctor.logind import check_logind
from tests.unit.machine import Machine, check, smi

ALICE, ROOT = (1000, "alice"), (0, "root")
BOOTED = {"/run/systemd/system": PathFacts("directory", 0, 0o755)}
CONF = "/etc/systemd/logind.conf"


def says(kills="b false", spared="as 0", only="as 0"):
    return Answer(True, f"{kills}\n{spared}\n{only}\n")


def looked(answer=None, account=ALICE, files=(), booted=True):
    """The check on a machine whose logind gives this answer; None for no busctl."""
    machine = Machine(account=account, files=dict(files))
    if booted:
        machine.paths |= {Path(path): one for path, one in BOOTED.items()}
    if answer is not None:
        machine.programs.add("busctl")
        machine.answers["logind"] = answer
    return check_logind(machine), machine


@pytest.mark.parametrize(
    ("answer", "account", "kills"),
    [
        (says(), ALICE, False),
        (says("b true"), ALICE, True),
        # root is spared unless somebody says who is
        (says("b true"), ROOT, False),
        (says("b true", 'as 1 "alice"'), ROOT, True),
        (says("b true", 'as 1 "root"'), ROOT, False),
        (says("b true", 'as 2 "bob" "alice"'), ALICE, False),
        (says("b true", 'as 1 "alice2"'), ALICE, True),
        # whoever is named is killed though nobody else is, and nobody else where anybody is named
        (says("b false", only='as 1 "alice"'), ALICE, True),
        (says("b true", only='as 1 "bob"'), ALICE, False),
        (says("b false", 'as 1 "alice"', 'as 1 "alice"'), ALICE, False),
        # a user without a name is nobody that a list could spare
        (says("b true"), (4711, None), True),
    ],
)
def test_what_logind_says_decides(answer, account, kills):
    seen, machine = looked(answer, account, {CONF: "[Login]\nKillUserProcesses=yes\n"})
    assert seen.status is (Status.WARN if kills else Status.OK)
    assert bool(seen.todo) is kills
    assert "files" not in seen.found
    assert machine.asked == [
        "--system",
        "get-property",
        "org.freedesktop.login1",
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "KillUserProcesses",
        "KillExcludeUsers",
        "KillOnlyUsers",
    ]


def test_the_warning_says_who_is_killed_and_what_to_do():
    seen, _ = looked(says("b true", 'as 1 "bob"'))
    assert seen.found == "KillUserProcesses=yes, KillExcludeUsers=bob: kills what alice has started"
    # who was spared before has to stay so
    assert "KillExcludeUsers=bob alice under [Login]" in seen.todo
    assert "KillExcludeUsers=root alice under [Login]" in looked(says("b true"))[0].todo


def test_lingering_spares_no_supervisor():
    lingers = {"/var/lib/systemd/linger/alice": ""}
    assert looked(says("b true"), files=lingers)[0].status is Status.WARN


@pytest.mark.parametrize("files", [{}, {CONF: "[Login]\nKillUserProcesses=yes\n"}])
@pytest.mark.parametrize("answer", [None, Answer(False, "", "status 1: Failed to connect to bus")])
def test_where_no_systemd_runs_there_is_nothing_to_warn_about(answer, files):
    seen, _ = looked(answer, files=files, booted=False)
    assert (seen.status, seen.found, seen.todo) == (Status.OK, "no logind", "")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Answer(False, "", "no answer within 10 s"),
        Answer(True, ""),
        Answer(True, "b true\n"),
        Answer(True, "b maybe\nas 0\nas 0\n"),
        Answer(True, 'b true\nas 2 "alice"\nas 0\n'),
        Answer(True, 'b true\nas 1 "alice\nas 0\n'),
        Answer(True, "\n\n\n"),
    ],
)
@pytest.mark.parametrize("word", ["yes", "no"])
def test_the_files_count_where_logind_does_not_answer(answer, word):
    seen, _ = looked(answer, files={CONF: f"[Login]\nKillUserProcesses={word}\n"})
    assert seen.status is (Status.WARN if word == "yes" else Status.OK)
    assert f"KillUserProcesses={word} in its files" in seen.found


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, False),
        ({CONF: "#KillUserProcesses=no\n"}, False),
        # the built-in default of a distribution, and what an administrator says of it
        ({CONF: "#KillUserProcesses=yes\n"}, True),
        ({CONF: "KillUserProcesses=no\n#KillUserProcesses=yes\n"}, False),
        (
            {
                CONF: "KillUserProcesses=yes\n",
                "/usr/lib/systemd/logind.conf.d/10.conf": "KillUserProcesses=no\n",
            },
            False,
        ),
        (
            {
                CONF: "KillUserProcesses=yes\n",
                "/etc/systemd/logind.conf.d/10.conf": "#KillUserProcesses=no\n",
            },
            True,
        ),
        (
            {
                "/etc/systemd/logind.conf.d/10-a.conf": "KillUserProcesses=no\n",
                "/run/systemd/logind.conf.d/20-b.conf": "KillUserProcesses = yes\n",
                "/run/systemd/logind.conf.d/30-c.txt": "KillUserProcesses=no\n",
            },
            True,
        ),
        ({CONF: "KillUserProcesses=yes\n#KillExcludeUsers=root\nKillOnlyUsers=\n"}, True),
        ({CONF: "KillUserProcesses=yes\nKillExcludeUsers=bob alice\n"}, False),
        ({CONF: "KillUserProcesses=no\nKillOnlyUsers=alice\n"}, True),
    ],
)
def test_the_last_file_wins_and_a_comment_is_a_default(files, kills):
    assert looked(files=files)[0].status is (Status.WARN if kills else Status.OK)


def test_it_is_one_of_the_checks():
    machine = Machine(answers={**smi(), "logind": says("b true")})
    machine.programs.add("busctl")
    assert check(machine, "logind").status is Status.WARN


def test_the_real_one_says_something_and_raises_nothing():
    seen = check_logind(SystemProbes())
    assert seen.found
    assert bool(seen.todo) is (seen.status is Status.WARN)


def test_the_user_has_a_name_or_none(monkeypatch):
    assert SystemProbes().user_name() == pwd.getpwuid(os.geteuid()).pw_name
    # a container may run as a user that no file names
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert SystemProbes().user_name() is None
