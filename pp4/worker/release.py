"""When a reply may leave: both ranks or nobody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pp4.errors import Code
from pp4.kernels.faults import Fault
from pp4.wire.facts import Grid

_GRAVEST = max(Fault)


class Told(Protocol):
    """What a rank told of a block: words, stamps, and whatever stands for its outputs."""

    @property
    def rank(self) -> int:
        """0 or 1."""

    @property
    def own_error(self) -> int:
        """The fault that it found, a :class:`Fault`."""

    @property
    def peer_error(self) -> int:
        """The fault that its peer told it of."""

    @property
    def errors(self) -> Grid:
        """Error words of rows and positions."""

    @property
    def stamps(self) -> Grid:
        """Stamps of rows and positions."""

    @property
    def digest(self) -> str | bytes:
        """Equal where the outputs are."""

    @property
    def clean(self) -> bool:
        """No word and no row names a fault."""


@dataclass(frozen=True, slots=True)
class Release:
    """What becomes of a reply.

    Attributes:
        released: whether it leaves.
        why: what kept it, None where it leaves.
    """

    released: bool
    why: Code | None


Rule = Callable[[Sequence[Told], Grid], Release]


def fault_of(block: Told) -> Fault:
    """The gravest fault that any word of a block names."""
    if block.clean:
        return Fault.NONE
    rows = [code for row in block.errors for code in row if 0 <= code <= _GRAVEST]
    return Fault(max([block.own_error, block.peer_error, *rows]))


def both_ranks(blocks: Sequence[Told], stamps: Grid) -> Release:
    """The product's rule.

    A reply leaves only if both ranks reported, with clean words, the stamps that are expected and
    equal digests.  One rank can time out after the other finished clean, so one word proves
    nothing; and no error word proves no completion, so the stamps are demanded too.

    Args:
        blocks: what the ranks reported; fewer than two if one died.
        stamps: expected stamp of every row and position.
    """
    faults = [fault_of(block) for block in blocks]
    if any(faults):
        return Release(False, max(faults).code)
    if sorted(block.rank for block in blocks) != [0, 1]:
        return Release(False, Code.RANK_DIED)
    # a row's word that is no fault's number was never written: the row did not finish either
    if any(block.stamps != stamps or not block.clean for block in blocks):
        return Release(False, Code.INCOMPLETE)
    if blocks[0].digest != blocks[1].digest:
        return Release(False, Code.RANKS_DIFFER)
    return Release(True, None)
