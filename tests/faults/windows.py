"""HOLDs for fault tests: real supervisors on this machine, with names in place of GPUs."""

import contextlib
import getpass
import json
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.hold.delivery import near_end
from pp4.hold.line import Line
from pp4.hold.processes import Owned, start_token
from pp4.hold.window import open_window
from pp4.receipts.digests import installed_source
from pp4.transport.local_host import LocalHost
from pp4.wire.holds import Open

ROOT = Path(__file__).parents[2]
GPUS = (
    "GPU-00000000-0000-4000-8000-00000000000a",
    "GPU-00000000-0000-4000-8000-00000000000b",
)
DRILLS = "tests.faults.drills"
TTL_S = 2.0
PATIENCE_S = 60.0


def program(module, *arguments):
    path = f"PYTHONPATH={ROOT}"
    return ["/usr/bin/env", path, sys.executable, "-P", "-m", module, *arguments]


@cache
def source():
    """The digest of the source under test, which is the same for all tests of a run."""
    return installed_source().digest


def asked(place, **more):
    """What a test asks a host for."""
    given = {
        "command": "pair-qualify --dry-run",
        "source_digest": source(),
        "gpus": GPUS,
        "rehearsal": True,
        "coordinator": getpass.getuser(),
        "transport": "local",
        "ttl_s": TTL_S,
        "bound_s": 600.0,
        "state_dir": str(place / "state"),
        "host_dir": str(place / "host"),
        **more,
    }
    return Open.model_validate_json(json.dumps(given))


class Watching:
    """Keeps what it is told."""

    def __init__(self):
        self.items, self.beats = [], []

    def told(self, item):
        self.items.append(item)

    def alive(self, lease_s, deadline_s, last_line):
        self.beats.append((lease_s, deadline_s, last_line))


@contextmanager
def window(place, host=None, by=program, **more):
    """An open HOLD, with what its steps told as ``watching``; ``by`` starts programs there."""
    watching = Watching()
    one = host or LocalHost()
    try:
        with open_window(one, by, asked(place, **more), SystemClock(), watching) as found:
            found.watching = watching
            found.quieten()
            yield found
    finally:
        one.close()


def public(place, hold):
    """Where registration and tombstone of a HOLD lie."""
    for where in (place / "host", place / "state", place / "state" / "shared"):
        if (where / "holds" / hold / "registration.json").exists():
            return where / "holds" / hold
    raise AssertionError(f"no registration of {hold}")


def tombstone(place, hold):
    path = public(place, hold) / "closed.json"
    return json.loads(path.read_text()) if path.exists() else None


def until(condition, seconds=PATIENCE_S):
    """Wait for a condition with a generous bound; -> what it gave."""
    deadline = Deadline.after(SystemClock(), seconds)
    while not (found := condition()):
        deadline.require("what a test waits for")
        time.sleep(0.01)  # whoever is waited for may need the core
    return found


def tokens(*pids):
    """Start tokens by pid, None for what is gone, to see later that these very ones are gone."""
    return {pid: start_token(pid) for pid in pids}


def gone(known):
    return all(token is None or start_token(pid) != token for pid, token in known.items())


def supervisor_of(place, hold):
    found = json.loads((public(place, hold) / "registration.json").read_text())["coordinator"]
    return Owned(found["pid"], found["start_token"], "supervisor")


def told_by(pid, what):
    return Path(f"/proc/{pid}/{what}").read_text()


def fences(place):
    directory = place / "host" if (place / "host").exists() else place / "state"
    return [json.loads((directory / "fence" / gpu).read_text())["fence"] for gpu in GPUS]


def touch(path, status=0):
    """A command of the host that adds a byte to a file and ends with a status."""
    text = f"open({str(path)!r}, 'a').write('x'); raise SystemExit({status})"
    return {"argv": [sys.executable, "-c", text], "limit_s": 30.0}


def ask_there(place, hold, verb, **arguments):
    """Ask the supervisor of a HOLD for one thing over a connection of its own; -> the facts."""
    registered = json.loads((public(place, hold) / "registration.json").read_text())
    named = {"hold": hold, "fence": int(registered["fence"])}
    near = near_end(program, hold, str(place / "state"), str(place / "host"))
    with contextlib.closing(LocalHost()) as host:
        line = Line(host, near)
        try:
            deadline = Deadline.after(SystemClock(), PATIENCE_S)
            return line.ask(verb, {**named, **arguments}, deadline)
        finally:
            line.drop()


COORDINATE = """
import json, sys, threading, time
from pathlib import Path
from tests.faults.windows import DRILLS, window
place, arguments, more = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
with window(place, **more) as one:
    def say():
        while not one.watching.items:
            time.sleep(0.01)
        told = {"hold": one.granted.hold, "fence": one.granted.fence, **one.watching.items[0]}
        print(json.dumps(told), flush=True)
    threading.Thread(target=say, daemon=True).start()
    one.run("drill", DRILLS, arguments)
"""


class Coordinator:
    """A coordinator in a process of its own, with a drill that runs on."""

    script = COORDINATE

    def __init__(self, place, arguments=None, **more):
        self.launch(place, arguments, **more)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.told = json.loads(line)
        self.hold = self.told["hold"]
        self.drill = tokens(self.told["pid"], *self.told["pids"])

    def launch(self, place, arguments=None, **more):
        """Start it and wait for nothing."""
        told = [str(place), json.dumps(arguments or {}), json.dumps(more)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.script, *told],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        """Wait for its end; -> status and what it complained of."""
        _, said = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, said

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
