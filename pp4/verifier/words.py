"""Random words over whole batches, and what is multiplied with them: int64 that never overflows.

A word has 64 bits and no int64 holds it, so it goes in two halves, and the other factor in limbs of
24 bits: every product has at most 56.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pp4.kernels.philox import DEFINITION_WORD
from pp4.kernels.purposes import ACCEPT, BONUS, RESIDUAL
from pp4.kernels.vectorised_rows import philox4x32_10
from pp4.verifier.batch import Batch
from pp4.verifier.units import ACCEPT_BITS, WORD_BITS

_HALF = 32
_MASK = (1 << _HALF) - 1
_LIMB = 24
_LIMB_MASK = (1 << _LIMB) - 1


@dataclass(frozen=True, slots=True)
class Word:
    """64-bit words in two halves, int64 of one shape, each below 2**32."""

    high: Tensor
    low: Tensor


@dataclass(frozen=True, slots=True)
class Words:
    """All words that B proposals of depth n may need.

    Attributes:
        accept: ``[B, n]``, the ACCEPT stream by position.
        last: ``[B, n + 1]``, the RESIDUAL stream by position, and the BONUS stream behind it.
    """

    accept: Word
    last: Word


def words_of(batch: Batch) -> Words:
    """Return the words of each request's own streams; see :meth:`Proposal.word`."""
    depth = batch.tokens.shape[1]
    place = torch.arange(depth + 1, dtype=torch.int64, device=batch.key.device)
    last = torch.where(place < depth, int(RESIDUAL), int(BONUS))
    accept = torch.full_like(place[:depth], int(ACCEPT))
    return Words(_stream(batch, place[:depth], accept), _stream(batch, place, last))


def _stream(batch: Batch, place: Tensor, purpose: Tensor) -> Word:
    position = batch.position[:, None] + place
    round, key = (words[:, None].expand_as(position) for words in (batch.round, batch.key))
    definition = torch.full_like(position, DEFINITION_WORD)
    counter = (position & _MASK, round & _MASK, purpose.expand_as(position), definition)
    high, low, _, _ = philox4x32_10(counter, (key & _MASK, (key >> _HALF) & _MASK))
    return Word(high, low)


def accepts(u: Word, *, weight: Tensor, tickets: Tensor) -> Tensor:
    """Whether tokens are accepted; see :func:`pp4.verifier.reference.accepts`.

    ``u * t < P << 40`` is ``(u * t) >> 40 < P``; the product of 88 bits goes in two halves of 56.

    Args:
        u: words.
        weight: int64 of their shape, 0 to 2**48.
        tickets: int64 of their shape, 0 to 2**24.

    Returns:
        Bool of their shape.
    """
    scaled = (u.high * tickets + ((u.low * tickets) >> _HALF)) >> (ACCEPT_BITS - _HALF)
    return scaled < weight


def share(u: Word, total: Tensor) -> Tensor:
    """Return ``floor(u * total / 2**64)``; the product of 112 bits goes in four of 56.

    Args:
        u: words.
        total: int64 of their shape, 0 to 2**48.

    Returns:
        int64 of their shape, below ``total`` where that is above 0.
    """
    high, low = total >> _LIMB, total & _LIMB_MASK
    carried = (u.low * high + ((u.low * low) >> _LIMB)) >> (_HALF - _LIMB)
    carried = (u.high * low + carried) >> _LIMB
    return (u.high * high + carried) >> (WORD_BITS - _HALF - _LIMB)
