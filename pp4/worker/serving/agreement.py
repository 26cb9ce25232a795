"""What both ranks say alike; what both left in the arena, in the words of the rule of release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pp4.drafter import packing
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.kernels.link import told_fault
from pp4.wire.facts import Grid, read, refusal_of
from pp4.worker.serving.arena import Arena
from pp4.worker.serving.verbs import Appended, Grown

Rows = np.ndarray[Any, Any]
HARMLESS: Final = frozenset({Code.CACHE_FULL, Code.BAD_INPUT})
"""What ranks may refuse a request alike, and serve on."""


@dataclass(frozen=True, slots=True)
class Left:
    """One rank's outputs of a batch; see :class:`pp4.worker.release.Told`.

    Attributes:
        rank: 0 or 1.
        own_error: the fault that it found.
        peer_error: the fault that its peer told it of.
        errors: error words of rows and positions.
        stamps: stamps of rows and positions.
        digest: all of its rows, compared as they are.
        clean: whether no word and no row names a fault.
    """

    rank: int
    own_error: int
    peer_error: int
    errors: Grid
    stamps: Grid
    digest: bytes
    clean: bool


def left_by(arena: Arena, rank: int, batch: int, n_out: int) -> tuple[Rows, Left]:
    """Read one rank's outputs.

    Args:
        arena: where they lie.
        rank: whose they are.
        batch: rows of the captured shape.
        n_out: positions that were asked for.

    Returns:
        ``[batch]`` rows of :func:`pp4.drafter.packing.row_type`, over the arena's own bytes; and
        what the rule asks of them.
    """
    whole = arena.output_bytes(rank, batch)
    rows = np.frombuffer(whole, packing.row_type(arena.sizes.block), count=batch)
    own, *told = whole[rows.nbytes :].view(np.int64).tolist()
    peer, errors = told_fault(told), rows["error"][:, :n_out]
    left = Left(
        rank=rank,
        own_error=own,
        peer_error=peer,
        errors=_grid(errors),
        stamps=_grid(rows["stamp"][:, :n_out]),
        digest=rows.tobytes(),
        clean=not (own or peer or errors.any()),
    )
    return rows, left


def grown_alike(found: Sequence[Mapping[str, Any]], parts: int) -> list[int | RefusedError]:
    """What became of every part of an append; what its refusals say is in the words of rank 0.

    Args:
        found: what each rank says, see :class:`pp4.worker.serving.verbs.Appended`.
        parts: how many there were.

    Raises:
        WrongError: ``RANKS_DIFFER``, a length or a refusal is not the same on both; any other
            code, which both refuse and nobody may go on after.
    """
    first, second = (read(Appended, one).parts for one in found)
    if not len(first) == len(second) == parts:
        raise _differ(f"{parts} parts", f"{len(first)}, {len(second)}")
    return [_alike(*both) for both in zip(first, second, strict=True)]


def _alike(first: Grown, second: Grown) -> int | RefusedError:
    said = [_said(one) for one in (first, second)]
    if said[0] != said[1]:
        raise _differ("the same on both ranks", f"{said[0]}, {said[1]}")
    if first.length is not None:
        return first.length
    refusal = refusal_of(first.refusal)
    if refusal.code not in HARMLESS:
        raise WrongError(refusal)
    return RefusedError(refusal)


def _said(one: Grown) -> str:
    """A length, or the code of a refusal; of one that cannot be read that of its reader."""
    return f"{refusal_of(one.refusal).code}" if one.length is None else f"{one.length}"


def _differ(expected: str, found: str) -> WrongError:
    return WrongError(Refusal(Code.RANKS_DIFFER, "append", expected, found))


def _grid(array: Rows) -> Grid:
    return tuple(map(tuple, array.tolist()))
