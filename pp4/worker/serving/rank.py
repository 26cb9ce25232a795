"""One rank's side of serving: weights, features, captured shapes, and one batch after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pp4.drafter import packing
from pp4.drafter.checkpoint.load import load
from pp4.drafter.config import DrafterConfig
from pp4.drafter.shapes import Path as Way
from pp4.drafter.tp_drafter import TPDrafter
from pp4.drafter.weights import Weights
from pp4.errors import Code, Refusal, RefusedError
from pp4.wire.facts import Primed, read
from pp4.worker.bench import Bench
from pp4.worker.device import PairLink
from pp4.worker.inputs import geometry_of
from pp4.worker.serving.arena import Arena
from pp4.worker.serving.setup import shape_of
from pp4.worker.serving.verbs import Append, Appended, Capture, Draft, Grown, Load, Named

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
        self._parts: list[Weights] = []
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
        }

    @property
    def _drafter(self) -> TPDrafter:
        if self._made is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "rank", "recorded shapes", "none"))
        return self._made

    # -- starting ---------------------------------------------------------------------------

    def _load(self, given: Facts) -> Facts:
        """Read the weights; what is launched later is compiled from here on."""
        self._asked, device = read(Load, given), self._bench.device
        path = Path(self._asked.checkpoint)
        target = None if self._asked.target is None else Path(self._asked.target)
        ranks = (0, 1) if device.shards == 2 else (self._bench.rank,)
        self._parts = [load(path, rank, 2, target=target, device=device.where) for rank in ranks]
        return self._prime_drafter(self._parts[0].config)

    def _prime_drafter(self, config: DrafterConfig) -> Facts:
        """Have everything loaded that a draft launches; -> what makes bias rows, if a kernel does.

        It is told, since a receipt has to name what sampled rows rest on.
        """
        began = time.monotonic_ns()
        built = self._bench.device.prime_drafter(config)
        if built is None:
            return {"bias": None}
        primed = Primed(
            rank=self._bench.rank,
            key=f"bias_rows[{config.markov_rank}]",
            primed_ns=time.monotonic_ns() - began,
            **built.model_dump(),
        )
        return {"bias": primed.model_dump(mode="json")}

    def _capture(self, given: Facts) -> Facts:
        """Record every shape, over the link that there is now."""
        asked, link = read(Capture, given), self._bench.link if self._asked.sampled else None
        if self._made is not None and link is not None:
            self._made.relink(link)
        else:
            self._made = self._drafter_over(link)
            self._made.prepare(asked.batches, asked.depths)
        self._bench.device.settle()
        return {}

    def _drafter_over(self, link: PairLink | None) -> TPDrafter:
        asked, device = self._asked, self._bench.device
        shape = shape_of(self._parts[0].config)
        parts, self._parts = self._parts, []
        return TPDrafter(
            parts,
            slots=asked.slots,
            context=asked.context,
            cache_mib=asked.cache_mib,
            gather=device.gather,
            repeated=device.repeated,
            link=link,
            geometry=geometry_of(shape),
            make_block=device.make_block,
        )

    # -- requests ---------------------------------------------------------------------------

    def _open(self, given: Facts) -> Facts:
        request, cache = read(Named, given).request, self._drafter.cache
        cache.open(request)
        return {"slot": cache.place(request)[0]}

    def _append(self, given: Facts) -> Facts:
        asked, width = read(Append, given), self._drafter.config.feature_width
        tokens = [part.tokens for part in asked.parts]
        lying = self._arena.feature_bytes(2 * sum(tokens) * width)
        features = torch.from_numpy(lying).view(torch.bfloat16).view(-1, width)
        apart = torch.split(features.to(self._bench.device.where), tokens)
        named = [part.request for part in asked.parts]
        told = self._drafter.cache.append_together(list(zip(named, apart, strict=True)))
        return Appended(parts=tuple(map(_grown, told))).model_dump()

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
        drafter.inputs(shape).copy_(words, non_blocking=True)
        captured = drafter.heads(shape, inputs["mode"].tolist())
        place = self._outputs[: len(captured.outputs)]
        place.copy_(captured.outputs, non_blocking=True)
        device.settle()
        if drafter.markov is not None and captured.path is Way.SAMPLED:
            drafter.markov.used(self._previous(asked, inputs))
        return self._counts()

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
        if self._made is not None and self._made.markov is not None:
            self._made.markov.fill(FILLED_AT_ONCE)

    def _counts(self) -> Facts:
        """Hits and misses of the Markov cache."""
        markov = self._drafter.markov
        if markov is None:
            return {"cache_hits": 0, "cache_misses": 0}
        return {"cache_hits": markov.hits, "cache_misses": markov.misses}


def _grown(told: int | RefusedError) -> Grown:
    if isinstance(told, RefusedError):
        return Grown(refusal=told.refusal.as_dict())
    return Grown(length=told)
