"""The exact verifier over whole batches, on the device where the tensors lie.

:mod:`pp4.verifier.reference` says what is right, one proposal at a time; this module gives the same
tokens, and its tests compare both by ``==``.  Floats are seen once, where probabilities become
integers.  No step leaves int64: products are split, and sums stay below 2**63.  Nothing is read
back to the host, no shape depends on a value, and no loop is over rows.

On a GPU the kernels of :mod:`pp4.verifier.fused` do it; torch's operators are what these have to
equal, and what runs elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.verifier.batch import Batch
from pp4.verifier.flaws import Flaw, flaws
from pp4.verifier.units import (
    MAX_VOCABULARY,
    SLACK,
    TICKET_WEIGHT,
    TOTAL,
    UNIT_BITS,
    Mode,
)
from pp4.verifier.words import Word, Words, accepts, share, words_of

_COARSE = 18
"""Bits that a sum leaves out when it only asks whether the exact sum would wrap."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What B rows emit; per row what :class:`pp4.verifier.reference.Verdict` means.

    Which words were used follows: of ACCEPT the first ``min(accepted + 1, n)``, then the one of
    ``last`` at ``accepted``; none of a GREEDY_T0 row.

    Attributes:
        accepted: ``[B]`` int32, 0 to n.
        tokens: ``[B, n + 1]`` int32: the accepted ones, one more, and -1 behind it.
        error: ``[B]`` int32, a :class:`Flaw`.  A row with one, like an inactive one, accepts
            nothing and has -1 throughout.
    """

    accepted: Tensor
    tokens: Tensor
    error: Tensor


@dataclass(frozen=True, slots=True)
class _Column:
    """What is known of B target distributions, without keeping their weights.

    Attributes:
        first: ``[B]`` int64, argmax of the floors, lower id on ties.
        rest: ``[B]`` int64, what goes to the first.
        sound: ``[B]`` bool.
    """

    first: Tensor
    rest: Tensor
    sound: Tensor


def _floors(p: Tensor) -> Tensor:
    """``floor(p * 2**48)`` int64; something from 0 to 2**48 where p is no probability."""
    return p.clamp(0, 1).nan_to_num_(nan=0.0).mul_(float(TOTAL)).to(torch.int64)


def _column(p: Tensor, weights: Tensor) -> _Column:
    """Look at B distributions ``[B, V]`` and their floors, which are left as they are."""
    vocabulary = p.shape[1]
    total = weights.sum(dim=1)
    # V * 2**48 may wrap around to a sum that looks right; this sum cannot
    coarse = (weights >> _COARSE).sum(dim=1)
    top = weights.amax(dim=1)
    ids = torch.arange(vocabulary, dtype=torch.int32, device=p.device)
    first = torch.where(weights == top[:, None], ids, vocabulary).amin(dim=1).to(torch.int64)
    rest = TOTAL - total
    # a NaN is the least and the largest of its row, and compares false
    least, most = torch.aminmax(p, dim=1)
    sound = (least >= 0) & (most <= 1) & (coarse <= 1 << (UNIT_BITS + 1 - _COARSE))
    return _Column(first, rest, sound & (rest.abs() <= SLACK) & (top + rest >= 0))


def _taken(batch: Batch, mode: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and what the residual takes off their weights, int64 ``[B, n, 32]``; by mode."""
    sampled = (mode == Mode.SAMPLED)[:, None, None]
    ids = torch.where(sampled, batch.ids, 0).clamp(min=0).to(torch.int64)
    amounts = torch.where(sampled, batch.tickets, 0).to(torch.int64) * TICKET_WEIGHT
    # a delta takes everything off its token, which stands in the first place
    delta = mode == Mode.DELTA
    ids[:, :, 0] = torch.where(delta[:, None], batch.tokens.to(torch.int64), ids[:, :, 0])
    amounts[:, :, 0] = torch.where(delta[:, None], TOTAL, amounts[:, :, 0])
    return ids, amounts


def _residual(weights: Tensor, ids: Tensor, amounts: Tensor) -> Tensor:
    """``max(P - Q, 0)`` ``[B, V]``, in place of ``weights``; Q is zero for a bonus."""
    return weights.scatter_add_(1, ids, -amounts).clamp_(min=0)


def _drawn(weights: Tensor, u: Word) -> tuple[Tensor, Tensor]:
    """The ids ``[B]`` that words draw, and the sums ``[B]`` of the weights ``[B, V]``."""
    running = weights.cumsum(dim=1)
    total = running[:, -1]
    place = share(u, total)
    # a row of zeros draws V, which is never emitted
    return torch.searchsorted(running, place[:, None], right=True)[:, 0], total


def verify(target: Tensor, batch: Batch, words: Words | None = None) -> Verdicts:
    """Verify B proposals of depth n; per row as :func:`pp4.verifier.reference.verify`.

    Args:
        target: ``[B, n + 1, V]`` float32 or float64 probabilities as for
            :func:`pp4.verifier.reference.quantised`, V up to 2**18; what an inactive row has there
            means nothing.
        batch: the proposals, on the same device.
        words: where words come from; the requests' own streams unless a test says otherwise.

    Returns:
        The verdicts.

    Raises:
        BadInputError: a dtype or shape does not fit.
    """
    count, depth = batch.check()
    _require_target(target, count, depth)
    if target.is_cuda:
        # Triton is needed here alone, and there is none for every machine that has torch
        from pp4.verifier import fused

        if fused.takes(target, depth):
            return fused.verify(target, batch, words)
    return by_operators(target, batch, words)


def by_operators(target: Tensor, batch: Batch, words: Words | None = None) -> Verdicts:
    """Verify by torch's operators alone, on any device; arguments as for :func:`verify`, checked.

    Besides ``target``, about 40 bytes are alive for each of B * V.
    """
    depth, vocabulary = batch.tokens.shape[1], target.shape[2]
    error = flaws(batch, vocabulary)
    # a row with a flaw is computed as an inactive one: its ids may not be looked up
    mode = torch.where(error == 0, batch.mode, int(Mode.INACTIVE))
    words = words or words_of(batch)

    first, rest, proposed, sound = _scanned(target, batch.tokens)
    accepted = _accepted(batch, mode, words.accept, proposed, first)
    stop = accepted[:, None]
    last, lost = _last(target, batch, mode, words.last, stop, (first, rest))
    active = mode != Mode.INACTIVE
    greedy = mode == Mode.GREEDY_T0
    last = torch.where(greedy, first.gather(1, stop)[:, 0], last)
    error = torch.where(active & ~sound, int(Flaw.TARGET), error)
    error = torch.where(active & sound & lost, int(Flaw.RESIDUAL), error)
    emits = active & (error == 0)

    place = torch.arange(depth + 1, device=target.device)
    padded = torch.nn.functional.pad(batch.tokens, (0, 1))
    tokens = torch.where(place < stop, padded, -1)
    tokens = torch.where(place == stop, last[:, None].to(torch.int32), tokens)
    return Verdicts(
        accepted=torch.where(emits, accepted, 0).to(torch.int32),
        tokens=torch.where(emits[:, None], tokens, -1),
        error=error,
    )


def _require_target(target: Tensor, count: int, depth: int) -> None:
    shape = tuple(target.shape)
    fits = len(shape) == 3 and shape[:2] == (count, depth + 1) and 1 <= shape[2] <= MAX_VOCABULARY
    if target.dtype not in (torch.float32, torch.float64) or not fits:
        raise BadInputError.of(
            "target",
            f"float32 or float64 [{count}, {depth + 1}, 1 to {MAX_VOCABULARY}]",
            f"{target.dtype} {list(shape)}",
        )


def _scanned(target: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First and rest ``[B, n + 1]``, weights of the proposed tokens ``[B, n]``, soundness ``[B]``.

    One position at a time, so that the floors of one are alive.
    """
    columns, proposed = [], []
    for index in range(target.shape[1]):
        weights = _floors(target[:, index])
        column = _column(target[:, index], weights)
        columns.append(column)
        if index < tokens.shape[1]:
            # a flawed row may propose anything; what is looked up for it is not used
            token = tokens[:, index].to(torch.int64).clamp(0, target.shape[2] - 1)
            weight = weights.gather(1, token[:, None])[:, 0]
            proposed.append(weight + torch.where(token == column.first, column.rest, 0))
    return (
        torch.stack([column.first for column in columns], dim=1),
        torch.stack([column.rest for column in columns], dim=1),
        torch.stack(proposed, dim=1),
        torch.stack([column.sound for column in columns], dim=1).all(dim=1),
    )


def _accepted(batch: Batch, mode: Tensor, u: Word, proposed: Tensor, first: Tensor) -> Tensor:
    """How many tokens each row accepts, int64 ``[B]``: up to its first rejection."""
    own = torch.where(batch.ids == batch.tokens[:, :, None], batch.tickets, 0)
    tickets = own.sum(dim=2, dtype=torch.int64)
    tickets = torch.where((mode == Mode.DELTA)[:, None], TOTAL // TICKET_WEIGHT, tickets)
    drawn = accepts(u, weight=proposed, tickets=tickets)
    equal = batch.tokens == first[:, :-1]
    good = torch.where((mode == Mode.GREEDY_T0)[:, None], equal, drawn)
    good = good & (mode != Mode.INACTIVE)[:, None]
    return good.to(torch.int64).cumprod(dim=1).sum(dim=1)


def _last(
    target: Tensor,
    batch: Batch,
    mode: Tensor,
    u: Word,
    stop: Tensor,
    largest: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """The token after the accepted ones ``[B]``, and whether nothing was left to draw from."""
    count, depth = batch.tokens.shape
    across = stop[:, :, None].expand(count, 1, target.shape[2])
    weights = _floors(target.gather(1, across)[:, 0])
    first, rest = (values.gather(1, stop) for values in largest)
    weights.scatter_add_(1, first, rest)
    ids, amounts = _taken(batch, mode)
    index = stop.clamp(max=depth - 1)[:, :, None].expand(count, 1, ids.shape[2])
    rejected = stop < depth
    amounts = torch.where(rejected, amounts.gather(1, index)[:, 0], 0)
    weights = _residual(weights, ids.gather(1, index)[:, 0], amounts)
    token, total = _drawn(weights, Word(u.high.gather(1, stop)[:, 0], u.low.gather(1, stop)[:, 0]))
    return token, total <= 0
