"""Thousands of blocks on one rank, each held against the vectorised reference on the device.

The peer does the same with the same inputs.  Nothing of it leaves as a reply, so no owner stands
between the blocks; the coordinator compares what both ranks report at the end.
"""

from __future__ import annotations

import hashlib
import random
import time

import numpy as np
import torch

from pp4.kernels import vectorised
from pp4.kernels.block import Request, SampledBlock, tensors_of
from pp4.kernels.geometry import Geometry
from pp4.kernels.graph import RecordedGraph
from pp4.wire.facts import BUCKETS, Case, Stream, Streamed
from pp4.worker import expecting, inputs
from pp4.worker.bench import Bench
from pp4.worker.originals import Originals

_GREEDY_EVERY = 5
_SAMPLED = 64
"""Columns of a row whose logits enter the digest of the inputs."""


class _Reference:
    """The vectorised reference of one shape, over buffers of its own."""

    def __init__(self, bench: Bench, batch: int, n_out: int) -> None:
        geometry, where = bench.require_geometry(), bench.device.where
        shape = (batch, n_out, geometry.vocab)
        self._base = torch.zeros(shape, dtype=torch.int16, device=where)
        nobody = tensors_of([Request()] * batch)
        self._given = {name: one.to(where) for name, one in nobody.items()}
        self._again = bench.device.repeated(
            lambda: expecting.block_of(geometry, self._given, self._base)
        )

    def of(self, block: SampledBlock, base: torch.Tensor) -> vectorised.Block:
        """What must come out for these logits and for the requests that a block was loaded with."""
        self._base.copy_(base)
        for name, one in (
            ("mode", block.mode),
            ("key", block.key),
            ("position", block.position),
            ("round", block.round),
            ("anchor", block.chain[:, 0]),
        ):
            self._given[name].copy_(one)
        return self._again()


class _Tally:
    """What one rank saw of one stream, while it goes on."""

    def __init__(self) -> None:
        self.inputs, self.outputs = hashlib.sha256(), hashlib.sha256()
        self.waits = np.zeros(BUCKETS, np.int64)
        self.blocks = 0
        self._wrong: list[torch.Tensor] = []

    def add(self, base: torch.Tensor, block: SampledBlock, wrong: torch.Tensor) -> None:
        """Count one block; ``wrong``: ``[B, n_out]`` bool on the device, read at the end."""
        self.blocks += 1
        self._wrong.append(wrong)
        self.outputs.update(bytes.fromhex(block.outputs().digest()))
        # a sample: the whole would take longer to read back than everything else
        step = max(1, base.shape[-1] // _SAMPLED)
        self.inputs.update(base[:, :, ::step].cpu().numpy().tobytes())
        exponents = np.frexp(block.waits().ravel().astype(np.float64))[1]
        self.waits += np.bincount(exponents.clip(0, BUCKETS - 1), minlength=BUCKETS)

    def places(self) -> list[tuple[int, ...]]:
        """Block, row and position of everything that was wrong."""
        return [
            (number, *map(int, at))
            for number, wrong in enumerate(self._wrong)
            for at in wrong.nonzero()
        ]


class Streaming:
    """Runs streams on one rank.

    Args:
        bench: the rank's exercises.
        originals: the original selectors, for streams that replay them in between.
    """

    def __init__(self, bench: Bench, originals: Originals) -> None:
        self._bench, self._originals = bench, originals
        self._references: dict[tuple[Geometry, int, int], _Reference] = {}

    def run(self, asked: Stream) -> Streamed:
        """Replay a graph with new inputs as often as asked; stops at the first error word."""
        began, tally = time.monotonic_ns(), _Tally()
        delays = random.Random(f"{asked.seed} {self._bench.rank}")
        graph = self._bench.capture("stream", _case(asked, 0), asked.control)
        expected = self._reference(asked.batch, asked.n_out)
        while tally.blocks < asked.blocks and self._bench.link.words().clean:
            if asked.skew_ns:
                self._bench.device.delay(delays.randrange(asked.skew_ns))
            case = _case(asked, tally.blocks)
            self._block(graph, expected, case, tally)
            if asked.off:
                self._off(case)
        return self._report(asked, tally, time.monotonic_ns() - began)

    def _reference(self, batch: int, n_out: int) -> _Reference:
        """Captured once for each shape: that takes as long as a hundred blocks."""
        key = (self._bench.require_geometry(), batch, n_out)
        if key not in self._references:
            self._references[key] = _Reference(self._bench, batch, n_out)
        return self._references[key]

    def _block(self, graph: RecordedGraph, expected: _Reference, case: Case, tally: _Tally) -> None:
        bench, block = self._bench, graph.block
        geometry = bench.require_geometry()
        base = inputs.logits(geometry, case, bench.device.where)
        before = bench.link.epochs[: case.batch].clone()
        block.load(inputs.requests(geometry, case), base)
        block.poison()
        graph.replay()
        tally.add(base, block, _differing(block, expected.of(block, base), before))

    def _off(self, case: Case) -> None:
        selector, original = self._originals.captured(case)
        self._originals.load(selector, case)
        original.replay()

    def _report(self, asked: Stream, tally: _Tally, elapsed_ns: int) -> Streamed:
        places, words = tally.places(), self._bench.link.words()
        return Streamed(
            rank=self._bench.rank,
            blocks=tally.blocks,
            rows=tally.blocks * asked.batch * asked.n_out,
            mismatches=len(places),
            first_mismatch=places[0] if places else (),
            inputs=tally.inputs.hexdigest(),
            outputs=tally.outputs.hexdigest(),
            waits=tuple(int(count) for count in tally.waits),
            own_error=int(words.own),
            peer_error=int(words.peer),
            elapsed_ns=elapsed_ns,
        )


def _case(asked: Stream, number: int) -> Case:
    """Inputs of one block of a stream; now and then a row is greedy, another one each time."""
    modes = (2 if (row + number) % _GREEDY_EVERY == 0 else 1 for row in range(asked.batch))
    return Case(
        batch=asked.batch,
        n_out=asked.n_out,
        seed=asked.seed + number,
        modes=tuple(modes),
        cached=asked.cached,
    )


def _differing(
    block: SampledBlock, expected: vectorised.Block, before: torch.Tensor
) -> torch.Tensor:
    """Where a block is not what it must be, bit for bit, stamps included; ``[B, n_out]`` bool."""
    index = torch.arange(block.n_out, device=before.device)
    stamps = before[:, None] + index + 1
    return (
        (block.ids != expected.ids).any(-1)
        | (block.q.view(torch.int32) != expected.q.view(torch.int32)).any(-1)
        | (block.token != expected.token)
        | (block.error != expected.error)
        | (block.stamp != stamps)
    )
