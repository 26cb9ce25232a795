"""The owner's end of its two rank processes: fork, frames, deadlines, death."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, WrongError
from pp4.wire import Decoder, Event, Reply, Request, encode
from pp4.worker.rank import become_rank

_READ = 1 << 16


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
        try:
            # requests are far below the size of a pipe, so this does not block
            os.write(self._sink, encode(message))
        except BrokenPipeError:
            self.alive = False

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

    def reached(self, event: str) -> bool:
        """Whether it reported an event, or cannot any more."""
        return event in self.events or self.settled

    def kill(self) -> None:
        """SIGKILL; the stream's end follows."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def bury(self) -> bool:
        """Kill, reap and close; -> whether the process is proven dead."""
        self.kill()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        for descriptor in (self.source, self._sink):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self.alive = False
        return not Path(f"/proc/{self.pid}").exists()


def fork_pair(directory: Path) -> tuple[RankEnd, RankEnd]:
    """Fork both ranks; each child keeps only its own two pipe ends."""
    pipes = [(os.pipe(), os.pipe()) for _ in range(2)]
    every = {end for pair in pipes for pipe in pair for end in pipe}
    ends = []
    for rank, (down, up) in enumerate(pipes):
        pid = os.fork()
        if pid == 0:
            for descriptor in every - {down[0], up[1]}:
                os.close(descriptor)
            _detach()
            become_rank(rank, directory, down[0], up[1])
        ends.append(RankEnd(rank, pid, up[0], down[1]))
    for down, up in pipes:
        os.close(down[0])
        os.close(up[1])
    return ends[0], ends[1]


def _detach() -> None:
    """The owner's standard streams carry frames: a rank must neither read nor write them."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)


class Pair:
    """Both ranks, pumped together against one deadline."""

    def __init__(self, directory: Path) -> None:
        self.ends = fork_pair(directory)

    def __getitem__(self, rank: int) -> RankEnd:
        return self.ends[rank]

    def until(self, condition: Callable[[], bool], limit_s: float, doing: str) -> None:
        """Pump both streams until a condition holds.

        Raises:
            TimedOutError: ``STEP_TIMEOUT``.
        """
        deadline = Deadline.after(SystemClock(), limit_s)
        while not condition():
            live = [end for end in self.ends if end.alive]
            if not live:
                return
            with selectors.DefaultSelector() as selector:
                for end in live:
                    selector.register(end.source, selectors.EVENT_READ, end)
                for key, _ in selector.select(deadline.remaining_s()):
                    key.data.take()
            if not condition():
                deadline.require(doing, left=f"ranks {[end.pid for end in live]}")

    def both(
        self, verb: str, arguments: tuple[dict[str, Any], dict[str, Any]], limit_s: float
    ) -> tuple[Reply, Reply]:
        """Ask both ranks the same verb and wait for both: a host barrier.

        Raises:
            WrongError: ``RANK_DIED``.
            TimedOutError: ``STEP_TIMEOUT``.
        """
        for end, given in zip(self.ends, arguments, strict=True):
            end.ask(verb, given)
        self.until(lambda: all(end.settled for end in self.ends), limit_s, verb)
        return self._reply(0, verb), self._reply(1, verb)

    def _reply(self, rank: int, verb: str) -> Reply:
        reply = self.ends[rank].reply
        if reply is None:
            raise WrongError(
                Refusal(Code.RANK_DIED, f"rank {rank}, {verb}", "an answer", "its stream ended")
            )
        return reply

    def bury(self) -> dict[str, Any]:
        """Kill both; -> their pids and whether each is proven dead, and how long it took."""
        began = time.monotonic_ns()
        dead = [end.bury() for end in self.ends]
        return {
            "pids": [end.pid for end in self.ends],
            "dead": dead,
            "elapsed_ns": time.monotonic_ns() - began,
        }
