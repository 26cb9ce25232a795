"""``pp4 pair-qualify --hold FILE`` and ``--hold local``, as a person runs and ends them here."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from pp4.errors import Exit
from pp4.hold.exclusion import open_exclusion
from pp4.hold.processes import start_token
from tests.faults.windows import GPUS, PATIENCE_S, ROOT, public, tombstone, until
from tests.unit.processes import halt

FILE = """
[hold]
name = "test"
ttl = 2

[receiving_host]
transport = "local"
gpus = {gpus}
state_dir = "{place}/state"
host_dir = "{place}/host"
"""


def settings(place, state):
    """The environment of a command."""
    mine = {"PP4_STATE_DIR": str(place / state), "PP4_HOST_DIR": str(place / "host")}
    return {**os.environ, "PYTHONPATH": str(ROOT), **mine}


@pytest.fixture
def run(tmp_path):
    """Starts the command in a group of its own; ends whatever is left of it."""
    file = tmp_path / "hold.toml"
    file.write_text(FILE.format(gpus=json.dumps(GPUS), place=tmp_path))
    started = []

    def start(*more, hold=file):
        argv = ["pair-qualify", "--hold", str(hold), "--dry-run-device"]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pp4", *argv, "--out", str(tmp_path / "out"), *more],
            env=settings(tmp_path, "mine" if hold is file else "state"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PATIENCE_S)


def opened(place, process):
    """The HOLD that is open, once it is registered and its journal has a gate in it."""
    if process.poll() is not None:
        raise AssertionError(process.communicate()[1])
    for directory in (place / "host" / "holds", place / "state" / "holds"):
        for one in sorted(directory.glob("*/registration.json")):
            journal = place / "state" / "holds" / one.parent.name / "journal.jsonl"
            if journal.exists() and b"gate-0/" in journal.read_bytes():
                return one.parent.name
    return None


# a signal is heard before it matters which host has the HOLD: each once, and each kind of host
@pytest.mark.parametrize(
    ("more", "number", "status"),
    [
        ({}, signal.SIGINT, 130),
        ({"hold": "local"}, signal.SIGTERM, 143),
        ({}, signal.SIGHUP, 143),
    ],
    ids=["file-INT", "local-TERM", "file-HUP"],
)
def test_a_signal_closes_the_hold_and_leaves_nothing(run, tmp_path, more, number, status):
    process = run(**more)
    hold = until(lambda: opened(tmp_path, process))
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, said
    assert tombstone(tmp_path, hold)["why"] == "cancelled"
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "state" / "holds" / hold / "work").exists()
    assert marked(hold) == []
    assert free(tmp_path, hold)


def free(place, hold):
    """Whether the names that a HOLD had are free."""
    gpus = json.loads((public(place, hold) / "registration.json").read_text())["gpus"]
    exclusion = open_exclusion(place / "host", place / "state", make=False)
    with exclusion.locked(gpus):
        return len(gpus) == 2


def test_a_command_that_is_killed_is_outlived_by_its_lease_alone(run, tmp_path):
    process = run()
    hold = until(lambda: opened(tmp_path, process))
    assert marked(hold)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert until(lambda: tombstone(tmp_path, hold))["why"] == "abandoned"
    # what ends it is the host: nobody asked for it, so whoever wrote the tombstone is about to go
    until(lambda: not marked(hold) and not served(tmp_path, hold))
    assert free(tmp_path, hold)
    assert not list((tmp_path / "out").glob("*"))


AROUND = """
[[quiesce]]
argv = ["false"]

[[restore]]
argv = ["true"]

[[restore]]
argv = ["/no/such/program"]
"""


def test_a_person_is_told_that_a_host_was_not_put_back(run, tmp_path):
    with (tmp_path / "hold.toml").open("a") as file:
        file.write(AROUND)
    process = run()
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.REFUSED
    assert "NOT_IDLE" in said
    (told,) = [line for line in said.splitlines() if "restore" in line]
    assert "/no/such/program: [Errno 2] No such file or directory" in told


def served(place, hold):
    """Whether the supervisor of a HOLD is there."""
    registered = json.loads((public(place, hold) / "registration.json").read_text())
    holder = registered["coordinator"]
    return start_token(holder["pid"]) == holder["start_token"]


@pytest.mark.parametrize("more", [{}, {"hold": "local"}], ids=["file", "local"])
def test_what_to_do_about_a_lost_supervisor_is_a_command_that_does_it(run, tmp_path, more):
    process = run("--json", **more)
    hold = until(lambda: opened(tmp_path, process))
    registered = json.loads((public(tmp_path, hold) / "registration.json").read_text())
    os.kill(registered["coordinator"]["pid"], signal.SIGKILL)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (Exit.UNCLEAN, "")
    record = json.loads(out)
    option = [] if more else ["--hold", "FILE"]
    assert record["next"].split() == ["pp4", "hold", "recover", hold, *option]
    assert "unproven" in record["left"]
    argv = [str(tmp_path / "hold.toml") if one == "FILE" else one for one in record["next"].split()]
    until(lambda: not marked(hold))
    done = subprocess.run(
        [sys.executable, "-P", "-m", *argv, "--out", str(tmp_path / "out"), "--json"],
        env=settings(tmp_path, "state" if more else "mine"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == Exit.DONE, done.stderr
    assert tombstone(tmp_path, hold)["why"] == "abandoned"


def pressed(process):
    """Press Ctrl-C as fast as a person may; -> the status, None while it runs."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
    return process.poll()


def marked(hold):
    """Processes that carry the id of a HOLD in their environment."""
    mark = f"PP4_HOLD={hold}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            continue
    return found


def test_a_host_that_is_held_refuses_with_the_holder(run, tmp_path):
    first = run()
    hold = until(lambda: opened(tmp_path, first))
    second = run("--json")
    out, _ = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == Exit.REFUSED
    record = json.loads(out)
    assert record["code"] == "HELD_BY"
    assert hold in record["found"]
    assert first.poll() is None


@pytest.mark.parametrize("more", [{}, {"hold": "local"}], ids=["file", "local"])
def test_a_second_signal_ends_at_once_and_says_how_to_go_on(run, tmp_path, more):
    process = run(**more)
    hold = until(lambda: opened(tmp_path, process))
    registered = json.loads((public(tmp_path, hold) / "registration.json").read_text())
    supervisor = registered["coordinator"]["pid"]
    # a host that hangs: it hears of the end and does nothing about it
    halt(supervisor)
    try:
        # the first asks for an end, and whichever comes while that is waited for wants it at once
        until(lambda: pressed(process) is not None)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    # a further one may come when the command has said everything and is on its way out
    assert process.returncode in (Exit.UNCLEAN, 130, -signal.SIGINT), said
    kept = tmp_path / ("state" if more else "mine") / "closes" / f"{hold}.json"
    assert kept.exists(), said
    option = "" if more else " --hold FILE"
    assert f"how it ended: pp4 hold recover {hold}{option}\n" in said
    # the host closes it by itself, since nobody is heard of any more
    assert until(lambda: tombstone(tmp_path, hold))["why"] in ("abandoned", "cancelled")


def test_a_host_that_is_lost_while_it_gets_quiet_is_asked_for_its_close_later(run, tmp_path):
    before = tmp_path / "before"
    text = f"open({str(before)!r}, 'w').close(); import time; time.sleep(800)"
    commands = (("quiesce", [sys.executable, "-c", text]), ("restore", ["true"]))
    with (tmp_path / "hold.toml").open("a") as file:
        for table, argv in commands:
            file.write(f"[[{table}]]\nargv = {json.dumps(argv)}\nlimit = 810\n")
    process = run()
    until(before.exists)
    (registered,) = tmp_path.glob("*/holds/*/registration.json")
    hold = registered.parent.name
    os.kill(json.loads(registered.read_text())["coordinator"]["pid"], signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == Exit.UNCLEAN, said
    assert (tmp_path / "mine" / "closes" / f"{hold}.json").exists(), said
    until(lambda: not marked(hold))
