"""A HOLD, a session and a clock that do what a test says and write down what they were asked."""

import json
from types import SimpleNamespace

from pp4.clock import Deadline, ManualClock
from pp4.hold.journal import Journal
from pp4.qualify.arms import Arm, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.settings import REHEARSAL


class Hold:
    """What an arm needs of a HOLD: a journal, a clock, a directory, books."""

    def __init__(self, directory, clock=None, gpus=()):
        self.directory = directory
        self.clock = clock or ManualClock()
        self.journal = Journal(directory / "journal.jsonl")
        self.nonce, self.fence = "nonce", 1
        self.gpus = tuple(gpus)
        self.owned, self.stopped = [], []
        self.alive = ()
        self.deadline = None
        self.admission = SimpleNamespace(source_digest="0" * 64, receipts={})

    def own(self, pid, label):
        self.owned.append((pid, label))

    def within(self, seconds):
        return Deadline.after(self.clock, seconds)

    def running(self):
        return self.alive

    def stop(self, channel):
        self.stopped.append(channel)

    def lines(self):
        """The journal as it stands on the disk."""
        text = (self.directory / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


class Watched(Context):
    """A context whose restarts are written down."""

    def __init__(self, hold, transcript, settings=REHEARSAL):
        super().__init__(hold, settings)
        self.transcript = transcript

    def restart(self):
        self.transcript.append("restart")
        super().restart()


class Transcript(list):
    """Calls in order; is a progress as well."""

    def planned(self, steps):
        self.append(("planned", [step.name for step in steps]))

    def started(self, step):
        self.append(("started", step.name))

    def finished(self, step, found, elapsed_s):
        self.append(("finished", step.name, found))

    def note(self, text):
        self.append(("note", text))


def passing(name, run, gate=0, **more):
    """An arm that has to pass."""
    return must_pass(gate, name, f"what {name} says", run, **more)


def catching(name, code, run, gate=0, **more):
    """An arm with a fault that has to be found."""
    return must_catch(gate, name, code, f"what {name} says", run, **more)


def gate_of(number, *arms: Arm):
    """A gate of these arms."""
    return Gate(number, f"gate {number}", arms)


def finds(code=None, **facts):
    """What an arm runs that finds a code."""
    return lambda context: Finding(code, facts)


def raises(error):
    """What an arm runs that ends in an error."""

    def run(context):
        raise error

    return run
