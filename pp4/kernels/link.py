"""What joins two ranks: a workspace of words that the peer writes, and this rank's own state.

One interface for every way to reach a peer.  :class:`SoloLink` stands in where one launch holds
both shards; :class:`SharedMemoryLink` maps files that two processes of one machine share.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from pp4.errors import BadInputError, Code, Refusal, RefusedError, reason_of
from pp4.kernels.faults import Fault
from pp4.kernels.layout import ERROR_WORDS, SLOTS

POISON = -0x5A5A5A5A5A5A5A5B
"""Fills a new workspace: negative, so it is neither a candidate nor an epoch."""
START_BELOW = 1 << 20
EPOCH_LIMIT = (1 << 62) - 1


def workspace_words(rows: int) -> int:
    """int64 words of a workspace for ``rows`` rows; the layout is in ``device/exchange.py``."""
    return rows * (SLOTS * 32 + SLOTS + 1) + ERROR_WORDS


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a wait may last and how far epochs may run.

    Attributes:
        first_ns: budget of the first exchange of a block on a GPU, nanoseconds.
        next_ns: budget of the later ones.
        first_polls: most polls of the first exchange; the only bound in the interpreter.
        next_polls: most polls of the later ones.
        epoch_limit: the last epoch that may be used.
    """

    first_ns: int = 2_000_000_000
    next_ns: int = 20_000_000
    first_polls: int = 1 << 40
    next_polls: int = 1 << 40
    epoch_limit: int = EPOCH_LIMIT

    def __post_init__(self) -> None:
        for name in ("first_ns", "next_ns", "first_polls", "next_polls"):
            if not 0 < getattr(self, name) < 1 << 62:
                raise BadInputError.of(name, "a positive 62-bit bound", str(getattr(self, name)))
        if not 0 < self.epoch_limit <= EPOCH_LIMIT:
            raise BadInputError.of("epoch_limit", f"1 to {EPOCH_LIMIT}", str(self.epoch_limit))


@dataclass(frozen=True, slots=True)
class Words:
    """Error words and epochs of a rank as the host reads them after a launch."""

    own: Fault
    peer: Fault
    epochs: tuple[int, ...]

    @property
    def clean(self) -> bool:
        """Neither word names a fault."""
        return self.own is Fault.NONE and self.peer is Fault.NONE


def told_fault(words: Sequence[int]) -> Fault:
    """The gravest fault that a peer told of.

    Words that are set and name no fault are PROTOCOL: whoever wrote them is not our peer.

    Args:
        words: the ERROR_WORDS words that the peer writes.
    """
    told = [index for index, word in enumerate(words) if word]
    named = [Fault(index) for index in told if 0 < index <= max(Fault)]
    return max(named, default=Fault.PROTOCOL if told else Fault.NONE)


class Link(Protocol):
    """What a launch needs to know of the peer."""

    @property
    def shards(self) -> int:
        """Shards that one launch here holds: 1 on a pair, 2 solo."""

    @property
    def rank(self) -> int:
        """0 or 1; 0 solo."""

    @property
    def rows(self) -> int:
        """Rows that the workspace has room for."""

    @property
    def own_address(self) -> int:
        """Address of the words that the peer writes."""

    @property
    def peer_address(self) -> int:
        """Address of the peer's words as this process maps them; 0 solo."""

    @property
    def epochs(self) -> torch.Tensor:
        """``[rows]`` int64, last epoch of each row."""

    @property
    def own_error(self) -> torch.Tensor:
        """``[1]`` int64, this rank's own fault."""

    @property
    def told(self) -> torch.Tensor:
        """``[ERROR_WORDS]`` int64, what the peer wrote of its faults; ends with :meth:`close`."""

    @property
    def bounds(self) -> Bounds:
        """Bounds of the waits."""

    def words(self) -> Words:
        """Read the words back; the device must be idle."""

    def close(self) -> None:
        """Unmap; no launch may follow or be in flight."""


def check_link(rows: int, start: int) -> None:
    """Refuse rows or a start epoch that no link can have."""
    if rows < 1:
        raise BadInputError.of("rows", "at least one row", str(rows))
    if not 0 < start < START_BELOW:
        raise BadInputError.of("start epoch", f"1 to {START_BELOW - 1}", str(start))


def _fill(words: torch.Tensor, rows: int, start: int) -> None:
    """Poison the inbox, set flags and acknowledgements to the start, clear the error words."""
    inbox = rows * SLOTS * 32
    words[:inbox] = POISON
    words[inbox:-ERROR_WORDS] = start
    words[-ERROR_WORDS:] = 0


class LinkState:
    """The part that every link has: own words, own epochs, own error.

    Args:
        words: ``[workspace_words(rows)]`` int64 that the peer can write.
        rows: rows of the largest batch.
        start: epoch before the first.
        bounds: bounds of the waits.
    """

    def __init__(self, words: torch.Tensor, rows: int, start: int, bounds: Bounds) -> None:
        _fill(words, rows, start)
        self._words = words
        self.rows = rows
        self.bounds = bounds
        self.epochs = torch.full((rows,), start, dtype=torch.int64, device=words.device)
        self.own_error = torch.zeros(1, dtype=torch.int64, device=words.device)

    def recount(self, start: int) -> None:
        """A control: count from another epoch, as after a reset on this side alone."""
        _fill(self._words, self.rows, start)
        self.epochs.fill_(start)
        # read back, so that it is done when this returns
        self.epochs.tolist()

    @property
    def own_address(self) -> int:
        """Address of the own words."""
        return self._words.data_ptr()

    @property
    def told(self) -> torch.Tensor:
        """``[ERROR_WORDS]`` int64, what the peer wrote of its faults; a view of the own words."""
        return self._words[-ERROR_WORDS:]

    def words(self) -> Words:
        """Read the words back; the device must be idle."""
        return Words(
            own=Fault(int(self.own_error.item())),
            peer=told_fault(self._words[-ERROR_WORDS:].tolist()),
            epochs=tuple(int(epoch) for epoch in self.epochs.tolist()),
        )


class SoloLink(LinkState):
    """The stand-in: nobody else writes the workspace.

    Args:
        rows: rows of the largest batch.
        start: epoch before the first.
        bounds: only ``epoch_limit`` matters.
        device: where the state lives.
    """

    shards = 2
    rank = 0
    peer_address = 0

    def __init__(
        self,
        rows: int,
        *,
        start: int = 1,
        bounds: Bounds | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        check_link(rows, start)
        words = torch.empty(workspace_words(rows), dtype=torch.int64, device=device)
        super().__init__(words, rows, start, bounds or Bounds())

    def connect(self) -> None:
        """There is nobody to reach."""

    def close(self) -> None:
        """Nothing is mapped."""


def _new_map(path: Path, size: int) -> mmap.mmap:
    """Map a new file of which every byte is reserved: a hole would be a SIGBUS on a full disk."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _no_workspace(path, size, error) from error
    try:
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except OSError as error:
        path.unlink()
        raise _no_workspace(path, size, error) from error
    finally:
        os.close(descriptor)


def _no_workspace(path: Path, size: int, error: OSError) -> RefusedError:
    return RefusedError(
        Refusal(Code.UNWRITABLE, str(path), f"a new workspace of {size} bytes", reason_of(error))
    )


class SharedMemoryLink(LinkState):
    """Two processes of one machine; each rank's workspace is a file that both map.

    The file of this rank is created here and must not exist; the peer's is mapped by
    :meth:`connect`, after a host barrier has shown that the peer made it.

    Args:
        own: path of this rank's workspace.
        peer: path of the peer's.
        rank: 0 or 1.
        rows: rows of the largest batch, equal on both ranks.
        start: epoch before the first, equal on both ranks.
        bounds: bounds of the waits.

    Raises:
        RefusedError: the own file exists or cannot be made.
        BadInputError: an argument is out of range.
    """

    shards = 1

    def __init__(
        self, own: Path, peer: Path, *, rank: int, rows: int, start: int, bounds: Bounds
    ) -> None:
        check_link(rows, start)
        if rank not in (0, 1):
            raise BadInputError.of("rank", "0 or 1", str(rank))
        self.rank = rank
        self._peer_path = peer
        self._own_path = own
        self._size = workspace_words(rows) * 8
        self._peer_address = 0
        words = torch.frombuffer(_new_map(own, self._size), dtype=torch.int64)
        super().__init__(words, rows, start, bounds)

    def connect(self) -> None:
        """Map the peer's workspace.

        Raises:
            RefusedError: the peer made none, or one of another size.
        """
        try:
            with open(self._peer_path, "r+b") as file:
                size = os.fstat(file.fileno()).st_size
                if size != self._size:
                    raise BadInputError.of("peer workspace", f"{self._size} bytes", str(size))
                mapped = mmap.mmap(file.fileno(), self._size)
        except OSError as error:
            raise RefusedError(
                Refusal(
                    Code.UNREADABLE, str(self._peer_path), "the peer's workspace", reason_of(error)
                )
            ) from error
        self._peer_words = torch.frombuffer(mapped, dtype=torch.int64)
        self._peer_address = self._peer_words.data_ptr()

    @property
    def peer_address(self) -> int:
        """Address of the peer's words; refuses before :meth:`connect`."""
        if not self._peer_address:
            raise RefusedError(
                Refusal(Code.UNPRIMED, "link", "a connected peer", "connect() was not called")
            )
        return self._peer_address

    def close(self) -> None:
        """Let go of both maps and remove the own file; a map ends with the last tensor over it."""
        self._peer_address = 0
        self._words = self._words.new_empty(0)
        self._peer_words = self._words
        self._own_path.unlink(missing_ok=True)
