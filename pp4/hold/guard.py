"""Owner of one step: whatever descends from it is ended before the guard itself ends.

``python -P -m pp4.hold.guard HOLD LABEL GRACE_S UNTIL_NS -- ARGV...`` starts ARGV in a session of
its own and passes its own standard input on; standard output and standard error are the child's as
they are.  The guard also has them open, so a reader sees their end only when the whole tree has
ended.

The end of its input means stop: the end of the child's input, a grace, TERM to all descendants, a
grace, KILL, proof.  TERM, HUP and INT mean the same without the first grace, and so does the boot
time UNTIL_NS: nothing runs on because whoever should have ended it hangs.  A child that ends by
itself has what it left behind ended as well.  So a stop takes three times GRACE_S at most (2 s at
least for the proof); whoever kills the guard earlier has to end what is then left.

It exits with the status of the child, 128 + n after a signal n; 2 for a wrong command line; 127
where ARGV does not start; 70 where something survived, which is then named on standard error.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, UsageError, reason_of
from pp4.hold.cgroup import Leaf, make_leaf
from pp4.hold.feed import Feed
from pp4.hold.processes import Owned
from pp4.hold.trees import Tree, become_subreaper, proof_deadline

SURVIVED = 70
"""Exit status of a guard that could not end everything."""
NOT_STARTED = 127
"""Exit status of a guard whose program does not start."""

_ERRORS = 2
_READ = 1 << 10
_SAY_S = 1.0
_LONGEST_GRACE_S = 3600
_LEAF_S = 2.0
_LOOK_S = 5.0
"""Longest wait before the clock is asked again: what waits does not count a suspend."""
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


GUARD = "guard-"
"""Begins the label of a guard that a supervisor has started."""
ENDED = ".ended"
"""What a guard adds to its label for the name of the file that says that nothing is left."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for.

    Attributes:
        hold: id of the HOLD.
        label: the step.
        grace_s: seconds that each part of a stop may take.
        until_ns: boot time at which it is stopped whatever happens.
        argv: program and arguments; no shell reads them.
    """

    hold: str
    label: str
    grace_s: float
    until_ns: int
    argv: tuple[str, ...]


def parse(arguments: Sequence[str]) -> Order:
    """Read the command line.

    Raises:
        UsageError: ``USAGE`` for anything but ``HOLD LABEL GRACE_S UNTIL_NS -- ARGV...``.
    """
    found = " ".join(arguments[:5])
    if len(arguments) < 6 or arguments[4] != "--" or not all((*arguments[:2], arguments[5])):
        raise _usage("HOLD LABEL GRACE_S UNTIL_NS -- ARGV...", found)
    try:
        grace_s = float(arguments[2])
    except ValueError:
        grace_s = math.nan
    if not 0 <= grace_s <= _LONGEST_GRACE_S:
        raise _usage(f"0 to {_LONGEST_GRACE_S} seconds of grace", arguments[2])
    if not _DIGITS.fullmatch(arguments[3]):
        raise _usage("a boot time in nanoseconds", arguments[3])
    return Order(arguments[0], arguments[1], grace_s, int(arguments[3]), tuple(arguments[5:]))


def _usage(expected: str, found: str) -> UsageError:
    return UsageError(Refusal(Code.USAGE, "guard", expected, repr(found[:200])))


class Signals:
    """Signals of this process as something to wait for, next to pipes."""

    def __init__(self) -> None:
        self.stop = False
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)
        # a full pipe wakes as well as one more byte would
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _STOPPING:
            signal.signal(number, self._stop)
        # were it ignored, as a parent may leave it, the kernel would keep no exit status
        signal.signal(signal.SIGCHLD, _wake)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_STOPPING, signal.SIGCHLD))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stop = True

    def clear(self) -> None:
        """Take what woke this process; the flags stay."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, _READ):
                pass


def _wake(number: int, frame: FrameType | None) -> None:
    """Do nothing; that it is called at all writes to the wake-up descriptor."""


class Guard:
    """One step and all that descends from it.

    Args:
        order: what to run.
        signals: those of this process.
    """

    def __init__(self, order: Order, signals: Signals) -> None:
        self._order, self._signals = order, signals

    def run(self) -> int:
        """Run the step to its end; -> exit status, what went wrong named on standard error."""
        leaf = make_leaf(self._order.hold, self._order.label)
        try:
            child, target = self._start(leaf)
        except RefusedError as error:
            _drop(leaf)
            _say(str(error))
            return NOT_STARTED
        tree = Tree(os.getpid(), self._order.label, leader=child)
        feed = Feed(target)
        try:
            self._attend(child, feed, tree)
        finally:
            feed.close()
            left = self._end(tree, leaf)
        if left:
            _say("survivors: " + ", ".join(str(owned) for owned in left))
            return SURVIVED
        if self._order.label.startswith(GUARD):
            _leave_word(self._order.label)
        return _as_exit(tree.status(child))

    def _start(self, leaf: Leaf | None) -> tuple[int, int]:
        """Start the program; -> its process id and the descriptor of its input.

        Raises:
            RefusedError: ``UNREADABLE``: it does not start.
        """
        argv = self._order.argv
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                start_new_session=True,
                # this process has one thread, so a call between fork and exec is safe
                preexec_fn=None if leaf is None else leaf.enter,
            )
        except (OSError, ValueError) as error:
            raise RefusedError(
                Refusal(Code.UNREADABLE, argv[0], "a program that starts", reason_of(error))
            ) from error
        if process.stdin is None:
            raise ValueError("a child needs an input")
        target = os.dup(process.stdin.fileno())
        process.stdin.close()
        # reaped by the tree, last of all; the object must not wait for it as well
        process.returncode = 0
        return process.pid, target

    def _attend(self, child: int, feed: Feed, tree: Tree) -> None:
        """Pass input on until the child has ended or its tree has to be told to."""
        clock = SystemClock()
        now = clock.boottime_ns()
        deadline = Deadline(clock, now, max(0, self._order.until_ns - now))
        stopping = False
        pidfd = os.pidfd_open(child)
        try:
            while not (self._signals.stop or deadline.expired()):
                events = self._wait(pidfd, feed, deadline)
                if pidfd in events:
                    return
                if self._signals.descriptor in events:
                    self._signals.clear()
                    tree.reap()
                feed.move(events)
                if feed.ended and not stopping:
                    deadline, stopping = deadline.within(self._order.grace_s), True
        finally:
            os.close(pidfd)

    def _wait(self, pidfd: int, feed: Feed, deadline: Deadline) -> dict[int, int]:
        poll = select.poll()
        for descriptor in (pidfd, self._signals.descriptor):
            poll.register(descriptor, select.POLLIN)
        for descriptor, events in feed.interest().items():
            poll.register(descriptor, events)
        # up to the next millisecond: a wait that ends just before the deadline would spin
        return dict(poll.poll(min(deadline.remaining_s(), _LOOK_S) * 1000 + 1))

    def _end(self, tree: Tree, leaf: Leaf | None) -> tuple[Owned, ...]:
        """End everything below the guard; -> what is left."""
        left: tuple[Owned, ...] = ()
        if not tree.ask(Deadline.after(SystemClock(), self._order.grace_s)):
            if leaf is not None:
                leaf.kill()
            left = tree.kill(proof_deadline(self._order.grace_s))
        if not left:
            _drop(leaf)
        return left


def _leave_word(label: str) -> None:
    """Say in the directory of the HOLD's work that nothing of the step is left.

    Without it nobody knows what a guard that was killed has left to itself.
    """
    with contextlib.suppress(OSError):
        name = os.path.basename(f"{label}{ENDED}")
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _drop(leaf: Leaf | None) -> None:
    """Remove a cgroup in which nothing is left; one that stays does no harm."""
    if leaf is not None:
        leaf.remove(Deadline.after(SystemClock(), _LEAF_S))


def _as_exit(status: int | None) -> int:
    if status is None:
        return SURVIVED
    return 128 - status if status < 0 else status


def _say(line: str) -> None:
    """Write a line to standard error, unless nobody takes it within a second."""
    data = line.replace("\n", " ").encode("utf-8", "backslashreplace")[: select.PIPE_BUF - 1]
    poll = select.poll()
    poll.register(_ERRORS, select.POLLOUT)
    # a pipe that can be written to has room for this much at once
    if poll.poll(_SAY_S * 1000):
        with contextlib.suppress(OSError):
            os.write(_ERRORS, data + b"\n")


def main(arguments: Sequence[str]) -> int:
    """Guard one step; -> exit status."""
    try:
        order = parse(arguments)
        if sys.stdin is None:
            raise _usage("a standard input whose end means stop", "none")
        become_subreaper()
        if os.getpgrp() != os.getpid():
            os.setpgid(0, 0)
        return Guard(order, Signals()).run()
    except Pp4Error as error:
        _say(str(error))
        return int(error.exit)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
