"""What both ranks left in the arena, in the words of the rule of release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pp4.drafter import packing
from pp4.kernels.link import told_fault
from pp4.wire.facts import Grid
from pp4.worker.serving.arena import Arena

Rows = np.ndarray[Any, Any]


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


def _grid(array: Rows) -> Grid:
    return tuple(map(tuple, array.tolist()))
