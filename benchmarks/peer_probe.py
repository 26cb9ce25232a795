"""First light of the fused kernel on GPUs: equality with the reference, then time per position.

One process drives both ranks, on two GPUs that reach each other or, with one GPU, on two streams of
it.  It is a probe and no qualification: it holds no HOLD, tries no fault but a missing peer, and
leaves no receipt.  No time is printed unless every comparison held.

    PYTHONPATH=. python benchmarks/peer_probe.py [--replays N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from pp4.kernels import reference
from pp4.kernels.block import Request, SampledBlock
from pp4.kernels.expected import reference_outputs
from pp4.kernels.faults import Fault
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head
from pp4.kernels.link import Bounds, LinkState, SoloLink, workspace_words
from pp4.kernels.sampled_fused import GREEDY, SAMPLED

ROWS = 32
DEPTH = 5
BOUNDS = Bounds(first_ns=500_000_000, next_ns=500_000_000)
SEED = 20261130


class OneProcessLink(LinkState):
    """A link whose peer lives in the same process; peer access is torch's business."""

    shards = 1

    def __init__(self, rank: int, device: torch.device) -> None:
        self.rank = rank
        self.peer_address = 0
        words = torch.empty(workspace_words(ROWS), dtype=torch.int64, device=device)
        super().__init__(words, ROWS, 7, BOUNDS)

    def close(self) -> None:
        """Nothing is mapped."""


def devices() -> list[torch.device]:
    """The devices of rank 0 and 1; a copy between them makes torch enable peer access."""
    count = torch.cuda.device_count()
    pair = [torch.device("cuda", 0), torch.device("cuda", 1 if count > 1 else 0)]
    one = torch.ones(1, device=pair[0])
    one.copy_(one.to(pair[1]))
    return pair


def weights(rng: np.random.Generator, geometry: Geometry) -> tuple[np.ndarray, np.ndarray]:
    """Markov weights of the size that a drafter has."""
    size = (geometry.vocab, geometry.rank_dim)
    w1 = reference.round_bf16(rng.standard_normal(size, dtype=np.float32))
    w2 = reference.round_bf16(rng.standard_normal(size, dtype=np.float32) * np.float32(0.05))
    return w1, w2


def logits(rng: np.random.Generator, batch: int, n_out: int, vocab: int) -> np.ndarray:
    """Base logits with the ties that BF16 makes."""
    return reference.round_bf16(rng.standard_normal((batch, n_out, vocab), dtype=np.float32) * 3)


class ProbedPair:
    """Both ranks of one shape, ready to be launched."""

    def __init__(self, heads: list[Head], batch: int, n_out: int) -> None:
        self.devices = [head.w1.device for head in heads]
        self.links = [OneProcessLink(rank, device) for rank, device in enumerate(self.devices)]
        for rank in (0, 1):
            self.links[rank].peer_address = self.links[1 - rank].own_address
        self.streams = [torch.cuda.Stream(device) for device in self.devices]
        self.blocks = [
            SampledBlock(head, link, batch=batch, n_out=n_out)
            for head, link in zip(heads, self.links, strict=True)
        ]
        for rank, block in enumerate(self.blocks):
            # rows are inactive until they are loaded: this loads the module and exchanges nothing
            with torch.cuda.device(self.devices[rank]):
                block.launch(0)
        self.settle()

    def settle(self) -> None:
        """Wait for both devices."""
        for device in self.devices:
            torch.cuda.synchronize(device)

    def load(self, requests: list[Request], base: np.ndarray) -> None:
        """New inputs, poisoned outputs."""
        for block in self.blocks:
            block.load(requests, base)
            block.poison()
        self.settle()

    def run(self) -> None:
        """Launch position by position on both ranks."""
        for index in range(self.blocks[0].n_out):
            for rank, block in enumerate(self.blocks):
                device, stream = self.devices[rank], self.streams[rank]
                with torch.cuda.device(device), torch.cuda.stream(stream):
                    block.launch(index)
        self.settle()

    def times(self, replays: int) -> list[float]:
        """Microseconds per position on rank 1 over replays of a captured block."""
        graphs = []
        for rank, block in enumerate(self.blocks):
            with torch.cuda.device(self.devices[rank]):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=self.streams[rank]):
                    block.run()
                graphs.append(graph)
        found = []
        for _ in range(replays):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            for rank, graph in enumerate(graphs):
                device, stream = self.devices[rank], self.streams[rank]
                with torch.cuda.device(device), torch.cuda.stream(stream):
                    # rank 0 is launched first: rank 1 is timed and does not wait for a launch
                    if rank == 1:
                        marks[0].record()
                    graph.replay()
                    if rank == 1:
                        marks[1].record()
            self.settle()
            found.append(marks[0].elapsed_time(marks[1]) * 1e3 / self.blocks[0].n_out)
        return found


def check(pair: list[torch.device]) -> list[str]:
    """Compare solo and pair with the reference; -> what does not hold."""
    wrong = []
    rng = np.random.default_rng(SEED)
    for vocab, tile, batch in ((129280, 2048, 3), (151937, 2048, 2), (1003, 128, 3)):
        geometry = Geometry(vocab=vocab, split=(vocab + 1) // 2, tile=tile)
        w1, w2 = weights(rng, geometry)
        base = logits(rng, batch, 3, vocab)
        rows = [
            Request(
                GREEDY if row == 1 else SAMPLED, 2**63 + row, 100 + row, 3, (0, vocab - 1)[row % 2]
            )
            for row in range(batch)
        ]
        expected = reference_outputs(w1, w2, rows, base).digest()
        cached = range(0, vocab, vocab // 4)
        solo = SampledBlock(
            Head.build(geometry, w1, w2, cached=cached, device=pair[0]),
            SoloLink(ROWS, device=pair[0]),
            batch=batch,
            n_out=3,
        )
        solo.load(rows, base)
        solo.poison()
        solo.run()
        heads = [
            Head.build(geometry, w1, w2, cached=cached, shards=(rank,), device=pair[rank])
            for rank in (0, 1)
        ]
        both = ProbedPair(heads, batch, 3)
        both.load(rows, base)
        both.run()
        found = [solo.outputs().digest(), *(block.outputs().digest() for block in both.blocks)]
        print(
            f"V {vocab}: solo, rank 0, rank 1 equal the reference: {[d == expected for d in found]}"
        )
        if found != [expected] * 3:
            wrong.append(f"V {vocab}")
        if vocab == 1003:
            wrong += _missing_peer(both)
    return wrong


def _missing_peer(both: ProbedPair) -> list[str]:
    """Launch one rank alone: it must end at its budget, and the other must know at once."""
    spans = []
    for rank in (0, 1):
        began = time.monotonic()
        with torch.cuda.device(both.devices[rank]):
            both.blocks[rank].run()
        both.settle()
        spans.append(time.monotonic() - began)
    words = [link.words() for link in both.links]
    budget = BOUNDS.first_ns / 1e9
    print(f"rank 0 alone: {spans[0]:.4f} s of {budget} s; then rank 1: {spans[1]:.4f} s")
    good = spans[0] < BOUNDS.first_ns * 1.1e-9 and all(
        max(word.own, word.peer) is Fault.PEER_TIMEOUT for word in words
    )
    return [] if good else [f"missing peer: {spans}, {words}"]


def timed(pair: list[torch.device], replays: int) -> list[dict[str, object]]:
    """Time per position for the production vocabulary, cached and uncached."""
    rng = np.random.default_rng(SEED)
    rows: list[dict[str, object]] = []
    for tile, warps in ((2048, 4), (4096, 8)):
        geometry = Geometry(vocab=129280, split=64640, tile=tile, warps=warps)
        w1, w2 = weights(rng, geometry)
        bare = [Head.build(geometry, w1, w2, shards=(rank,), device=pair[rank]) for rank in (0, 1)]
        for cached in (True, False):
            heads = [_filled(head, rng) for head in bare] if cached else bare
            for batch in (1, 8, 32):
                both = ProbedPair(heads, batch, DEPTH)
                requests = [Request(SAMPLED, row, 1, 1, row) for row in range(batch)]
                both.load(requests, logits(rng, batch, DEPTH, geometry.vocab))
                found = sorted(both.times(replays)[replays // 10 :])
                digests = {block.outputs().digest() for block in both.blocks}
                if len(digests) != 1 or not all(link.words().clean for link in both.links):
                    raise RuntimeError(f"no time on a red check: {digests}")
                row = {
                    "rows": "cached" if cached else "uncached",
                    "batch": batch,
                    "tile": tile,
                    "warps": warps,
                    "median_us": round(statistics.median(found), 2),
                    "p99_us": round(found[int(len(found) * 0.99)], 2),
                }
                print(row, flush=True)
                rows.append(row)
    return rows


def _filled(head: Head, rng: np.random.Generator) -> Head:
    """A head with every token cached: 64 random rows stand for all, since only time matters."""
    shape = (1, 64, head.geometry.stride)
    values = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)).bfloat16()
    slots = torch.arange(head.target_vocab, dtype=torch.int32, device=head.w1.device) % 64
    return replace(head, bias=values.view(torch.int16).to(head.w1.device), slot_of=slots)


def main() -> int:
    """Check, then time."""
    parser = argparse.ArgumentParser(description="Equality and time of the fused kernel on GPUs.")
    parser.add_argument("--replays", type=int, default=500)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: neither equality on a GPU nor time can be measured", file=sys.stderr)
        return 3
    pair = devices()
    print([torch.cuda.get_device_name(device) for device in pair], torch.__version__)
    wrong = check(pair)
    if wrong:
        print(f"wrong: {wrong}", file=sys.stderr)
        return 1
    rows = timed(pair, asked.replays)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
