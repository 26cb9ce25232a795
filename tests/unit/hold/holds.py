"""HOLDs with children that are small scripts, for tests of holding and letting go."""

import json
import os
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.hold.exclusion import Exclusion
from pp4.hold.local import open_local
from pp4.hold.places import own_directory
from pp4.hold.processes import boot_id
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
    # says nothing and reads nothing: whether its starter lives is all the same to it
    "silent": """
import signal
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


# -- HOLDs of GPUs ----------------------------------------------------------------------------

GPUS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in (1, 2))


def pair_admission():
    """What opens a HOLD of GPUs and needs no evidence."""
    return admit(Command.PAIR_KERNELS, [], Subject(source_digest="0" * 64))


def private(root, boot=None):
    """The exclusion of a user on a host without a directory for all."""
    state = root / "state"
    for directory in (state, *(state / name for name in ("gpu", "fence", "holds"))):
        own_directory(directory)
    return Exclusion(state, "private", boot or boot_id())


def held(root, gpus=GPUS, *, clock=None, exclusion=None, **more):
    """Open a HOLD of GPUs whose files lie below a directory."""
    return open_local(
        pair_admission(),
        LocalTransport(),
        clock or SystemClock(),
        gpus=gpus,
        exclusion=exclusion or private(root),
        state_dir=root / "state",
        **more,
    )


def files(root, hold_id):
    """Directory of a HOLD's files."""
    return root / "state" / "holds" / hold_id


def tombstone(root, hold_id):
    """What a HOLD's tombstone says, None where there is none."""
    path = files(root, hold_id) / "closed.json"
    return json.loads(path.read_text()) if path.exists() else None


def fence_on_disk(exclusion, gpu):
    """The fence that is recorded for a GPU."""
    return int(json.loads(exclusion.fence_path(gpu).read_text())["fence"])


def forked(action):
    """Run an action in a child of this process; -> what it returned as JSON, or how it was killed.

    It may end itself by a signal: the kernel then does with locks and files what it would do.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            os.write(write, json.dumps(action()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return -os.WTERMSIG(status)
    assert os.WEXITSTATUS(status) == 0
    return json.loads(said)


NOBODY = 65534


def as_nobody(action):
    """Run an action as a user without rights."""

    def drop():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return action()

    return forked(drop)
