"""A target of the Qwen3 family behind the interface that decoding and replay use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pp4.drafter.backbone import PROJECTED_ROWS
from pp4.engine.interface import Row, Step
from pp4.engine.target.decoder import Decoder, Windows
from pp4.engine.target.exact import on_grid
from pp4.engine.target.weights import TargetWeights
from pp4.errors import BadInputError


class CausalTarget:
    """Runs a target; see :class:`pp4.engine.interface.Target`, which this is one of.

    A step's arrays have a row for every slot, also for those that nothing is added to.  A prompt
    goes in windows of a fixed length.  Those are GEMMs of another height, so what a prompt's token
    leaves behind may differ in bits from what the same token leaves in a step.

    Args:
        weights: of the target.
        taps: layers whose outputs are the features, rising: -1 is the embedding's output, i that
            of layer i.
        slots: sequences that can be open at once.
        window: tokens that a sequence may add in a step.
        context: tokens that a sequence may have.

    Raises:
        BadInputError: no such layer, or a number that is too small or too large.
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
        config = weights.config
        _check_taps(taps, config.layers)
        _check_number("slots", slots, 1)
        _check_number("context", context, 1, config.max_positions)
        _check_number("window", window, 1, context)
        self.vocab, self.width = config.vocab, len(taps) * config.hidden
        self.slots, self.window, self.context = slots, window, context
        self._device = weights.device
        self._decoder = Decoder(weights, tuple(taps), slots, context)
        self._head = on_grid(weights.head)
        self._lengths = [0] * slots
        self._stepped: list[int | None] = [None] * slots

    def length(self, slot: int) -> int:
        """Tokens that a slot keeps; the position of the next one.

        Raises:
            BadInputError: no such slot.
        """
        self._check_slot(slot)
        return self._lengths[slot]

    def prefill(self, slot: int, tokens: Sequence[int]) -> Tensor:
        """Empty a slot and keep these tokens in it; see the interface."""
        self._check_slot(slot)
        self._check_tokens(tokens, 0)
        self._lengths[slot], self._stepped[slot] = 0, None
        parts = [torch.empty((0, self.width), dtype=self._decoder.dtype, device=self._device)]
        for first in range(0, len(tokens), PROJECTED_ROWS):
            part = tokens[first : first + PROJECTED_ROWS]
            windows = self._windows([(slot, first, part)], slot, 1, PROJECTED_ROWS)
            _, features = self._decoder.run(windows)
            parts.append(features[0, : len(part)])
        self._lengths[slot] = len(tokens)
        return torch.cat(parts)

    def step(self, rows: Sequence[Row]) -> Step:
        """Run tokens after those that are kept; see the interface."""
        if not rows:
            raise BadInputError.of("rows", "at least 1", "0")
        for row in rows:
            self._check_slot(row.slot)
            _check_number("tokens of a row", len(row.tokens), 1, self.window)
            self._check_tokens(row.tokens, self._lengths[row.slot])
        slots = [row.slot for row in rows]
        if len(set(slots)) != len(slots):
            raise BadInputError.of("rows", "a slot once", f"slots {slots}")
        added = [(row.slot, self._lengths[row.slot], row.tokens) for row in rows]
        windows = self._windows(added, 0, self.slots, self.window)
        # from here on the cache changes: what an earlier step left there cannot be kept any more
        for row in rows:
            self._stepped[row.slot] = None
        hidden, features = self._decoder.run(windows)
        logits = (on_grid(hidden) @ self._head.T).float().view(self.slots, self.window, -1)
        for row in rows:
            self._stepped[row.slot] = len(row.tokens)
        chosen = self._moved(slots)
        return Step(logits.index_select(0, chosen), features.index_select(0, chosen))

    def keep(self, slot: int, count: int) -> None:
        """Keep the first tokens of a slot's last step; see the interface."""
        self._check_slot(slot)
        stepped = self._stepped[slot]
        if stepped is None:
            raise BadInputError.of("slot", "one with a step that was not kept from", str(slot))
        _check_number("count", count, 0, stepped)
        self._lengths[slot] += count
        self._stepped[slot] = None

    def _windows(
        self, added: Sequence[tuple[int, int, Sequence[int]]], first: int, rows: int, width: int
    ) -> Windows:
        """Lay tokens out: (slot, position of the first token, tokens) for some of the rows."""
        tokens, positions = ([[0] * width for _ in range(rows)] for _ in range(2))
        # padding is written to a slot of its own, which nobody reads
        written = [[self.slots] * width for _ in range(rows)]
        for slot, start, part in added:
            row, count = slot - first, len(part)
            tokens[row][:count] = part
            positions[row][:count] = range(start, start + count)
            written[row][:count] = [slot] * count
        laid = self._moved([tokens, positions, written])
        return Windows(laid[0], laid[1], laid[2], first)

    def _moved(self, numbers: Any) -> Tensor:
        """Nested lists of integers as an int64 tensor on the device, which is not waited for."""
        return torch.tensor(numbers, dtype=torch.int64).to(self._device, non_blocking=True)

    def _check_slot(self, slot: int) -> None:
        _check_number("slot", slot, 0, self.slots - 1)

    def _check_tokens(self, tokens: Sequence[int], before: int) -> None:
        _check_number("tokens of a sequence", before + len(tokens), 0, self.context)
        for token in tokens:
            _check_number("token", token, 0, self.vocab - 1)


def _check_taps(taps: Sequence[int], layers: int) -> None:
    rising = all(a < b for a, b in pairwise(taps))
    if not taps or not rising or taps[0] < -1 or taps[-1] >= layers:
        raise BadInputError.of("taps", f"rising layers from -1 to {layers - 1}", str(list(taps)))


def _check_number(where: str, number: int, least: int, most: int | None = None) -> None:
    if number < least or (most is not None and number > most):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise BadInputError.of(where, expected, str(number))
