"""What a whole drafted block costs on GPUs: on the device, on the host, and to start.

``python -m benchmarks.whole_block`` takes one GPU (``--solo``) or the first pair, and a checkpoint
of random weights with real sizes, and serves it with two ranks of the product.  One JSON document
per line; times are microseconds, medians and 99th percentiles.  Replies are compared with those of
a second run of the same requests first: no time is told of a block that is not reproduced.
"""

import argparse
import asyncio
import itertools
import json
import secrets
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from pp4.drafter.checkpoint import synthetic
from pp4.drafter.checkpoint.survey import survey
from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import capture
from pp4.wire.facts import Waits
from pp4.worker import cuda, rank
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.drafting import Part, Row
from pp4.worker.gpus import read_gpus
from pp4.worker.serving.owner import PairDrafting
from pp4.worker.serving.rank import ServingRank
from pp4.worker.serving.setup import Setup, check

TOKENS = 300


def spread(times):
    """Median and 99th percentile."""
    ordered = sorted(times)
    return {
        "median_us": round(statistics.median(ordered), 2),
        "p99_us": round(ordered[int(len(ordered) * 0.99)], 2),
        "count": len(ordered),
    }


class TimedRank(ServingRank):
    """A rank that also times replays of a shape, without a host between them."""

    def __init__(self, bench, arena):
        super().__init__(bench, arena)
        self.verbs |= {"bench.time": self._time, "bench.profile": self._profile}
        self._heads = {}

    def _time(self, given):
        """Replay what is in the arena; the device's own clock counts each block."""
        shape, times = (given["batch"], given["n_out"]), given["times"]
        replay = self._replay(shape, given["what"])
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
        marks[0].record()
        for mark in marks[1:]:
            replay()
            mark.record()
        torch.cuda.synchronize()
        pairs = itertools.pairwise(marks)
        return {"us": [first.elapsed_time(last) * 1e3 for first, last in pairs]}

    def _replay(self, shape, what):
        drafter = self._drafter
        if what != "heads":
            captured = drafter._sampled if what == "sampled" else drafter._original
            return captured[shape].replay
        if shape not in self._heads:
            stage = drafter._stages[shape]
            block = drafter._block(stage, self._bench.link)
            if not isinstance(block, SampledBlock):
                raise TypeError("no kernel to time")
            block.chain[:, 0].copy_(stage.inputs.anchor)
            self._heads[shape] = (block, capture(block.run))
        return self._heads[shape][1].replay

    def _profile(self, given):
        """One block as the product runs it, seen by the profiler."""
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            self._draft(given)
        names = [event.name for event in seen.events()]
        wanted = ("Memcpy", "Memset", "cudaMemcpy", "cudaGraphLaunch", "Synchronize", "cudaLaunch")
        told = [name for name in names if any(word in name for word in wanted)]
        return {"calls": {name: told.count(name) for name in sorted(set(told))}}


class Bench:
    """Two ranks with open requests."""

    def __init__(self, asked, gpus, directory):
        self.asked, self.random = asked, np.random.default_rng(1)
        config = survey(asked.checkpoint, None).config
        setup = Setup(
            checkpoint=asked.checkpoint,
            target=None,
            batches=tuple(asked.batches),
            depths=(asked.depth,),
            slots=max(asked.batches),
            context=asked.context,
            cache_mib=asked.cache_mib,
            sampled=True,
            waits=Waits(),
            nonce=secrets.token_hex(8),
            fence=1,
        )
        check(setup, config)
        self.config = config
        self.began = time.monotonic()
        homes = Homes(Path(directory), asked.compiled)
        self.drafting = PairDrafting(homes, Seats(gpus, solo=asked.solo), setup, config)
        self.round = 0

    async def start(self):
        await self.drafting.prime()
        primed = time.monotonic() - self.began
        await self.drafting.serve()
        said = {"primed_s": primed, "serving_s": time.monotonic() - self.began}
        print(json.dumps({"start": {name: round(each, 2) for name, each in said.items()}}))

    async def open(self, count):
        width = self.config.feature_width
        for request in range(count):
            await self.drafting.open(request)
            values = self.random.normal(size=(TOKENS, width)).astype(np.float32)
            features = (values.view(np.uint32) >> 16).astype(np.uint16)
            part = Part(request, TOKENS, memoryview(features.tobytes()))
            (told,) = await self.drafting.append([part])
            if told != TOKENS:
                raise SystemExit(f"features of request {request}: {told}")

    def rows(self, batch, *, sampled=True):
        self.round += 1
        return [
            Row(one, 1000 + one, TOKENS + 1, self.round, 7 + one, sampled) for one in range(batch)
        ]

    async def draft(self, batch, *, sampled=True):
        return await self.drafting.draft(self.asked.depth, self.rows(batch, sampled=sampled))

    async def check(self, batch):
        """The same requests twice give the same bytes."""
        rows = self.rows(batch)
        first = await self.drafting.draft(self.asked.depth, rows)
        if first != await self.drafting.draft(self.asked.depth, rows):
            raise SystemExit(f"B = {batch}: a block is not reproduced")

    async def on_host(self, batch, *, sampled):
        times = []
        for _ in range(self.asked.host_times):
            began = time.perf_counter()
            await self.draft(batch, sampled=sampled)
            times.append((time.perf_counter() - began) * 1e6)
        return spread(times)

    async def on_device(self, batch, what):
        depth, times = self.asked.depth, self.asked.times
        # the inputs of the last draft of this size lie in the buffers of its shape
        await self.draft(batch, sampled=what != "original")
        given = {"batch": batch, "n_out": depth, "times": times, "what": what}
        found = await self.drafting._ranks.both("bench.time", given, 120.0)
        if what != "original":
            for _ in range(times):
                self.drafting._epochs.advance([1] * batch, depth)
        return spread(found[0]["us"][20:])

    async def profile(self, batch):
        rows = self.rows(batch)
        modes = self.drafting._write(batch, rows)
        given = {"batch": batch, "n_out": self.asked.depth, "rows": batch}
        found = await self.drafting._ranks.both("bench.profile", given, 120.0)
        self.drafting._epochs.advance(modes, self.asked.depth)
        return found[0]["calls"]


async def measured(bench):
    await bench.start()
    asked = bench.asked
    await bench.open(max(asked.batches))
    for batch in asked.batches:
        await bench.check(batch)
        for _ in range(60):
            # the cache fills with what these requests draft
            await bench.draft(batch)
        line = {"batch": batch, "depth": asked.depth, "hit_rate": None}
        hits, misses = bench.drafting.cache_hits, bench.drafting.cache_misses
        line["host_on"] = await bench.on_host(batch, sampled=True)
        now = bench.drafting.cache_hits - hits, bench.drafting.cache_misses - misses
        line["hit_rate"] = round(now[0] / max(1, sum(now)), 4)
        line["host_off"] = await bench.on_host(batch, sampled=False)
        for what in ("sampled", "heads", "original"):
            line[f"device_{what}"] = await bench.on_device(batch, what)
        print(json.dumps(line), flush=True)
    print(json.dumps({"profile_of_one_block": await bench.profile(asked.batches[0])}))
    print(json.dumps({"teardown": await bench.drafting.teardown()}))


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--solo", action="store_true")
    parser.add_argument("--vocab", type=int, default=129280)
    parser.add_argument("--hidden", type=int, default=2560)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--intermediate", type=int, default=9728)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--cache-mib", type=int, default=256)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--host-times", type=int, default=300)
    parser.add_argument("--compiled", type=Path, default=Path("/tmp/pp4-compiled"))
    return parser.parse_args()


def write(asked):
    """A checkpoint of the sizes of a drafter for a model of some four billion weights."""
    sizes = {
        "vocab": asked.vocab,
        "hidden": asked.hidden,
        "layers": asked.layers,
        "intermediate": asked.intermediate,
        "heads": 32,
        "kv-heads": 8,
        "head-dim": 128,
        "positions": 4096,
        "block": 5,
        "rank": 256,
    }
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    if synthetic.main([str(asked.checkpoint), *words]):
        raise SystemExit("whole_block: no checkpoint could be written")


def main():
    asked = parsed()
    if not torch.cuda.device_count():
        print("whole_block: no GPU here; nothing can be measured", file=sys.stderr)
        return 3
    gpus = tuple(gpu.uuid for gpu in read_gpus().gpus[: 1 if asked.solo else 2])
    rank.ServingRank = TimedRank
    cuda.preload()
    with tempfile.TemporaryDirectory(prefix="pp4-whole-block-") as directory:
        if asked.checkpoint is None:
            asked.checkpoint = Path(directory) / "checkpoint"
            began = time.monotonic()
            write(asked)
            print(json.dumps({"checkpoint_s": round(time.monotonic() - began, 1)}))
        home = Path(directory) / "pair"
        home.mkdir()
        bench = Bench(asked, gpus, home)
        asyncio.run(measured(bench))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
