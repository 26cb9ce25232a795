"""Why a row of a batch was not verified, as words on the device; lower ones take precedence."""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from pp4.kernels import dyadic24
from pp4.verifier.batch import Batch
from pp4.verifier.units import Mode


class Flaw(IntEnum):
    """Up to ``TOKEN`` they are checks of :func:`pp4.verifier.proposal.validated` as well."""

    NONE = 0
    MODE = 1
    COUNTER = 2
    """A position or a round that does not fit 32 bits."""
    IDS = 3
    PADDING = 4
    DISTINCT = 5
    TICKETS = 6
    TOKEN = 7
    TARGET = 8
    """Probabilities that are none, or that do not sum to 1."""
    RESIDUAL = 9
    """Nothing left after a rejection, which exact arithmetic excludes: an internal error."""


def flaws(batch: Batch, vocabulary: int) -> Tensor:
    """Return the first flaw of each row's proposal; nothing is read back to the host.

    Args:
        batch: B rows of depth n.
        vocabulary: of the target.

    Returns:
        ``[B]`` int32, a :class:`Flaw` up to ``TOKEN``; an inactive row has none.
    """
    ids, tickets, tokens, mode = batch.ids, batch.tickets, batch.tokens, batch.mode
    depth, listed, sampled = tokens.shape[1], ids >= 0, mode == Mode.SAMPLED
    ordered = ids.sort(dim=2).values
    twice = (ordered[:, :, 1:] == ordered[:, :, :-1]) & (ordered[:, :, 1:] >= 0)
    whole = tickets.sum(dim=2, dtype=torch.int64) == dyadic24.TICKETS
    ranged = ((tickets >= 0) & (tickets <= dyadic24.TICKETS)).all(dim=2)
    owned = ((ids == tokens[:, :, None]) & (tickets > 0)).any(dim=2)
    alone = (tokens >= 0) & (tokens < vocabulary) & (~listed[:, :, 0] | (ids[:, :, 0] == tokens))
    shared = torch.where(sampled[:, None], whole & ranged, (tickets == 0).all(dim=2))
    found = {
        Flaw.MODE: (mode < int(Mode.INACTIVE)) | (mode > int(Mode.DELTA)),
        Flaw.COUNTER: _outside(batch.position, (1 << 32) - depth) | _outside(batch.round, 1 << 32),
        Flaw.IDS: ((ids < -1) | (ids >= vocabulary)).flatten(1).any(dim=1),
        Flaw.PADDING: (listed[:, :, 1:] & ~listed[:, :, :-1]).flatten(1).any(dim=1)
        | (~listed & (tickets != 0)).flatten(1).any(dim=1),
        Flaw.DISTINCT: twice.flatten(1).any(dim=1),
        Flaw.TICKETS: ~shared.all(dim=1),
        Flaw.TOKEN: ~torch.where(sampled[:, None], owned, alone).all(dim=1),
    }
    first = torch.zeros_like(mode)
    for flaw, bad in reversed(found.items()):
        first = torch.where(bad, int(flaw), first)
    return torch.where(mode == Mode.INACTIVE, int(Flaw.NONE), first)


def _outside(words: Tensor, end: int) -> Tensor:
    return (words < 0) | (words >= end)
