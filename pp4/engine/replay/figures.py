"""How many proposed tokens are accepted: as the words decided, and with the words averaged out.

A token is accepted by a whole number of the 2**64 words, so the chance that exactly k tokens of a
frozen chain are accepted is an integer over 2**(64 n).  Sums over blocks stay integers, and each
figure is one division at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pp4.engine.replay.weights import WORDS, accepting_words, target_weights
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import TICKET_WEIGHT, TOTAL, Mode


@dataclass(frozen=True, slots=True)
class Measured:
    """One block of an arm.

    Attributes:
        accepted: tokens that the words accepted, 0 to n.
        words: for each position how many of 2**64 words accept its token.
        shared: for each position the sum of min(P, Q) over the vocabulary in units of 2**-48: the
            chance of acceptance with the token averaged out as well.
    """

    accepted: int
    words: tuple[int, ...]
    shared: tuple[int, ...]

    @property
    def expected(self) -> tuple[Fraction, ...]:
        """For each position the chance that its token is accepted, those before it too."""
        chances, product, power = [], 1, 1
        for count in self.words:
            product, power = product * count, power * WORDS
            chances.append(Fraction(product, power))
        return tuple(chances)

    @property
    def expected_length(self) -> Fraction:
        """Tokens that are accepted on average over all words."""
        return sum(self.expected, Fraction(0))


def measured(proposal: Proposal, target: NDArray[np.float32], accepted: int) -> Measured:
    """Measure a block.

    Args:
        proposal: of depth n.
        target: ``[n + 1, V]`` probabilities.
        accepted: what the verifier decided.
    """
    rows = target_weights(target[: proposal.depth]).rows
    words, shared = [], []
    for index, (row, token) in enumerate(zip(rows, proposal.tokens.tolist(), strict=True)):
        own = int(row[token])
        if proposal.mode is Mode.SAMPLED:
            listed = proposal.ids[index] >= 0
            tickets = proposal.tickets[index][listed].astype(np.int64) * TICKET_WEIGHT
            shared.append(int(np.minimum(row[proposal.ids[index][listed]], tickets).sum()))
            words.append(accepting_words(own, proposal.tickets_of_token(index)))
        else:
            # at T = 0 the distribution has one token, so the same words decide
            shared.append(own)
            words.append(accepting_words(own, TOTAL // TICKET_WEIGHT))
    return Measured(accepted, tuple(words), tuple(shared))


def summary(blocks: Sequence[Measured]) -> dict[str, Any]:
    """Sum up the blocks of an arm; ready for JSON.

    Args:
        blocks: at least one, all of one depth n.

    Returns:
        ``blocks``; ``accepted_length`` and ``tokens_per_step`` as the words decided, with the
        ``histogram`` of 0 to n accepted tokens; ``expected_length`` with the words averaged out;
        and by position ``reached`` and ``accepted`` blocks, the ``expected`` share of blocks that
        accept it, the ``expected_rate`` of those that reach it (None where none can), and the
        ``shared`` probability of both distributions, averaged over all blocks.
    """
    count, depth = len(blocks), len(blocks[0].words)
    histogram = [sum(one.accepted == length for one in blocks) for length in range(depth + 1)]
    total = sum(one.accepted for one in blocks)
    columns = zip(*(one.expected for one in blocks), strict=True)
    sums = [sum(column, Fraction(0)) for column in columns]
    before = [Fraction(count), *sums[:-1]]
    return {
        "blocks": count,
        "accepted_length": total / count,
        "tokens_per_step": (total + count) / count,
        "expected_length": float(sum(sums) / count),
        "histogram": histogram,
        "positions": [
            {
                "reached": sum(histogram[index:]),
                "accepted": sum(histogram[index + 1 :]),
                "expected": float(sums[index] / count),
                "expected_rate": float(sums[index] / before[index]) if before[index] else None,
                "shared": sum(one.shared[index] for one in blocks) / (count * TOTAL),
            }
            for index in range(depth)
        ],
    }
