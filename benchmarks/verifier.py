"""The verifier on one GPU, by kernels and by torch's operators: equal first, then timed.

``python -m benchmarks.verifier`` ends with 0 where all is well, 1 where a member of any verdict
differs or something was compiled after priming (then no time is told), 2 where all is right and
only the target of speed is missed, 3 where there is no GPU.  One JSON document per line, then a
table; times are microseconds, medians and 99th percentiles.  Targets are rotated, so that a replay
never finds its own in the L2 cache.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import time

import torch
import triton

from pp4.kernels import dyadic24
from pp4.kernels.loading import forbid_compilation
from pp4.kernels.vectorised_rows import allocate, draw
from pp4.verifier import fused, vectorised
from pp4.verifier.batch import Batch
from pp4.verifier.flaws import Flaw
from pp4.verifier.units import MAX_VOCABULARY, Mode
from pp4.verifier.vectorised import Verdicts

SHAPES = ((64, 5, 151936), (64, 5, 129280), (8, 5, 151936), (1, 5, 151936))
TARGET_US = {(64, 5, 151936): 1000}
PATHS = {"kernels": vectorised.verify, "operators": vectorised.by_operators}
MIXED = (Mode.SAMPLED, Mode.GREEDY_T0, Mode.DELTA, Mode.SAMPLED, Mode.INACTIVE, Mode.DELTA)
WARM = 20


def spread(times):
    """Median and 99th percentile."""
    ordered = sorted(times)
    return {
        "median_us": round(statistics.median(ordered), 2),
        "p99_us": round(ordered[int(len(ordered) * 0.99)], 2),
        "count": len(ordered),
    }


def inputs(shape, seed, modes, device, dtype=torch.float32):
    """A target, and proposals of a drafter that is near it."""
    count, depth, vocabulary = shape
    state = torch.Generator(device).manual_seed(seed)
    logits = torch.randn(count, depth + 1, vocabulary, generator=state, device=device) * 3
    noise = torch.randn(count, depth, vocabulary, generator=state, device=device)
    drafted = (logits[:, :depth] + noise * 0.3).to(torch.bfloat16).float()
    values, ids = drafted.topk(dyadic24.WIDTH, dim=2)
    flat = values.view(-1, dyadic24.WIDTH)
    tickets = allocate(flat, torch.ones_like(flat, dtype=torch.bool))
    ticket = torch.randint(dyadic24.TICKETS, (len(flat),), generator=state, device=device)
    mode = torch.tensor(
        [int(modes[row % len(modes)]) for row in range(count)], dtype=torch.int32, device=device
    )
    sampled = (mode == Mode.SAMPLED)[:, None]
    place = torch.where(sampled, draw(tickets, ticket).view(count, depth), 0)
    words = torch.randint(2**32, (3, count), generator=state, device=device)
    batch = Batch(
        ids=ids.to(torch.int32),
        tickets=torch.where(sampled[:, :, None], tickets.view(ids.shape), 0).to(torch.int32),
        tokens=ids.gather(2, place[:, :, None])[:, :, 0].to(torch.int32),
        mode=mode,
        key=words[0] << 31,
        position=words[1] >> 1,
        round=words[2],
    )
    return (logits / 0.8).to(dtype).softmax(dim=2), batch


def damaged(target, batch):
    """Flaws of the proposal in some rows, of the target in others; none in the rest."""
    count, depth = batch.tokens.shape
    for row in range(0, count, 7):
        batch.ids[row, row % depth, row % 32] = batch.ids[row, row % depth, (row + 9) % 32]
    for row in range(3, count, 11):
        target[row, row % (depth + 1), 5 * row] = (float("nan"), -1e-9, 1.5)[row % 3]
    return target, batch


def members(verdicts):
    return {one.name: getattr(verdicts, one.name) for one in dataclasses.fields(verdicts)}


def unequal(found, expected):
    """Names of the members that differ."""
    theirs = members(expected)
    return [name for name, one in members(found).items() if not torch.equal(one, theirs[name])]


def differences(shape, dtype, device):
    """Members of verdicts that the two paths do not have in common; and what was verified."""
    wrong, seen = [], set()
    for seed, harm in itertools.product(range(3), (False, True)):
        target, batch = inputs(shape, seed, MIXED, device, dtype)
        if harm:
            target, batch = damaged(target, batch)
        found, expected = (path(target, batch) for path in PATHS.values())
        for name in unequal(found, expected):
            wrong.append(f"{shape} {dtype} seed {seed}: {name}")
        columns = (batch.mode.tolist(), found.accepted.tolist(), found.error.tolist())
        seen |= set(zip(*columns, strict=True))
    return wrong, seen


def captured(path, target, batch):
    """A graph of one call, and its results, which keep its memory."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        path(target, batch)
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = path(target, batch)
    return graph, found


def on_device(replays, times):
    """Replay after replay; the device's own clock counts each."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + WARM + 1)]
    rotated = itertools.cycle(replays)
    marks[0].record()
    for mark in marks[1:]:
        next(rotated)()
        mark.record()
    torch.cuda.synchronize()
    pairs = itertools.pairwise(marks)
    return spread([first.elapsed_time(last) * 1e3 for first, last in pairs][WARM:])


def on_host(path, cases, times):
    """A call from Python until its results are there."""
    rotated, found = itertools.cycle(cases), []
    for _ in range(times + WARM):
        target, batch = next(rotated)
        torch.cuda.synchronize()
        began = time.perf_counter()
        path(target, batch)
        torch.cuda.synchronize()
        found.append((time.perf_counter() - began) * 1e6)
    return spread(found[WARM:])


def peak(path, target, batch):
    """MiB that a call has alive at once besides what it is given."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    found = path(target, batch)
    torch.cuda.synchronize()
    del found
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 2)


def copied(device):
    """Bytes per microsecond of a copy, read and written ones counted."""
    source = torch.randint(255, (1 << 31,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found = on_device([lambda: target.copy_(source)], 30)
    return 2 * source.numel() / found["median_us"]


def shares(target, batch):
    """Microseconds of each kernel, by the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(10):
            vectorised.verify(target, batch)
        torch.cuda.synchronize()
    events = [one for one in seen.key_averages() if one.self_device_time_total > 0]
    return {one.key[:40]: round(one.self_device_time_total / one.count, 2) for one in events}


def measured(shape, asked, rate, device):
    count, depth, vocabulary = shape
    size = count * (depth + 1) * vocabulary * 4
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    needed = min(64, -(-3 * cache // size))
    cases = [inputs(shape, seed, (Mode.SAMPLED,), device) for seed in range(needed)]
    line = {"shape": shape, "targets": needed, "bytes": size, "bound_us": round(size / rate, 1)}
    for name, path in PATHS.items():
        graphs = [captured(path, *case) for case in cases]
        line[f"{name}_graph"] = on_device([graph.replay for graph, _ in graphs], asked.times)
        del graphs
        torch.cuda.empty_cache()
        line[f"{name}_eager"] = on_host(path, cases, asked.times)
        line[f"{name}_peak_mib"] = peak(path, *cases[0])
    line["accepted"] = round(float(vectorised.verify(*cases[0]).accepted.float().mean()), 2)
    return line


def swept(shape, asked, device):
    """Graphs of other tilings; whether each is equal to the one in use."""
    target, batch = inputs(shape, 0, (Mode.SAMPLED,), device)
    expected, right = vectorised.verify(target, batch), True
    for tile, scan_warps, row_warps in itertools.product((2048, 4096), (4, 8), (2, 4, 8)):
        tiling = fused.Tiling(tile, 64, MAX_VOCABULARY // tile, scan_warps, row_warps)
        found = Verdicts(*(torch.full_like(one, 77) for one in members(expected).values()))

        def launch(target, batch, tiling=tiling, found=found):
            fused.launch(target, batch, found, None, tiling)

        graph, _ = captured(launch, target, batch)
        line = {"shape": shape, "tile": tile, "warps": (scan_warps, row_warps)}
        line["graph"] = on_device([graph.replay], asked.times)
        line["wrong"] = unequal(found, expected)
        right = right and not line["wrong"]
        print(json.dumps(line), flush=True)
    return right


def table(lines):
    """The lines as Markdown."""
    print("\n| B, n, V | bound | graph | p99 | eager | p99 | torch: graph | eager | MiB, torch's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for line in lines:
        kernels = [line[f"kernels_{how}"] for how in ("graph", "eager")]
        operators = [line[f"operators_{how}"]["median_us"] for how in ("graph", "eager")]
        cells = [
            ", ".join(map(str, line["shape"])),
            line["bound_us"],
            *(one[what] for one in kernels for what in ("median_us", "p99_us")),
            *operators,
            f"{line['kernels_peak_mib']}, {line['operators_peak_mib']}",
        ]
        print("|", " | ".join(map(str, cells)), "|")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=300, help="of each measurement, 200 or more")
    parser.add_argument("--sweep", action="store_true", help="time other tilings as well")
    return parser.parse_args()


def checked(device):
    """Whether both paths agree everywhere."""
    wrong, seen = [], set()
    small = ((13, 5, 20011), (6, 5, 33), (6, 5, 1 << 18))
    for shape, dtype in itertools.product((*SHAPES, *small), (torch.float32, torch.float64)):
        more, reached = differences(shape, dtype, device)
        wrong, seen = wrong + more, seen | reached
        torch.cuda.empty_cache()
    modes = {mode for mode, *_ in seen}
    flaws = {error for *_, error in seen}
    print(json.dumps({"wrong": wrong, "modes": sorted(modes), "errors": sorted(flaws)}))
    if not modes >= set(Mode) or not flaws >= {Flaw.NONE, Flaw.DISTINCT, Flaw.TARGET}:
        print("verifier: the inputs do not reach every end", file=sys.stderr)
        return False
    return not wrong


@torch.inference_mode()
def main():
    asked = parsed()
    if not torch.cuda.device_count():
        print(
            "verifier: no GPU here; times, bandwidth and memory cannot be measured",
            file=sys.stderr,
        )
        return 3
    device = torch.device("cuda", 0)
    said = {"gpu": torch.cuda.get_device_name(device), "torch": torch.__version__}
    began = time.monotonic()
    built = [
        one for dtype in (torch.float32, torch.float64) for one in fused.prime(5, device, dtype)
    ]
    said |= {"triton": triton.__version__, "primed_s": round(time.monotonic() - began, 2)}
    print(json.dumps({**said, "resident": [one.resident for one in built]}), flush=True)
    compiled = []
    allow = forbid_compilation(lambda name, key: compiled.append(name))
    right = checked(device)
    allow()
    if compiled or not right:
        print(f"verifier: wrong; compiled after priming: {compiled}", file=sys.stderr)
        return 1
    rate, lines, slow = copied(device), [], []
    print(json.dumps({"copy_tb_per_s": round(rate / 1e6, 2)}))
    for shape in SHAPES:
        lines.append(measured(shape, asked, rate, device))
        print(json.dumps(lines[-1]), flush=True)
        torch.cuda.empty_cache()
        if lines[-1]["kernels_graph"]["median_us"] > TARGET_US.get(shape, float("inf")):
            slow.append(shape)
    table(lines)
    print(f"slower than wanted: {slow or 'nothing'}")
    for shape in SHAPES:
        alone = shares(*inputs(shape, 0, (Mode.SAMPLED,), device))
        print(json.dumps({"shape": shape, "kernels_us": alone}), flush=True)
    if asked.sweep and not all(swept(shape, asked, device) for shape in SHAPES):
        print("verifier: another tiling gives another verdict", file=sys.stderr)
        return 1
    return 2 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
