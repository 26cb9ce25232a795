"""Two rank processes on two GPUs over symmetric memory; prints one JSON line for each finding.

Run by test_symmetric_link.py in a process of its own, since the ranks are forked and kernels here
must be compiled, not interpreted.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from pp4.kernels import reference
from pp4.kernels.block import Request, SampledBlock
from pp4.kernels.expected import reference_outputs
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head
from pp4.kernels.link import Bounds
from pp4.kernels.sampled_fused import GREEDY, SAMPLED
from pp4.kernels.symmetric import Rendezvous, SymmetricMemoryLink

BUDGET_NS = 1_000_000_000
GEOMETRY = Geometry(vocab=20011, split=10007, tile=512, rank_dim=64)
BATCH, N_OUT, BLOCKS = 3, 5, 4


def say(rank: int, **found: object) -> None:
    print(json.dumps({"rank": rank, **found}), flush=True)


def _inputs(seed: int) -> tuple[list[Request], np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (BATCH, N_OUT, GEOMETRY.vocab)
    base = reference.round_bf16(rng.standard_normal(shape, dtype=np.float32) * np.float32(3))
    requests = [
        Request(
            GREEDY if row == 1 else SAMPLED,
            int(rng.integers(1 << 63)),
            row + seed,
            seed,
            int(rng.integers(GEOMETRY.vocab)),
        )
        for row in range(BATCH)
    ]
    return requests, base


def _weights() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    size = (GEOMETRY.vocab, GEOMETRY.rank_dim)
    w1 = reference.round_bf16(rng.standard_normal(size, dtype=np.float32))
    return w1, reference.round_bf16(rng.standard_normal(size, dtype=np.float32) * np.float32(0.1))


def rank_main(rank: int, directory: Path) -> None:
    store = dist.FileStore(str(directory / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    meeting = Rendezvous(store, rank, "test", timedelta(seconds=60))
    device = torch.device("cuda", rank)
    link = SymmetricMemoryLink(
        meeting,
        group=dist.group.WORLD,
        device=device,
        peer=torch.device("cuda", 1 - rank),
        rows=BATCH,
        start=77,
        bounds=Bounds(first_ns=BUDGET_NS, next_ns=BUDGET_NS),
    )
    w1, w2 = _weights()
    head = Head.build(GEOMETRY, w1, w2, cached=range(64), shards=(rank,), device=device)
    with torch.cuda.device(device):
        block = SampledBlock(head, link, batch=BATCH, n_out=N_OUT)
        block.launch(0)  # inactive rows: loads the module, exchanges nothing
        torch.cuda.synchronize()
        for seed in range(BLOCKS):
            requests, base = _inputs(seed)
            block.load(requests, base)
            block.poison()
            torch.cuda.synchronize()
            meeting.agree("")
            block.run()
            out = block.outputs()
            say(
                rank,
                block=seed,
                equal=out.digest() == reference_outputs(w1, w2, requests, base).digest(),
                clean=link.words().clean,
                stamps=bool((out.stamp[:, -1] == 77 + N_OUT * (seed + 1)).all()),
            )
        meeting.agree("")
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        _survive(rank, block, link, device)


def _survive(
    rank: int, block: SampledBlock, link: SymmetricMemoryLink, device: torch.device
) -> None:
    spans = []
    for _ in range(2):
        began = time.monotonic_ns()
        block.run()
        torch.cuda.synchronize()
        spans.append(time.monotonic_ns() - began)
    say(
        rank,
        waited_ns=spans[0],
        budget_ns=BUDGET_NS,
        again_ns=spans[1],
        own=link.words().own.name,
        errors=sorted({int(code) for code in block.outputs().error.ravel()}),
        context=float(torch.ones(7, device=device).sum()),
    )
    link.close()


def main() -> None:
    directory = Path(sys.argv[1])
    pids = []
    for rank in (0, 1):
        pid = os.fork()
        if pid == 0:
            try:
                rank_main(rank, directory)
            except BaseException as error:
                say(rank, failed=f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
