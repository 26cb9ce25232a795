"""A host with a bad connection: frames are lost, late, doubled or cut off, as a schedule says.

Nothing here sleeps or draws: the same schedule over the same frames does the same, so that what a
search finds can be played again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal

from pp4.clock import Deadline
from pp4.errors import WrongError
from pp4.transport.attempt import exclusively
from pp4.transport.interface import Host, Stream
from pp4.transport.output import lost
from pp4.wire import MAX_FRAME

_HEADER = 4


class Action(StrEnum):
    """What becomes of one frame."""

    PASS = "pass"
    DROP = "drop"
    DUPLICATE = "duplicate"
    HOLD = "hold-until-next"
    """Kept until the next frame of its direction comes, or its end; then it goes first."""
    CUT = "cut"
    """The frame is lost and the connection with it, for all streams of the host."""


class Direction:
    """What becomes of the frames that go one way, in the order in which they come.

    Args:
        actions: one for each frame; frames beyond them pass.
    """

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._lock = threading.Lock()
        self._actions = deque(actions)

    def next(self) -> Action:
        """Use up one action."""
        with self._lock:
            return self._actions.popleft() if self._actions else Action.PASS

    @property
    def left(self) -> int:
        """How many actions have not been used yet."""
        with self._lock:
            return len(self._actions)


class Schedule:
    """What becomes of the frames of a host, whichever of its streams they belong to.

    It remembers how far it is: a second host with the same schedule, which stands for a new
    connection after a cut, goes on where the first one stopped.

    Args:
        to_program: for the frames that are written.
        from_program: for the frames that are read.
    """

    def __init__(
        self, to_program: Iterable[Action] = (), from_program: Iterable[Action] = ()
    ) -> None:
        self.to_program = Direction(to_program)
        self.from_program = Direction(from_program)


class _Frames:
    """Cuts bytes into frames and does to each what its direction says."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction
        self._buffer = bytearray()
        self._held: list[bytes] = []
        self._plain = False

    def take(self, data: bytes) -> tuple[list[bytes], bool]:
        """Take bytes as they come; -> what goes on, and whether the connection is cut after it."""
        self._buffer += data
        going: list[bytes] = []
        while (frame := self._next()) is not None:
            action = Action.PASS if self._plain else self._direction.next()
            if action is Action.CUT:
                return going, True
            going += self._held
            self._held = [frame] if action is Action.HOLD else []
            going += [frame] * {Action.DUPLICATE: 2, Action.PASS: 1}.get(action, 0)
        return going, False

    def end(self) -> list[bytes]:
        """What goes on when nothing more comes: what is held, and a frame that is not whole."""
        rest = [*self._held, bytes(self._buffer)]
        self._held = []
        self._buffer.clear()
        return [piece for piece in rest if piece]

    def _next(self) -> bytes | None:
        """The next frame; all there is where no action waits for a frame or it cannot be one."""
        if not self._buffer:
            return None
        if not self._plain and len(self._buffer) >= _HEADER:
            length = int.from_bytes(self._buffer[:_HEADER], "big")
            # no frame is longer, so these are no frames; whoever reads them has to say so
            self._plain = length > MAX_FRAME
            if not self._plain and len(self._buffer) >= _HEADER + length:
                return self._cut_off(_HEADER + length)
        if self._plain or (not self._direction.left and not self._held):
            # from here on it cannot be told where a frame begins, and need not be
            self._plain = True
            return self._cut_off(len(self._buffer))
        return None

    def _cut_off(self, count: int) -> bytes:
        frame = bytes(self._buffer[:count])
        del self._buffer[:count]
        return frame


class FaultyHost:
    """Any host, behind a connection that does what a schedule says.

    Args:
        inner: the host that does the work; it is closed with this one.
        schedule: what becomes of which frame.
    """

    def __init__(self, inner: Host, schedule: Schedule) -> None:
        self._inner, self._schedule = inner, schedule
        self.name: Literal["ssh", "local"] = inner.name
        self.address = inner.address
        self.fingerprint: str | None = inner.fingerprint
        self._is_cut = False

    @property
    def is_cut(self) -> bool:
        """Whether the connection was cut."""
        return self._is_cut

    def run(self, argv: Sequence[str], deadline: Deadline) -> FaultyStream:
        """Start a program; see :class:`pp4.transport.interface.Host`."""
        label = f"{self.address}: {' '.join(argv[:1])}"
        self.require_whole(label)
        return FaultyStream(self, self._inner.run(argv, deadline), self._schedule, label)

    def put(self, data: bytes, path: str, deadline: Deadline) -> None:
        """Make a file; see :class:`pp4.transport.interface.Host`."""
        self.require_whole(f"{self.address}: {path}")
        self._inner.put(data, path, deadline)

    def close(self) -> None:
        """Close the host behind it."""
        self._inner.close()

    def cut(self, where: str) -> WrongError:
        """Lose the connection, here and now; -> what to raise."""
        self._is_cut = True
        # the far side sees what it would see of a lost connection: the end of its streams
        self._inner.close()
        return self._lost(where)

    def require_whole(self, where: str) -> None:
        """Go on only while the connection is not cut.

        Raises:
            WrongError: ``CONNECTION_LOST``.
        """
        if self._is_cut:
            raise self._lost(where)

    def _lost(self, where: str) -> WrongError:
        return lost(where, "cut by the schedule")


class FaultyStream:
    """A stream whose frames get lost, late, doubled or cut; made by :class:`FaultyHost`."""

    def __init__(self, host: FaultyHost, inner: Stream, schedule: Schedule, label: str) -> None:
        self._host, self._inner, self._label = host, inner, label
        self._outgoing = _Frames(schedule.to_program)
        self._incoming = _Frames(schedule.from_program)
        self._writing = threading.Lock()
        self._ready = bytearray()
        self._cut_next = False

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write; a frame that is dropped or held counts as written."""
        where = f"{self._label}: input"
        with exclusively(self._writing, deadline, where):
            self._host.require_whole(where)
            # asked of the stream itself, whatever becomes of the frame: open, and in time?
            self._inner.write(b"", deadline)
            going, cut = self._outgoing.take(data)
            self._pass_on(going, deadline)
            if cut:
                raise self._host.cut(where)

    def read(self, deadline: Deadline) -> bytes:
        """Read; where all that came was dropped or is held, it waits for more."""
        where = f"{self._label}: output"
        while True:
            if not self._ready and self._cut_next:
                raise self._host.cut(where)
            self._host.require_whole(where)
            if self._ready:
                deadline.require(where)
                data = bytes(self._ready)
                self._ready.clear()
                return data
            came = self._inner.read(deadline)
            if not came:
                return b"".join(self._incoming.end())
            going, self._cut_next = self._incoming.take(came)
            self._ready += b"".join(going)

    def last_lines(self, count: int = 10) -> tuple[str, ...]:
        """The last lines of its standard error."""
        return self._inner.last_lines(count)

    def finish(self, deadline: Deadline) -> int:
        """End its input, which lets go what is held, and wait for its status."""
        self._host.require_whole(f"{self._label}: end")
        self._pass_on(self._outgoing.end(), deadline)
        return self._inner.finish(deadline)

    def close(self) -> None:
        """Let go."""
        self._inner.close()

    def _pass_on(self, pieces: list[bytes], deadline: Deadline) -> None:
        for piece in pieces:
            self._inner.write(piece, deadline)
