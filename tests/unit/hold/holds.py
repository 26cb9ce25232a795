"""A rehearsal's HOLD with children that are small scripts, for tests of holding and letting go."""

import time
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.hold.rehearsal import open_rehearsal
from pp4.receipts.admission import Command, Subject, admit
from pp4.transport.local import LocalTransport

ROOT = Path(__file__).parents[3]
LONG = 60.0

# Modules that a test lets a HOLD start; each says that it is ready, so that nobody has to sleep.
MODULES = {
    "waits": """
from saying import say
import os
say("ready")
os.read(0, 1)
""",
    "ignores": """
from saying import say
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say("ready")
while True:
    signal.pause()
""",
    # a grandchild in a session of its own, whose parent is gone: what no group reaches
    "escapes": """
from saying import say
import os, signal
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(os.getpid()).encode())
        os.close(write)
        for descriptor in (0, 1):
            os.close(descriptor)
        while True:
            signal.pause()
    os._exit(0)
os.wait()
say(os.read(read, 20).decode())
os.read(0, 1)
""",
    "saying": """
import os
from pp4.wire import Event, encode
def say(name):
    os.write(1, encode(Event(sequence=0, name=name)))
""",
}


def admission():
    """What opens a rehearsal."""
    return admit(Command.REHEARSAL, [], Subject(source_digest="0" * 64))


def opened(parent, clock=None):
    """Open a HOLD below a directory; the modules above can be started in it."""
    return open_rehearsal(admission(), LocalTransport(), clock or SystemClock(), parent)


def write_modules(directory):
    """Put the modules where :func:`started` finds them; -> the directory."""
    directory.mkdir(exist_ok=True)
    for name, text in MODULES.items():
        (directory / f"{name}.py").write_text(text)
    return directory


def started(hold, module, modules, label=None):
    """Start a module under a HOLD and wait until it is ready; -> channel and what it said."""
    channel = hold.start(
        module, [], environment={"PYTHONPATH": f"{ROOT}:{modules}"}, label=label or module
    )
    said = channel.receive(Deadline.after(SystemClock(), LONG)).name
    return channel, said


def running(pid):
    """Whether the kernel lists a process that is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def within(condition, limit_s=LONG):
    """Whether a condition comes about before a deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
