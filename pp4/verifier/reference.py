"""The exact verifier in Python integers: what is right, one proposal at a time.

Every decision compares integers.  Floats are seen once, where a target's probabilities become
weights that sum to exactly 2**48; from there on those weights are the target's distribution.

A word may also be a ``Fraction`` in [0, 2**64): the tests prove with real words that the output is
exactly that distribution.  With words of 64 bits each probability moves by at most 2**-64 a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from pp4.errors import BadInputError, Code, Refusal, WrongError
from pp4.kernels.purposes import ACCEPT, BONUS, RESIDUAL, Purpose
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import (
    ACCEPT_BITS,
    MAX_VOCABULARY,
    SLACK,
    TICKET_WEIGHT,
    TOTAL,
    UNIT_BITS,
    WORD_BITS,
    Mode,
)

Word = int | Fraction
"""0 <= word < 2**64."""
Words = Callable[[int, Purpose], Word]
"""Absolute position and purpose -> the word that decides there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target distribution in integers.

    Attributes:
        weights: ``[V]`` integers >= 0 in units of 2**-48 that sum to 2**48.
        first: the argmax, the lower id on ties.  Kept apart, since what rounding left over goes to
            it and may be negative.
    """

    weights: tuple[int, ...]
    first: int

    @classmethod
    def of(cls, weights: Sequence[int]) -> Target:
        """Take weights as they are.

        Raises:
            BadInputError: none or too many, a negative one, or another sum.
        """
        taken = tuple(int(weight) for weight in weights)
        _require_vocabulary(len(taken))
        if min(taken) < 0 or sum(taken) != TOTAL:
            raise BadInputError.of(
                "target weights",
                f"integers >= 0 that sum to 2**{UNIT_BITS}",
                f"sum {sum(taken)}, least {min(taken)}",
            )
        return cls(taken, taken.index(max(taken)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a step emits.

    Attributes:
        accepted: how many proposed tokens were accepted, 0 to the depth.
        tokens: those, and one more: from the residual after a rejection, else the bonus.
        used: position and purpose of each word that was used, in order; none at T = 0.
    """

    accepted: int
    tokens: tuple[int, ...]
    used: tuple[tuple[int, Purpose], ...]


def _require_vocabulary(count: int) -> None:
    if not 1 <= count <= MAX_VOCABULARY:
        raise BadInputError.of("target", f"1 to {MAX_VOCABULARY} columns", f"{count}")


def quantised(probabilities: npt.ArrayLike) -> Target:
    """Turn probabilities into weights, once: ``floor(p * 2**48)``, what is left to the largest.

    The largest is that of the floors, the lower id on ties.  Scaling by a power of two is exact, so
    nothing rounds but the floor.  Of a p that sums to 1 no weight but the largest is more than one
    unit from ``p * 2**48``, and that one is at most V units from it; what p itself misses of a sum
    of 1 goes to the largest as well.

    Args:
        probabilities: ``[V]`` float32 or float64, fully processed (temperature, top-k, top-p,
            penalties, grammar), 0 to 1, sum within 2**-14 of 1; 1 <= V <= 2**18.

    Raises:
        BadInputError: another dtype or shape, a value that is no probability, or another sum.
    """
    p = np.asarray(probabilities)
    if p.dtype not in (np.float32, np.float64) or p.ndim != 1:
        raise BadInputError.of("target", "[V] float32 or float64", f"{p.dtype} {list(p.shape)}")
    _require_vocabulary(len(p))
    bad = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if bad.size:
        raise BadInputError.of(f"target[{bad[0]}]", "a probability", repr(float(p[bad[0]])))
    floors: list[int] = (p * p.dtype.type(TOTAL)).astype(np.int64).tolist()
    rest = TOTAL - sum(floors)
    first = floors.index(max(floors))
    if abs(rest) > SLACK or floors[first] + rest < 0:
        raise BadInputError.of(
            "target", "probabilities that sum to 1 within 2**-14", f"a sum of 1 - {rest / TOTAL}"
        )
    floors[first] += rest
    return Target(tuple(floors), first)


def accepts(u: Word, *, weight: int, tickets: int) -> bool:
    """Whether a sampled token is accepted: ``u / 2**64 < P / Q``, strictly, without a division.

    Args:
        u: the word of the ACCEPT stream.
        weight: the target's, of the token.
        tickets: the drafter's, of the token, above 0.
    """
    return u * tickets < weight << ACCEPT_BITS


def drawn(weights: Sequence[int], u: Word) -> int:
    """Return the id that a word draws: the first whose running sum exceeds floor(u * R / 2**64).

    Args:
        weights: ``[V]`` integers >= 0; R is their sum.
        u: the word of the RESIDUAL or BONUS stream.

    Raises:
        WrongError: all weights are zero (INTERNAL): a rejection without a residual cannot be.
    """
    total = sum(weights)
    place = int(u * total // (1 << WORD_BITS))
    for index, running in enumerate(accumulate(weights)):
        if running > place:
            return index
    raise WrongError(
        Refusal(Code.INTERNAL, "residual", "a weight above 0 after a rejection", f"sum {total}")
    )


def residual(target: Target, proposal: Proposal, index: int) -> list[int]:
    """Return ``max(P - Q, 0)`` over the full vocabulary; of DELTA, P without the token.

    Args:
        target: the distribution at the position.
        proposal: SAMPLED or DELTA.
        index: of the position in the block.

    Returns:
        ``[V]`` integers, not normalised.
    """
    left = list(target.weights)
    if proposal.mode is Mode.DELTA:
        left[int(proposal.tokens[index])] = 0
        return left
    for token, tickets in zip(
        proposal.ids[index].tolist(), proposal.tickets[index].tolist(), strict=True
    ):
        if token >= 0:
            left[token] = max(left[token] - tickets * TICKET_WEIGHT, 0)
    return left


@dataclass(slots=True)
class _Noted:
    """Words, and a note of each that was asked for."""

    words: Words
    used: list[tuple[int, Purpose]] = field(default_factory=list)

    def __call__(self, position: int, purpose: Purpose) -> Word:
        self.used.append((position, purpose))
        return self.words(position, purpose)


def _is_accepted(proposal: Proposal, target: Target, index: int, words: Words) -> bool:
    token = int(proposal.tokens[index])
    if proposal.mode is Mode.GREEDY_T0:
        return token == target.first
    u = words(proposal.position + index, ACCEPT)
    whole = TOTAL // TICKET_WEIGHT
    tickets = whole if proposal.mode is Mode.DELTA else proposal.tickets_of_token(index)
    return accepts(u, weight=target.weights[token], tickets=tickets)


def verify(proposal: Proposal, targets: Sequence[Target], words: Words | None = None) -> Verdict:
    """Verify a whole proposal.

    Args:
        proposal: a validated one of depth n.
        targets: n + 1, each the distribution after the anchor and the proposed tokens before it.
        words: where words come from; the request's own Philox streams unless a test says otherwise.

    Returns:
        The accepted tokens and one more.

    Raises:
        BadInputError: another number of targets, or one of another vocabulary.
        WrongError: a residual of zero after a rejection, see :func:`drawn`.
    """
    depth = proposal.depth
    sizes = {len(target.weights) for target in targets}
    if len(targets) != depth + 1 or sizes != {proposal.vocabulary}:
        raise BadInputError.of(
            "targets", f"{depth + 1} of {proposal.vocabulary} columns", f"{len(targets)} of {sizes}"
        )
    noted = _Noted(words or proposal.word)
    accepted = 0
    while accepted < depth and _is_accepted(proposal, targets[accepted], accepted, noted):
        accepted += 1
    target, position = targets[accepted], proposal.position + accepted
    if proposal.mode is Mode.GREEDY_T0:
        last = target.first
    elif accepted == depth:
        last = drawn(target.weights, noted(position, BONUS))
    else:
        last = drawn(residual(target, proposal, accepted), noted(position, RESIDUAL))
    tokens = (*proposal.tokens[:accepted].tolist(), last)
    return Verdict(accepted, tokens, tuple(noted.used))
