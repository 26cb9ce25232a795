"""One target behind arrays of the batch size that a round has."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pp4.engine.interface import Row, Step
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.weights import TargetWeights
from pp4.errors import BadInputError


class Sized:
    """See :class:`pp4.engine.interface.Target`.

    A step's arrays have a row for every slot, so a target with as many slots as the largest batch
    would take as long for one request as for all.  Each batch size has arrays and a cache of its
    own, made when it is first used, over the same weights.

    Args:
        weights: of the target.
        taps: layers whose outputs are the features.
        slots: the largest batch.
        window: tokens that a sequence may add in a step.
        context: tokens that a sequence may have.

    Raises:
        BadInputError: as :class:`CausalTarget`.
    """

    def __init__(
        self,
        weights: TargetWeights,
        *,
        taps: Sequence[int],
        slots: int,
        window: int,
        context: int,
    ) -> None:
        self._weights, self._taps = weights, tuple(taps)
        self.slots, self.window, self.context = slots, window, context
        self._made: dict[int, CausalTarget] = {}
        self.use(slots)
        self.vocab, self.width = self._now.vocab, self._now.width

    def use(self, batch: int) -> None:
        """Take the arrays of a batch size; what other ones keep is of no use any more.

        Raises:
            BadInputError: there is no such batch.
        """
        if not 1 <= batch <= self.slots:
            raise BadInputError.of("batch", f"1 to {self.slots}", str(batch))
        if batch not in self._made:
            self._made[batch] = CausalTarget(
                self._weights,
                taps=self._taps,
                slots=batch,
                window=self.window,
                context=self.context,
            )
        self._now = self._made[batch]

    def length(self, slot: int) -> int:
        """Tokens that a slot keeps."""
        return self._now.length(slot)

    def prefill(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Empty a slot and keep these tokens in it."""
        return self._now.prefill(slot, tokens)

    def step(self, rows: Sequence[Row]) -> Step:
        """Run tokens after those that are kept."""
        return self._now.step(rows)

    def keep(self, slot: int, count: int) -> None:
        """Keep the first tokens of a slot's last step."""
        self._now.keep(slot, count)
