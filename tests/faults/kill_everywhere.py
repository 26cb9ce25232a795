"""Kill coordinator, supervisor or guard at every line of a HOLD's journal, and look what is left.

``python -m tests.faults.kill_everywhere`` takes minutes, so it is no part of the suite: that kills
each of them once.  It says what it did and ends with status 1 at the first thing that is not so.
"""

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.faults.windows import Coordinator, supervisor_of, tombstone, until, window

LINES = [f"line-{number}" for number in range(6)]
WORK = {"journal": LINES, "start": ["plain", "deaf", "setsid", "twice"]}


def lines(place, hold):
    journal = place / "state" / "holds" / hold / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def only_hold(place):
    for directory in (place / "host" / "holds", place / "state" / "holds"):
        for one in directory.glob("*/registration.json"):
            return one.parent.name
    return None


def victim(place, hold, who, process):
    if who == "coordinator":
        return process.pid
    supervisor = supervisor_of(place, hold).pid
    if who == "supervisor":
        return supervisor
    # the last that was started: of the quiesce commands, or of the drill
    procs = (place / "host" / "holds" / hold / "procs.jsonl").read_text().splitlines()
    return json.loads(procs[-1])["detail"]["pid"]


def around(place):
    """A quiesce command that takes a moment, and a restore command that counts."""
    quiet = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    back = [sys.executable, "-c", f"open({str(place / 'after')!r}, 'a').write('x')"]
    return {
        name: [{"argv": argv, "limit_s": 30.0}]
        for name, argv in (("quiesce", quiet), ("restore", back))
    }


def once(place, who, at):
    """Kill at the first look at which the journal has so many lines; -> how the HOLD ended."""
    one = Coordinator.__new__(Coordinator)
    one.launch(place, WORK, **around(place))
    try:
        hold = until(lambda: only_hold(place))
        until(lambda: lines(place, hold) >= at)
        os.kill(victim(place, hold, who, one.process), signal.SIGKILL)
        if who == "supervisor":
            until(lambda: not marked(hold))
        else:
            until(lambda: tombstone(place, hold))
        assert until(lambda: not marked(hold))
        with window(place) as again:
            assert again.granted.fence == 2
            # put back by whoever came first, and once
            assert (place / "after").read_text() == "x"
        return tombstone(place, hold)["why"]
    finally:
        one.close()


def marked(hold):
    mark = f"PP4_HOLD={hold}".encode()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(int(pid))
        except OSError:
            continue
    return found


def main():
    for who in ("coordinator", "supervisor", "guard"):
        for at in range(1, len(LINES) + 3):
            with tempfile.TemporaryDirectory() as directory:
                why = once(Path(directory), who, at)
            sys.stdout.write(f"{who} killed at line {at}: {why}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
