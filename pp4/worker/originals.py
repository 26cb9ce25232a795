"""The original selector and the branch beside the sampled graphs, on one rank."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from pp4.drafter.heads import HeadMode, Heads
from pp4.drafter.selector import GreedyOutputs, OriginalSelector
from pp4.kernels.graph import RecordedGraph
from pp4.kernels.reference import Row
from pp4.wire.facts import Block, Case, Selected
from pp4.worker import inputs
from pp4.worker.bench import Bench

_LIMIT = timedelta(seconds=60)


def _bf16(values: Row) -> torch.Tensor:
    return torch.from_numpy(values).to(torch.bfloat16)


class _Reporting:
    """A sampled graph that keeps what its replay reports: the owner decides about that too."""

    def __init__(self, bench: Bench, graph: RecordedGraph) -> None:
        self._bench, self._graph = bench, graph
        self.block = graph.block
        self.report: Block | None = None

    def replay(self) -> None:
        self.report = self._bench.replay(self._graph)


class Originals:
    """Captured original selectors by shape, and what they gave with the switch OFF.

    Args:
        bench: the rank's exercises; its sampled graphs stand on the other side of the branch.
        store: file through which both ranks find each other, new for every pair.
    """

    def __init__(self, bench: Bench, store: Path) -> None:
        self._bench = bench
        self._selectors: dict[tuple[int, int], OriginalSelector] = {}
        self._off: dict[tuple[int, int], GreedyOutputs] = {}
        dist.init_process_group(
            "gloo",
            # not by URL: torch takes the percent signs of an encoded path for part of its name
            store=FileStore(str(store.resolve()), 2),
            rank=bench.rank,
            world_size=2,
            timeout=_LIMIT,
        )

    def _gather(self, mine: torch.Tensor) -> torch.Tensor:
        both = [torch.empty_like(mine), torch.empty_like(mine)]
        dist.all_gather(both, mine)
        return torch.stack(both)

    def _selector(self, case: Case) -> OriginalSelector:
        shape = (case.batch, case.n_out)
        if shape not in self._selectors:
            geometry = self._bench.require_geometry()
            w1, w2 = inputs.weights(geometry)
            first, last = geometry.bounds[self._bench.rank]
            self._selectors[shape] = OriginalSelector(
                _bf16(w1),
                _bf16(w2[first:last]),
                first_id=first,
                gather=self._gather,
                batch=case.batch,
                n_out=case.n_out,
            )
        return self._selectors[shape]

    def select(
        self, case: Case, *, switch: bool, graph: str | None, head_mode: HeadMode
    ) -> Selected:
        """Run one block through the branch and say which way it went.

        Args:
            case: the inputs.
            switch: whether sampled drafting is on.
            graph: the captured sampled graph of this shape, None where there is none.
            head_mode: how the drafter wants its head run.
        """
        shape = (case.batch, case.n_out)
        selector = self._selector(case)
        self._load(selector, case)
        sampled: dict[tuple[int, int], _Reporting] | None = {} if switch else None
        if sampled is not None and graph is not None:
            sampled[shape] = _Reporting(self._bench, self._bench.graph(graph))
            self._bench.load(sampled[shape].block, case)
        chosen = Heads({shape: selector}, sampled).select(shape, case.modes, head_mode)
        if not switch:
            self._off[shape] = selector.outputs
        original = isinstance(chosen, GreedyOutputs)
        return Selected(
            rank=0 if self._bench.rank == 0 else 1,
            path="original" if original else "sampled",
            same_objects=chosen is self._off.get(shape),
            tokens=tuple(tuple(int(token) for token in row) for row in chosen.token),
            q_zero=not bool(chosen.q.any()),
            block=None if original or not sampled else sampled[shape].report,
        )

    def _load(self, selector: OriginalSelector, case: Case) -> None:
        geometry = self._bench.require_geometry()
        first, last = geometry.bounds[self._bench.rank]
        base = inputs.logits(geometry, case)[..., first:last]
        selector.base.copy_(_bf16(base.copy()))
        anchors = [request.anchor for request in inputs.requests(geometry, case)]
        selector.anchor.copy_(torch.tensor(anchors))
        selector.outputs.token.fill_(-1)
