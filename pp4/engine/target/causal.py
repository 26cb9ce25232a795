"""A target of the Qwen3 family behind the interface that decoding and replay use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from pp4.drafter.backbone import PROJECTED_ROWS
from pp4.engine.interface import Row, Step
from pp4.engine.target.decoder import Decoder
from pp4.engine.target.exact import on_grid
from pp4.engine.target.laying import Added, Laid
from pp4.engine.target.recording import Recorder, recorder_for
from pp4.engine.target.weights import TargetWeights
from pp4.errors import BadInputError


class CausalTarget:
    """Runs a target; see :class:`pp4.engine.interface.Target`, which this is one of.

    A step's arrays have a row for every slot, also for those that nothing is added to.  A prompt
    goes in windows of a fixed length.  Those are GEMMs of another height, so what a prompt's token
    leaves behind may differ in bits from what the same token leaves in a step.

    Both are recorded when a target is made, as CUDA graphs on a GPU; the memory of these is held
    for as long as the target lives.

    Args:
        weights: of the target.
        taps: layers whose outputs are the features, rising: -1 is the embedding's output, i that
            of layer i.
        slots: sequences that can be open at once.
        window: tokens that a sequence may add in a step.
        context: tokens that a sequence may have.
        recorder: how runs are repeated; as the device allows where it is None.

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
        recorder: Recorder | None = None,
    ) -> None:
        config = weights.config
        _check_taps(taps, config.layers)
        _check_number("slots", slots, 1)
        _check_number("context", context, 1, config.max_positions)
        _check_number("window", window, 1, context)
        self.vocab, self.width = config.vocab, len(taps) * config.hidden
        self.slots, self.window, self.context = slots, window, context
        self._device = weights.device
        decoder, head = Decoder(weights, tuple(taps), slots, context), on_grid(weights.head)
        self._decoder = decoder
        recorder = recorder_for(weights.device) if recorder is None else recorder
        self._prompts = Laid(recorder, 1, PROJECTED_ROWS, slots)
        self._steps = Laid(recorder, slots, window, slots)
        # of functions: what is recorded holds what it runs, and would hold the target in a circle
        self._run_prompt = recorder.record(partial(_prompt_features, decoder, self._prompts))
        self._run_step = recorder.record(partial(_step, decoder, head, self._steps))
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
        shape = (len(tokens), self.width)
        found = torch.empty(shape, dtype=self._decoder.dtype, device=self._device)
        for first in range(0, len(tokens), PROJECTED_ROWS):
            part = tokens[first : first + PROJECTED_ROWS]
            self._prompts.lay([Added(0, slot, first, part)])
            features = self._run_prompt()
            found[first : first + len(part)] = features[0, : len(part)]
        self._lengths[slot] = len(tokens)
        return found

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
        # from here on the cache changes: what an earlier step left there cannot be kept any more
        for row in rows:
            self._stepped[row.slot] = None
        self._steps.lay(
            Added(row.slot, row.slot, self._lengths[row.slot], row.tokens) for row in rows
        )
        logits, features = self._run_step()
        for row in rows:
            self._stepped[row.slot] = len(row.tokens)
        return Step(logits[: len(rows)], features[: len(rows)])

    def keep(self, slot: int, count: int) -> None:
        """Keep the first tokens of a slot's last step; see the interface."""
        self._check_slot(slot)
        stepped = self._stepped[slot]
        if stepped is None:
            raise BadInputError.of("slot", "one with a step that was not kept from", str(slot))
        _check_number("count", count, 0, stepped)
        self._lengths[slot] += count
        self._stepped[slot] = None

    def _check_slot(self, slot: int) -> None:
        _check_number("slot", slot, 0, self.slots - 1)

    def _check_tokens(self, tokens: Sequence[int], before: int) -> None:
        _check_number("tokens of a sequence", before + len(tokens), 0, self.context)
        if tokens and (min(tokens) < 0 or max(tokens) >= self.vocab):
            for token in tokens:
                _check_number("token", token, 0, self.vocab - 1)


def _prompt_features(decoder: Decoder, laid: Laid) -> Tensor:
    """Run a window of a prompt; -> ``[1, W, width]`` features."""
    _, features = decoder.run(laid.windows, laid.slots)
    return features


def _step(decoder: Decoder, head: Tensor, laid: Laid) -> tuple[Tensor, Tensor]:
    """Run a step; -> logits and features of a :class:`Step`, and of rows behind its own.

    Args:
        decoder: of the target.
        head: ``[V, hidden]`` on the grid.
        laid: row i of it is slot i's.
    """
    shape = laid.windows.tokens.shape
    hidden, features = decoder.run(laid.windows, slice(shape[0]))
    logits = (on_grid(hidden) @ head.T).float().view(*shape, -1)
    return logits.index_select(0, laid.slots), features.index_select(0, laid.slots)


def _check_taps(taps: Sequence[int], layers: int) -> None:
    rising = all(a < b for a, b in pairwise(taps))
    if not taps or not rising or taps[0] < -1 or taps[-1] >= layers:
        raise BadInputError.of("taps", f"rising layers from -1 to {layers - 1}", str(list(taps)))


def _check_number(where: str, number: int, least: int, most: int | None = None) -> None:
    if number < least or (most is not None and number > most):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise BadInputError.of(where, expected, str(number))
