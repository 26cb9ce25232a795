"""Real processes that have children, each written down by pid and start token when it is born."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.hold.cgroup import leaves
from pp4.hold.processes import COOKIE, Owned, start_token
from tests.unit.processes import LONG, within

ROOT = Path(__file__).parents[3]
# another one for each run, and each worker of a run: cgroups carry it in their names
HOLD = os.urandom(8).hex()
FAR_NS = 10**19 - 1
"""A boot time that no test sees."""

# What every script here can use; no script outlives its test by more than two minutes.
BORN = """
import os, signal, sys, time

TOO_LATE = time.monotonic() + 120


def born(name):
    stat = open("/proc/self/stat", "rb").read()
    token = stat.rpartition(b")")[2].split()[19].decode()
    file = os.open({place!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(file, f"{{name}} {{os.getpid()}} {{token}}\\n".encode())
    os.close(file)


def deaf():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def wait():
    while time.monotonic() < TOO_LATE:
        time.sleep(1)
    os._exit(99)


def detach():
    # a daemon: in a session of its own, and the one that forked it is gone
    if os.fork() != 0:
        return False
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    return True
"""


class Family:
    """Processes of one test.

    Args:
        directory: where they are written down.
    """

    def __init__(self, directory):
        self.directory = directory
        self.place = directory / "born"
        modules = directory / "modules"
        modules.mkdir()
        (modules / "family.py").write_text(BORN.format(place=str(self.place)))
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{modules}",
            "PYTHONDONTWRITEBYTECODE": "1",
            COOKIE: HOLD,
        }
        self._started = []

    def start(self, *argv, **more):
        """Start a program with pipes for its input and outputs."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(argv, env=self.environment, **{**streams, **more})
        self._started.append(process)
        return process

    def script(self, text, *arguments, **more):
        """Start a Python script."""
        return self.start(sys.executable, "-c", f"from family import *\n{text}", *arguments, **more)

    def guard(
        self, *argv, grace="0.3", label="step", program=("-m", "pp4.hold.guard"), until=None, **more
    ):
        """Start a guard of a program; ``until`` is a boot time, far away if none is given."""
        order = (HOLD, label, grace, str(FAR_NS if until is None else until), "--", *argv)
        return self.start(sys.executable, "-P", *program, *order, **more)

    def guarded(self, text, **more):
        """Start a guard of a Python script."""
        return self.guard(sys.executable, "-c", f"from family import *\n{text}", **more)

    def all(self):
        """Everybody who was ever written down."""
        lines = self.place.read_text().splitlines() if self.place.exists() else []
        words = [line.split() for line in lines]
        return tuple(Owned(int(pid), token, name) for name, pid, token in words)

    def named(self, name):
        """Wait for the first of a name."""
        found = []
        assert within(lambda: found.extend(o for o in self.all() if o.label == name) or found), name
        return found[0]

    def alive(self):
        """Those who live."""
        return tuple(owned for owned in self.all() if owned.alive())

    def end(self):
        """Close what was opened and end whoever is left; -> who was."""
        left = self.alive()
        for owned in left:
            owned.signal(signal.SIGKILL)
        for leaf in leaves(HOLD):
            leaf.kill()
            assert leaf.remove(Deadline.after(SystemClock(), LONG))
        for process in self._started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None and not stream.closed:
                    stream.close()
        assert within(lambda: not self.alive())
        return left


@contextmanager
def gathered(directory):
    """A family of which nobody may be left at the end of a test."""
    family = Family(directory)
    try:
        yield family
    finally:
        left = family.end()
    assert left == ()


def finished(process, limit_s=LONG):
    """End the input of a process and wait for its end; -> status, output, errors."""
    output, errors = process.communicate(timeout=limit_s)
    return process.returncode, output, errors


def ended(process, limit_s=LONG):
    """Wait for the end of a process whose input stays open; -> status, output, errors."""
    output, errors = process.stdout.read(), process.stderr.read()
    return process.wait(limit_s), output, errors


def owned(pid):
    """A running process by its start token as well."""
    token = start_token(pid)
    assert token is not None
    return Owned(pid, token, "started")
