"""The owner's end of its two rank processes: fork, frames, deadlines, death."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError, WrongError
from pp4.wire import Decoder, Event, Reply, Request, encode
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.rank import become_rank
from pp4.worker.serving.arena import Arena

_READ = 1 << 16
_BURIAL_S = 10.0
_POLL_S = 0.002


class RankEnd:
    """One rank as its owner sees it.

    Attributes:
        rank: 0 or 1.
        pid: its process.
        events: names it reported since the last request.
        reply: the answer to the last request, None until it came.
        alive: whether its stream is open.
    """

    def __init__(self, rank: int, pid: int, source: int, sink: int) -> None:
        self.rank, self.pid, self.source, self._sink = rank, pid, source, sink
        self._decoder = Decoder()
        self._sequence = 0
        self.events: deque[str] = deque()
        self.reply: Reply | None = None
        self.alive = True
        self._buried = False
        os.set_blocking(sink, False)

    def ask(self, verb: str, arguments: dict[str, Any]) -> None:
        """Send one request; forgets the last answer."""
        self._sequence += 1
        self.events.clear()
        self.reply = None
        self._write(Request(sequence=self._sequence, verb=verb, arguments=arguments))

    def resume(self) -> None:
        """Let a paused rank go on."""
        self._write(Request(sequence=self._sequence, verb="resume"))

    def _write(self, message: Request) -> None:
        data = encode(message)
        try:
            taken = os.write(self._sink, data)
        except BrokenPipeError:
            self.alive = False
            return
        except BlockingIOError:
            taken = 0
        if taken != len(data):
            # requests are far below the size of a pipe: it is full of those that nobody read
            raise TimedOutError(
                Refusal(
                    Code.STEP_TIMEOUT,
                    f"rank {self.rank}, {message.verb}",
                    "a rank that reads its requests",
                    "a full pipe",
                    left=f"process {self.pid}",
                )
            )

    def take(self) -> None:
        """Read what is there; an end of stream is a death."""
        data = os.read(self.source, _READ)
        if not data:
            self.alive = False
            return
        for message in self._decoder.feed(data):
            if isinstance(message, Event):
                self.events.append(message.name)
            elif isinstance(message, Reply) and message.sequence == self._sequence:
                self.reply = message

    @property
    def settled(self) -> bool:
        """Answered or dead."""
        return self.reply is not None or not self.alive

    def answer(self, verb: str) -> Reply:
        """The answer to the last request.

        Raises:
            WrongError: ``RANK_DIED``, there is none.
        """
        if self.reply is None:
            raise WrongError(
                Refusal(
                    Code.RANK_DIED, f"rank {self.rank}, {verb}", "an answer", "its stream ended"
                )
            )
        return self.reply

    def reached(self, event: str) -> bool:
        """Whether it reported an event, or cannot any more."""
        return event in self.events or self.settled

    @property
    def running(self) -> bool:
        """Whether its process has not ended, whatever was read of it so far; reaps nothing."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def kill(self) -> None:
        """SIGKILL; the stream's end follows."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> bool:
        """Kill, reap and close; -> whether the process is proven dead.

        A process that hangs in the kernel cannot be reaped, and is not waited for without end.
        """
        if self._buried:
            return True
        self.kill()
        deadline = Deadline.after(SystemClock(), _BURIAL_S)
        while not self._reaped():
            if deadline.expired():
                return False
            time.sleep(_POLL_S)
        self._buried = True
        for descriptor in (self.source, self._sink):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.alive = False
        return True

    def _reaped(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return True


def fork_pair(homes: Homes, seats: Seats, arena: Arena | None) -> tuple[RankEnd, RankEnd]:
    """Fork both ranks; each child keeps only its own two pipe ends.

    Raises:
        OSError: there is no pipe or no process to be had; nothing of the pair is left then.
    """
    owner = os.getpid()
    pipes: list[tuple[int, int]] = []
    ends: list[RankEnd] = []
    ours: set[int] = set()
    try:
        for _ in range(4):
            pipes.append(os.pipe())
        every = {descriptor for pipe in pipes for descriptor in pipe}
        for rank, (down, up) in enumerate(zip(pipes[::2], pipes[1::2], strict=True)):
            pid = os.fork()
            if pid == 0:
                _be_child(rank, homes, seats, arena, down[0], up[1], every, owner)
            ends.append(RankEnd(rank, pid, up[0], down[1]))
            ours |= {up[0], down[1]}
    except OSError:
        # half a pair serves nobody
        for end in ends:
            end.bury()
        raise
    finally:
        # the children's ends, and all ends of a child that never came to be
        for descriptor in {one for pipe in pipes for one in pipe} - ours:
            os.close(descriptor)
    return ends[0], ends[1]


def _be_child(
    rank: int,
    homes: Homes,
    seats: Seats,
    arena: Arena | None,
    source: int,
    sink: int,
    every: set[int],
    owner: int,
) -> NoReturn:
    """What the child does after its fork; nothing of the owner's own clearing up is its to run."""
    try:
        for descriptor in every - {source, sink}:
            os.close(descriptor)
        _detach()
        become_rank(rank, homes, seats, arena, source, sink, owner)
    except BaseException as error:
        sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(1)


def _detach() -> None:
    """The owner's standard streams carry frames: a rank must neither read nor write them."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)


class Pair:
    """Both ranks, pumped together against one deadline.

    Args:
        homes: directories that both ranks may write.
        seats: where both ranks run.
        lifeline: a pipe whose other end belongs to whoever asked; waiting ends when it breaks.
        arena: memory that both ranks share with their owner, where they serve.
    """

    def __init__(
        self,
        homes: Homes,
        seats: Seats,
        lifeline: int | None = None,
        arena: Arena | None = None,
    ) -> None:
        self.ends = fork_pair(homes, seats, arena)
        self._lifeline = lifeline
        self.broken: Code | None = None

    def __getitem__(self, rank: int) -> RankEnd:
        return self.ends[rank]

    def ask(self, rank: int, verb: str, arguments: dict[str, Any]) -> None:
        """Send one rank a request.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``, it may have got a part of it: the pair is ``broken``.
        """
        with self._breaking():
            self.ends[rank].ask(verb, arguments)

    def resume(self, rank: int) -> None:
        """Let a paused rank go on; as :meth:`ask`."""
        with self._breaking():
            self.ends[rank].resume()

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """Whatever ends in an error here leaves ranks in a state that nobody knows."""
        try:
            yield
        except Pp4Error as error:
            self.broken = error.refusal.code
            raise

    def until(self, condition: Callable[[], bool], deadline: Deadline, doing: str) -> None:
        """Pump both streams until a condition holds.

        Where it does not come about in time, nobody knows any more what the ranks are doing, and
        the pair stays ``broken``.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``.
            WrongError: ``BAD_FRAME``, a rank wrote what is no frame.
            RefusedError: ``INTERRUPTED``, whoever asked is gone.
        """
        with self._breaking():
            while not condition():
                live = [end for end in self.ends if end.alive]
                if not live:
                    return
                self._pump(live, deadline, doing)
                if not condition():
                    deadline.require(doing, left=f"ranks {[end.pid for end in live]}")

    def _pump(self, live: list[RankEnd], deadline: Deadline, doing: str) -> None:
        poll = select.poll()
        for end in live:
            poll.register(end.source, select.POLLIN)
        if self._lifeline is not None:
            # nothing asked for: what arrives there is read later, only its end is told at once
            poll.register(self._lifeline, 0)
        ready = {descriptor for descriptor, _ in poll.poll(math.ceil(deadline.remaining_s() * 1e3))}
        for end in live:
            if end.source in ready:
                end.take()
        if self._lifeline in ready:
            raise RefusedError(
                Refusal(Code.INTERRUPTED, doing, "whoever asked to wait for it", "nobody is left")
            )

    def both(
        self, verb: str, arguments: tuple[dict[str, Any], dict[str, Any]], limit_s: float
    ) -> tuple[Reply, Reply]:
        """Ask both ranks the same verb and wait for both: a host barrier.

        Raises:
            WrongError: ``RANK_DIED``.
            TimedOutError: ``STEP_TIMEOUT``.
        """
        for rank, given in enumerate(arguments):
            self.ask(rank, verb, given)
        deadline = Deadline.after(SystemClock(), limit_s)
        self.until(lambda: all(end.settled for end in self.ends), deadline, verb)
        return self.ends[0].answer(verb), self.ends[1].answer(verb)

    def bury(self) -> dict[str, Any]:
        """Kill both; -> their pids and whether each is proven dead, and how long it took."""
        began = time.monotonic_ns()
        dead = [end.bury() for end in self.ends]
        return {
            "pids": [end.pid for end in self.ends],
            "dead": dead,
            "elapsed_ns": time.monotonic_ns() - began,
        }
