"""What a rank can be asked to do while it is qualified: exercise the product, report facts.

Nothing here judges.  The blocks, links, graphs and selectors are the product's own; a control runs
only where a launch names it.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from pp4.errors import Code, Refusal, RefusedError
from pp4.kernels import pattern
from pp4.kernels.block import Outputs, SampledBlock
from pp4.kernels.controls import build
from pp4.kernels.controls.frozen import FrozenInputGraph
from pp4.kernels.dyadic24 import definition_digest
from pp4.kernels.expected import reference_outputs
from pp4.kernels.geometry import Geometry
from pp4.kernels.graph import RecordedGraph
from pp4.kernels.head import Head
from pp4.kernels.link import EPOCH_LIMIT, Bounds, Link, SharedMemoryLink, SoloLink
from pp4.kernels.priming import Priming, specialisation
from pp4.wire.facts import (
    Block,
    Case,
    Expectation,
    Grid,
    Identity,
    Launch,
    Pattern,
    Shape,
    Source,
    Waits,
)
from pp4.worker import inputs
from pp4.worker.libraries import mapping_digest

Pause = Callable[[str], None]
"""Says how far it is and returns when the owner lets it go on."""


def _grid(array: Any) -> Grid:
    return tuple(tuple(int(value) for value in row) for row in array)


class Bench:
    """One rank's side of the exercises.

    Args:
        rank: 0 or 1.
        directory: a directory that both ranks may write.
        pause: how to report progress and wait for the owner.
    """

    def __init__(self, rank: int, directory: Path, pause: Pause) -> None:
        self.rank, self.directory, self.pause = rank, directory, pause
        self.priming = Priming()
        self.geometry: Geometry | None = None
        self._link: SharedMemoryLink | None = None
        self._heads: dict[tuple[str, int], Head] = {}
        self._blocks: dict[tuple[str, int, int, str], SampledBlock] = {}
        self._graphs: dict[str, RecordedGraph] = {}
        self._mutants: dict[str, Any] = {}

    # -- who and what -----------------------------------------------------------------------

    def identity(self) -> Identity:
        """Who this rank is; its device is logical where the kernels are interpreted."""
        return Identity(
            rank=self.rank,
            pid=os.getpid(),
            device=f"interpreter-{self.rank}",
            device_name="Triton interpreter",
            python=platform.python_version(),
            torch=version("torch"),
            triton=version("triton"),
            mapped=mapping_digest(),
        )

    def primed(self, shape: Shape, shards: int) -> str:
        """Take a shape's specialisation as compiled and loaded; -> its key."""
        geometry = inputs.geometry_of(shape)
        key = specialisation(geometry, shards)
        self.priming.add(key)
        self.geometry = geometry
        return key

    # -- the link ---------------------------------------------------------------------------

    def make_link(self, generation: int, rows: int, waits: Waits, start: int) -> None:
        """Make this rank's workspace of a new link."""
        if self._link is not None:
            self._link.close()
        self._blocks.clear()
        self._graphs.clear()
        own, peer = (
            self.directory / f"link-{generation}-rank-{rank}" for rank in (self.rank, 1 - self.rank)
        )
        bounds = Bounds(
            first_ns=waits.first_ns,
            next_ns=waits.next_ns,
            first_polls=waits.first_polls,
            next_polls=waits.next_polls,
            epoch_limit=EPOCH_LIMIT if waits.epochs is None else start + waits.epochs,
        )
        self._link = SharedMemoryLink(
            own, peer, rank=self.rank, rows=rows, start=start, bounds=bounds
        )

    @property
    def link(self) -> SharedMemoryLink:
        """The link; refuses where none was made."""
        if self._link is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "link", "a rendezvous", "none was made"))
        return self._link

    def exchange_pattern(self, writer: int, seed: int, epochs: int, flip_at: int) -> Pattern:
        """Write patterns to the peer or read them, depending on who writes."""
        own, peer = self.link.inboxes()
        words = pattern.WORDS
        if self.rank == writer:
            pattern.write(peer, peer[words : words + 2], seed, epochs, flip_at=flip_at, limit_s=60)
            wrong = 0
        else:
            wrong = pattern.read(own, own[words : words + 2], seed, epochs, limit_s=60)
        return Pattern(rank=self.rank, epochs=epochs, mismatches=wrong)

    # -- blocks -----------------------------------------------------------------------------

    def require_geometry(self) -> Geometry:
        """The primed geometry; refuses where nothing was primed."""
        if self.geometry is None:
            raise RefusedError(
                Refusal(Code.UNPRIMED, "block", "a primed specialisation", "nothing was primed")
            )
        return self.geometry

    def _head(self, cached: str, shards: tuple[int, ...]) -> Head:
        key = (cached, len(shards))
        if key not in self._heads:
            geometry = self.require_geometry()
            w1, w2 = inputs.weights(geometry)
            tokens = inputs.cached_tokens(geometry, cached)
            self._heads[key] = Head.build(geometry, w1, w2, cached=tokens, shards=shards)
        return self._heads[key]

    def _mutant(self, control: str | None) -> Any:
        if control is None:
            return None
        if control not in self._mutants:
            home = self.directory / f"controls-{self.rank}-{os.getpid()}"
            home.mkdir(exist_ok=True)
            self._mutants[control] = build(control, home)._kernel
            self.priming.plant(self.require_geometry(), 1, control)
        return self._mutants[control]

    def sampled_block(self, case: Case, control: str | None = None) -> SampledBlock:
        """The buffers of a case's shape, the same ones every time."""
        key = (case.cached, case.batch, case.n_out, control or "")
        if key not in self._blocks:
            self._blocks[key] = SampledBlock(
                self._head(case.cached, (self.rank,)),
                self.link,
                batch=case.batch,
                n_out=case.n_out,
                kernel=self._mutant(control),
            )
        return self._blocks[key]

    def load(self, block: SampledBlock, case: Case) -> None:
        """Rewrite a block's inputs for a case and poison what it will write."""
        geometry = self.require_geometry()
        block.load(inputs.requests(geometry, case), inputs.logits(geometry, case))
        block.poison()

    def capture(self, name: str, case: Case, control: str | None) -> None:
        """Record a graph for a case's shape; ``frozen-input`` records one input by value."""
        frozen = control == "frozen-input"
        block = self.sampled_block(case, None if frozen else control)
        self.load(block, case)
        self._graphs[name] = (
            FrozenInputGraph(block, self.priming)
            if frozen
            else RecordedGraph(block, self.priming, control)
        )

    def graph(self, name: str) -> RecordedGraph:
        """A recorded graph by name."""
        if name not in self._graphs:
            raise RefusedError(
                Refusal(Code.MISSING_SAMPLED_GRAPH, name, "a captured graph", "none of that name")
            )
        return self._graphs[name]

    def run(self, case: Case, launch: Launch) -> Block:
        """Run one block and report what came out."""
        geometry = self.require_geometry()
        self.priming.require(specialisation(geometry, 1))
        if launch.graph is not None:
            graph = self.graph(launch.graph)
            self.load(graph.block, case)
            return self.replay(graph)
        block = self.sampled_block(case, launch.control)
        self.priming.require(specialisation(geometry, 1, launch.control))
        self.load(block, case)
        return self._timed(block, lambda: self._eagerly(block, launch.pause_before))

    def replay(self, graph: RecordedGraph) -> Block:
        """Replay a graph whose inputs are loaded, and report what came out."""
        self.priming.require(graph.key)
        return self._timed(graph.block, graph.replay)

    def _eagerly(self, block: SampledBlock, pause_before: int | None) -> None:
        for index in range(block.n_out):
            if index == pause_before:
                self.pause("paused")
            block.launch(index)

    def _timed(self, block: SampledBlock, go: Callable[[], None]) -> Block:
        """Say that a launch begins, before anything of it can reach the peer."""
        self.pause("launching")
        began = time.monotonic_ns()
        go()
        return self._report(block.outputs(), block.link, began, time.monotonic_ns() - began)

    def _report(self, out: Outputs, link: Link, began: int, elapsed: int) -> Block:
        words = link.words()
        return Block(
            rank=self.rank,
            digest=out.digest(),
            rows=tuple(out.digest(row)[:16] for row in range(len(out.ids))),
            tokens=_grid(out.token),
            firsts=_grid(out.ids[:, :, 0]),
            q_zero=tuple(int(not np.any(row)) for row in out.q),
            errors=_grid(out.error),
            stamps=_grid(out.stamp),
            own_error=int(words.own),
            peer_error=int(words.peer),
            epochs=words.epochs,
            launched_ns=began,
            elapsed_ns=elapsed,
        )

    def expect(self, case: Case, by: Source) -> Expectation:
        """What a case must give, by the exact reference or by the solo kernel."""
        geometry = self.require_geometry()
        rows, base = inputs.requests(geometry, case), inputs.logits(geometry, case)
        if by == "reference":
            out = reference_outputs(*inputs.weights(geometry), rows, base)
        else:
            self.priming.require(specialisation(geometry, 2))
            link = SoloLink(case.batch)
            block = SampledBlock(
                self._head(case.cached, (0, 1)), link, batch=case.batch, n_out=case.n_out
            )
            self.load(block, case)
            block.run()
            out = block.outputs()
        return Expectation(
            by=by,
            digest=out.digest(),
            rows=tuple(out.digest(row)[:16] for row in range(len(out.ids))),
            tokens=_grid(out.token),
        )

    def definition(self) -> str:
        """Digest of the numerical definition that this rank runs."""
        return definition_digest()

    def close(self) -> None:
        """Let go of the link."""
        if self._link is not None:
            self._link.close()
