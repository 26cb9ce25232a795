"""What decoding and replay ask of a target model: the seam between them and its weights.

A target keeps keys and values of the tokens of each sequence.  Every step runs arrays of one fixed
shape, so the bits of a token's logits and features depend on the tokens before it, on how many of
these came by :meth:`Target.prefill`, and on nothing else: not on its place in a window, nor on the
sequences beside it.  A prompt's own bits depend on the tokens before them alone.  That is what
makes greedy decoding with drafts equal to greedy decoding without them, token for token, as long as
nothing that was decoded is given to ``prefill`` again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """What one sequence adds in a step.

    Attributes:
        slot: of the sequence, open, once a step.
        tokens: 1 to ``window`` ids below the vocabulary: the anchor and what was proposed after it.
    """

    slot: int
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Step:
    """What a step computed, on the target's device; row i belongs to ``rows[i]``.

    It is valid until the target's next step, which may compute into the same arrays.

    Attributes:
        logits: ``[B, window, V]`` float32; place j is the distribution after token j.  Behind the
            tokens of a row they mean nothing.
        features: ``[B, window, width]`` bfloat16: outputs of the tapped layers side by side.
    """

    logits: Tensor
    features: Tensor


class Target(Protocol):
    """A causal language model with room for a fixed number of sequences.

    Attributes:
        vocab: V, tokens.
        slots: sequences that can be open at once, and rows of the arrays of a step.
        window: tokens that a row may have.
        context: tokens that a sequence may have.
        width: values of one token's features.
    """

    vocab: int
    slots: int
    window: int
    context: int
    width: int

    def length(self, slot: int) -> int:
        """Tokens that a slot keeps; the position of the next one."""

    def prefill(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Empty a slot and keep these tokens in it.

        Args:
            slot: below ``slots``.
            tokens: any number, also none, that the context has room for.  The last token of a
                prompt is not among them: it is the first anchor.

        Returns:
            Their features ``[T, width]`` bfloat16.

        Raises:
            BadInputError: no such slot, a token that is none, or too many.
        """

    def step(self, rows: Sequence[Row]) -> Step:
        """Run tokens after those that are kept; nothing is kept until :meth:`keep`.

        Raises:
            BadInputError: no row, a slot twice or none such, no token, too many, one that is none,
                or no room in the context.
        """

    def keep(self, slot: int, count: int) -> None:
        """Keep the first tokens of a slot's last step.

        Raises:
            BadInputError: more than that step had, or it was kept from already.
        """
