"""The process group of two ranks: what the original selector gathers through."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, ProcessGroup, Store

LIMIT = timedelta(seconds=60)


def join(rank: int, path: Path, backend: str) -> tuple[Store, ProcessGroup]:
    """Meet the other rank in a file and make the default group; -> (where they met, the group).

    Args:
        rank: 0 or 1.
        path: a file that both ranks may write, new for every pair.
        backend: of torch.distributed.
    """
    # not by URL: torch takes the percent signs of an encoded path for part of its name
    store = FileStore(str(path.resolve()), 2)
    dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=LIMIT)
    whole = dist.group.WORLD
    if whole is None:
        raise RuntimeError("torch.distributed made no default group")
    return store, whole


def gather(mine: torch.Tensor) -> torch.Tensor:
    """``[B, 2]`` of this rank -> ``[2, B, 2]`` of both, in rank order."""
    both = mine.new_empty((2, *mine.shape))
    dist.all_gather_into_tensor(both.view(-1, *mine.shape[1:]), mine)
    return both
