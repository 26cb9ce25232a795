"""The original selector beside the sampled path, and the branch between them."""

from __future__ import annotations

import torch

from pp4.drafter.heads import HeadMode, Heads, Original
from pp4.drafter.selector import GreedyOutputs, OriginalSelector
from pp4.kernels.graph import RecordedGraph
from pp4.wire.facts import Block, Case, Selected
from pp4.worker import inputs
from pp4.worker.bench import Bench


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
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._captured: dict[tuple[int, int], tuple[OriginalSelector, Original]] = {}
        self._off: dict[tuple[int, int], GreedyOutputs] = {}

    def _columns(self) -> tuple[int, int]:
        """First and past-the-last column of this rank."""
        geometry = self._bench.require_geometry()
        if self._bench.device.shards == 2:
            return 0, geometry.vocab
        return geometry.bounds[self._bench.rank]

    def captured(self, case: Case) -> tuple[OriginalSelector, Original]:
        """The buffers of a case's shape and their graph, the same ones every time."""
        shape = (case.batch, case.n_out)
        if shape not in self._captured:
            geometry, device = self._bench.require_geometry(), self._bench.device
            w1, w2 = inputs.weights(geometry, device.where)
            first, last = self._columns()
            selector = OriginalSelector(
                w1.view(torch.bfloat16),
                w2[first:last].view(torch.bfloat16),
                first_id=first,
                gather=device.gather,
                batch=case.batch,
                n_out=case.n_out,
            )
            self._captured[shape] = selector, device.original(selector)
        return self._captured[shape]

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
        selector, original = self.captured(case)
        self.load(selector, case)
        sampled: dict[tuple[int, int], _Reporting] | None = {} if switch else None
        if sampled is not None and graph is not None:
            sampled[shape] = _Reporting(self._bench, self._bench.graph(graph))
            self._bench.load(sampled[shape].block, case)
        chosen = Heads({shape: original}, sampled).select(shape, case.modes, head_mode)
        if not switch:
            self._off[shape] = selector.outputs
        kept = isinstance(chosen, GreedyOutputs)
        return Selected(
            rank=0 if self._bench.rank == 0 else 1,
            path="original" if kept else "sampled",
            same_objects=chosen is self._off.get(shape),
            tokens=tuple(tuple(int(token) for token in row) for row in chosen.token),
            q_zero=not bool(chosen.q.any()),
            block=None if kept or not sampled else sampled[shape].report,
        )

    def load(self, selector: OriginalSelector, case: Case) -> None:
        """Rewrite a selector's inputs for a case and poison its tokens."""
        geometry, where = self._bench.require_geometry(), self._bench.device.where
        first, last = self._columns()
        base = inputs.logits(geometry, case, where)[..., first:last]
        selector.base.copy_(base.view(torch.bfloat16))
        anchors = [request.anchor for request in inputs.requests(geometry, case)]
        selector.anchor.copy_(torch.tensor(anchors))
        selector.outputs.token.fill_(-1)
