"""One rank's side of serving: weights, features, captured shapes, and one batch after another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pp4.drafter import packing
from pp4.drafter.checkpoint.load import load
from pp4.drafter.tp import TPDrafter
from pp4.drafter.weights import Weights
from pp4.errors import Code, Refusal, RefusedError
from pp4.wire.facts import read
from pp4.worker.bench import Bench
from pp4.worker.serving.arena import Arena
from pp4.worker.serving.verbs import Append, Capture, Draft, Load, Named

Facts = dict[str, Any]
FILLED_AT_ONCE = 4
"""Bias rows that are computed after one block.  Each takes a pass over this rank's rows of W2,
which the next block would wait for."""


class ServingRank:
    """What a rank does for a server; it decides nothing and releases nothing.

    Args:
        bench: this rank's device, priming and link.
        arena: what it shares with its owner.
    """

    def __init__(self, bench: Bench, arena: Arena) -> None:
        self._bench, self._arena = bench, arena
        self._made: TPDrafter | None = None
        whole = torch.from_numpy(arena.whole)
        bench.device.pin(whole)
        self._inputs = torch.from_numpy(arena.input_bytes(arena.sizes.batch)).view(torch.int32)
        outputs = arena.output_bytes(bench.rank, arena.sizes.batch)
        self._outputs = torch.from_numpy(outputs).view(torch.int32)
        self.verbs: dict[str, Callable[[Facts], Facts]] = {
            "serve.load": self._load,
            "serve.capture": self._capture,
            "serve.open": self._open,
            "serve.append": self._append,
            "serve.close": self._close,
            "serve.draft": self._draft,
            "serve.counts": self._counts,
        }

    @property
    def _drafter(self) -> TPDrafter:
        if self._made is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "rank", "a loaded checkpoint", "none"))
        return self._made

    # -- starting ---------------------------------------------------------------------------

    def _load(self, given: Facts) -> Facts:
        asked, device = read(Load, given), self._bench.device
        self._made = TPDrafter(
            self._parts(asked),
            slots=asked.slots,
            context=asked.context,
            cache_mib=asked.cache_mib if asked.sampled else 0,
            gather=device.gather,
            repeated=device.repeated,
        )
        self._sampled = asked.sampled
        return {"cache_rows": self._drafter.markov.capacity if asked.sampled else 0}

    def _parts(self, asked: Load) -> list[Weights]:
        """This rank's part of the heads, or both where one launch holds both shards."""
        device = self._bench.device
        path, target = Path(asked.checkpoint), None if asked.target is None else Path(asked.target)
        ranks = (0, 1) if device.shards == 2 else (self._bench.rank,)
        return [load(path, rank, 2, target=target, device=device.where) for rank in ranks]

    def _capture(self, given: Facts) -> Facts:
        asked, device = read(Capture, given), self._bench.device
        link = self._bench.link if self._sampled else None
        self._drafter.prepare(asked.batches, asked.depths, link=link, block=device.sampled_block)
        device.settle()
        return {}

    # -- requests ---------------------------------------------------------------------------

    def _open(self, given: Facts) -> Facts:
        request = read(Named, given).request
        return {"slot": self._drafter.cache.open(request)}

    def _append(self, given: Facts) -> Facts:
        asked, cache = read(Append, given), self._drafter.cache
        width = self._drafter.config.feature_width
        lying = self._arena.feature_bytes(2 * asked.tokens * width)
        features = torch.from_numpy(lying).view(torch.bfloat16).view(asked.tokens, width)
        return {"length": cache.append(asked.request, features.to(self._bench.device.where))}

    def _close(self, given: Facts) -> Facts:
        self._drafter.cache.close(read(Named, given).request)
        return {}

    # -- blocks -----------------------------------------------------------------------------

    def _draft(self, given: Facts) -> Facts:
        """Copy in, run, copy out; the owner reads what lies in the arena."""
        asked, device, drafter = read(Draft, given), self._bench.device, self._drafter
        inputs = np.frombuffer(
            self._arena.input_bytes(asked.batch), packing.input_type(asked.batch)
        )[0]
        shape = (asked.batch, asked.n_out)
        words = self._inputs[: packing.input_words(asked.batch)]
        outputs = drafter.draft(shape, inputs["mode"].tolist(), words)
        place = self._outputs[: packing.output_words(asked.batch, drafter.config.block)]
        place.copy_(outputs, non_blocking=True)
        device.settle()
        if self._sampled:
            drafter.markov.used(self._previous(asked, inputs))
        return {}

    def _previous(self, asked: Draft, inputs: Any) -> list[int]:
        """Tokens whose bias rows the batch's positions took."""
        block = self._drafter.config.block
        rows = np.frombuffer(
            self._arena.output_bytes(self._bench.rank, asked.batch),
            packing.row_type(block),
            count=asked.rows,
        )
        drafted = rows["token"][:, : asked.n_out - 1]
        anchors = inputs["anchor"][: asked.rows, None]
        taken: list[int] = np.concatenate([anchors, drafted], axis=1).ravel().tolist()
        return [token for token in taken if token >= 0]

    def afterwards(self) -> None:
        """Use the time in which nothing is asked: the reply has left, no graph runs."""
        if self._made is not None and self._sampled:
            self._made.markov.fill(FILLED_AT_ONCE)

    def _counts(self, _: Facts) -> Facts:
        """Hits and misses of the Markov cache."""
        if not self._sampled:
            return {"cache_hits": 0, "cache_misses": 0}
        markov = self._drafter.markov
        return {"cache_hits": markov.hits, "cache_misses": markov.misses}
