"""``pp4 pair-qualify --hold FILE`` as a person runs it, and ends it, on this machine."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest

from pp4.errors import Exit
from tests.faults.windows import GPUS, PATIENCE_S, ROOT, public, tombstone, until

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


@pytest.fixture
def run(tmp_path):
    """Starts the command in a group of its own; ends whatever is left of it."""
    (tmp_path / "hold.toml").write_text(FILE.format(gpus=json.dumps(GPUS), place=tmp_path))
    started = []

    def start(*more):
        argv = ["pair-qualify", "--hold", str(tmp_path / "hold.toml"), "--dry-run-device"]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pp4", *argv, "--out", str(tmp_path / "out"), *more],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PP4_STATE_DIR": str(tmp_path / "mine")},
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


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
)
def test_a_signal_closes_the_hold_and_leaves_nothing(run, tmp_path, number, status):
    process = run()
    hold = until(lambda: opened(tmp_path, process))
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, said
    assert tombstone(tmp_path, hold)["why"] == "cancelled"
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "state" / "holds" / hold / "work").exists()
    assert marked(hold) == []


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


def test_a_second_signal_ends_at_once_and_says_how_to_go_on(run, tmp_path):
    process = run()
    hold = until(lambda: opened(tmp_path, process))
    registered = json.loads((public(tmp_path, hold) / "registration.json").read_text())
    supervisor = registered["coordinator"]["pid"]
    # a host that hangs: it hears of the end and does nothing about it
    os.kill(supervisor, signal.SIGSTOP)
    try:
        # the first asks for an end, and whichever comes while that is waited for wants it at once
        until(lambda: pressed(process) is not None)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    # a further one may come when the command has said everything and is on its way out
    assert process.returncode in (Exit.UNCLEAN, 130, -signal.SIGINT), said
    kept = tmp_path / "mine" / "closes" / f"{hold}.json"
    assert kept.exists(), said
    # the host closes it by itself, since nobody is heard of any more
    assert until(lambda: tombstone(tmp_path, hold))["why"] in ("abandoned", "cancelled")
