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
from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import RecordedGraph
from pp4.wire.facts import BUCKETS, Case, Stream, Streamed
from pp4.worker import expecting, inputs
from pp4.worker.bench import Bench
from pp4.worker.originals import Originals

_GREEDY_EVERY = 5


class _Reference:
    """The vectorised reference of one shape, over the inputs that a block was loaded with."""

    def __init__(self, bench: Bench, block: SampledBlock) -> None:
        geometry = bench.require_geometry()
        shape = (block.batch, block.n_out, geometry.vocab)
        self._base = torch.zeros(shape, dtype=torch.int16, device=bench.device.where)
        given = {
            "mode": block.mode,
            "key": block.key,
            "position": block.position,
            "round": block.round,
            "anchor": block.chain[:, 0],
        }
        self._again = bench.device.repeated(lambda: expecting.block_of(geometry, given, self._base))

    def of(self, base: torch.Tensor) -> vectorised.Block:
        """What must come out for these logits and for the requests in the block's buffers."""
        self._base.copy_(base)
        return self._again()


class Streaming:
    """Runs streams on one rank.

    Args:
        bench: the rank's exercises.
        originals: the original selectors, for streams that replay them in between.
    """

    def __init__(self, bench: Bench, originals: Originals | None) -> None:
        self._bench, self._originals = bench, originals
        self._inputs, self._outputs = hashlib.sha256(), hashlib.sha256()
        self._waits = np.zeros(BUCKETS, np.int64)
        self._wrong: list[tuple[int, torch.Tensor]] = []

    def run(self, asked: Stream) -> Streamed:
        """Replay a graph with new inputs as often as asked; stops at the first error word."""
        began = time.monotonic_ns()
        delays = random.Random(f"{asked.seed} {self._bench.rank}")
        graph = self._bench.capture("stream", _case(asked, 0), None)
        expected = _Reference(self._bench, graph.block)
        done = 0
        while done < asked.blocks and self._bench.link.words().clean:
            if asked.skew_ns:
                self._bench.device.delay(delays.randrange(asked.skew_ns))
            self._block(graph, expected, done, _case(asked, done))
            done += 1
        return self._report(asked, done, time.monotonic_ns() - began)

    def _block(self, graph: RecordedGraph, expected: _Reference, number: int, case: Case) -> None:
        bench, block = self._bench, graph.block
        geometry = bench.require_geometry()
        base = inputs.logits(geometry, case, bench.device.where)
        before = bench.link.epochs[: case.batch].clone()
        block.load(inputs.requests(geometry, case), base)
        block.poison()
        graph.replay()
        self._wrong.append((number, _differing(block, expected.of(base), before)))
        self._outputs.update(bytes.fromhex(block.outputs().digest()))
        # a sample: the whole would take longer to read back than everything else
        self._inputs.update(base[:, :, :: max(1, geometry.vocab // 64)].cpu().numpy().tobytes())
        self._count(block.waits())
        if self._originals is not None:
            selector, original = self._originals.captured(case)
            self._originals.load(selector, case)
            original.replay()

    def _count(self, waits: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        """Sort waits into powers of two."""
        exponents = np.frexp(waits.ravel().astype(np.float64))[1]
        self._waits += np.bincount(exponents.clip(0, BUCKETS - 1), minlength=BUCKETS)

    def _report(self, asked: Stream, done: int, elapsed_ns: int) -> Streamed:
        places = [
            (number, *map(int, at)) for number, wrong in self._wrong for at in wrong.nonzero()
        ]
        words = self._bench.link.words()
        return Streamed(
            rank=self._bench.rank,
            blocks=done,
            rows=done * asked.batch * asked.n_out,
            mismatches=len(places),
            first_mismatch=places[0] if places else (),
            inputs=self._inputs.hexdigest(),
            outputs=self._outputs.hexdigest(),
            waits=tuple(int(count) for count in self._waits),
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
