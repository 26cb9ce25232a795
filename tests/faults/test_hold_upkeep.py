"""``pp4 hold`` and ``pp4 host`` on HOLDs that ended badly, here and over a HOLD file."""

import json
import os
import signal
import subprocess
import sys

import pytest

from pp4.errors import Exit
from tests.faults.test_hold_cli import FILE
from tests.faults.windows import (
    GPUS,
    PATIENCE_S,
    ROOT,
    Coordinator,
    gone,
    supervisor_of,
    tombstone,
    until,
    window,
)


@pytest.fixture
def pp4(tmp_path):
    """Runs a command with the directories of the host; -> status and its JSON document."""
    (tmp_path / "hold.toml").write_text(FILE.format(gpus=json.dumps(GPUS), place=tmp_path))

    def run(*arguments, mine="state"):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pp4", *arguments, "--json"],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PP4_STATE_DIR": str(tmp_path / mine),
                "PP4_HOST_DIR": str(tmp_path / "host"),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def lost(tmp_path):
    """A HOLD whose coordinator and supervisor are both killed."""
    one = Coordinator(tmp_path, {"start": ["plain", "setsid"]})
    try:
        os.kill(supervisor_of(tmp_path, one.hold).pid, signal.SIGKILL)
        one.signal(signal.SIGKILL)
        until(lambda: gone(one.drill))
        yield one
    finally:
        one.close()


def there(tmp_path):
    return ["--hold", str(tmp_path / "hold.toml")]


@pytest.mark.parametrize("way", ["here", "there"])
def test_a_lost_hold_is_seen_recovered_and_closed(pp4, tmp_path, lost, way):
    more = there(tmp_path) if way == "there" else []
    status, seen = pp4("hold", "status", *more)
    assert status == 0, seen
    (hold,) = seen["holds"]
    assert (hold["hold"], hold["state"], hold["alive"]) == (lost.hold, "lost", [])
    assert {gpu["gpu"]: gpu["taken"] for gpu in seen["gpus"]} == dict.fromkeys(GPUS, False)
    out = tmp_path / "incidents"
    status, told = pp4("hold", "recover", lost.hold, *more, "--out", str(out))
    assert (status, told.get("state")) == (0, "closed"), told
    assert tombstone(tmp_path, lost.hold)["why"] == "abandoned"
    status, report = pp4("verify-receipt", "--kind", "incident", told["receipt"])
    assert status == 0, report
    assert pp4("hold", "status", *more)[1]["holds"][0]["state"] == "closed"


def test_a_close_that_is_kept_is_delivered_to_that_hold_alone(pp4, tmp_path):
    one = Coordinator(tmp_path, {"start": ["plain"]}, ttl_s=100.0)
    try:
        fence, hold = str(one.told["fence"]), one.hold
        wrong = pp4("hold", "close", hold, "--fence", str(int(fence) + 1), *there(tmp_path))
        assert (wrong[0], wrong[1]["code"]) == (Exit.REFUSED, "STALE_FENCE")
        unkept = pp4("hold", "close", hold, *there(tmp_path), mine="mine")
        assert (unkept[0], unkept[1]["code"]) == (Exit.REFUSED, "UNKNOWN_HOLD")
        assert tombstone(tmp_path, hold) is None
        status, found = pp4("hold", "close", hold, "--fence", fence, *there(tmp_path))
        assert (status, found["why"]) == (0, "cancelled")
        assert found == tombstone(tmp_path, hold)
        assert gone(one.drill)
        # again: the same, whatever is asked
        assert pp4("hold", "close", hold, "--fence", fence, *there(tmp_path)) == (0, found)
    finally:
        one.close()


def test_what_is_not_there_is_said(pp4, tmp_path):
    with window(tmp_path):
        pass
    nobody = "0123456789abcdef"
    for command in (["recover", nobody], ["close", nobody, "--fence", "1", *there(tmp_path)]):
        status, said = pp4("hold", *command)
        assert (status, said["code"]) == (Exit.REFUSED, "UNKNOWN_HOLD")


def test_a_hold_file_is_written_once_and_is_one(pp4, tmp_path):
    file = tmp_path / "new.toml"
    assert pp4("hold", "new", str(file)) == (0, {"file": str(file)})
    assert file.read_text() == (ROOT / "launch" / "hold.example.toml").read_text()
    status, said = pp4("hold", "new", str(file))
    assert (status, said["code"]) == (Exit.REFUSED, "EXISTS")


def test_prune_removes_what_ended_long_ago(pp4, tmp_path):
    for _ in range(2):
        with window(tmp_path) as one:
            pass
    assert pp4("hold", "prune", "--older-than", "1d")[1] == {"removed": []}
    (would,) = pp4("hold", "prune", "--older-than", "0", "--dry-run")[1].values()
    assert would
    assert tombstone(tmp_path, one.granted.hold) is not None
    (removed,) = pp4("hold", "prune", "--older-than", "0")[1].values()
    assert sorted(removed) == sorted(would)
    # the one with the highest fence stays, and the next HOLD is granted as ever
    assert tombstone(tmp_path, one.granted.hold) is not None
    with window(tmp_path) as again:
        assert again.granted.fence == one.granted.fence + 1


@pytest.mark.parametrize("command", [["status"], ["prune"], ["recover", "0123456789abcdef"]])
def test_looking_makes_no_directory_that_changes_who_is_kept_out(pp4, tmp_path, command):
    pp4("hold", *command)
    assert not (tmp_path / "host").exists()


@pytest.mark.parametrize("wrong", ["xyz", "../../etc", "0123456789ABCDEF", ""])
def test_an_id_that_is_none_is_refused_at_once(pp4, tmp_path, wrong):
    status, said = pp4("hold", "close", wrong, "--fence", "1", *there(tmp_path))
    assert (status, said["code"]) == (Exit.REFUSED, "BAD_INPUT")


def test_each_look_at_a_lost_hold_is_a_receipt_of_its_own(pp4, tmp_path, lost):
    out = tmp_path / "incidents"
    first = pp4("hold", "recover", lost.hold, "--out", str(out))[1]["receipt"]
    again = pp4("hold", "recover", lost.hold, "--out", str(out))[1]["receipt"]
    assert first != again
    assert sorted(path.name for path in out.iterdir()) == [
        f"incident-{lost.hold}-2.json",
        f"incident-{lost.hold}.json",
    ]


def test_a_place_that_takes_no_receipt_is_a_refusal(pp4, tmp_path, lost):
    (tmp_path / "file").write_text("")
    status, said = pp4("hold", "recover", lost.hold, "--out", str(tmp_path / "file"))
    assert (status, said["code"]) == (Exit.REFUSED, "UNWRITABLE")
