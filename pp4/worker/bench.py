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
from pp4.kernels.controls.frozen import frozen_launches
from pp4.kernels.dyadic24 import definition_digest
from pp4.kernels.geometry import Geometry
from pp4.kernels.graph import RecordedGraph, launches_of
from pp4.kernels.head import Head
from pp4.kernels.link import EPOCH_LIMIT, Bounds
from pp4.kernels.priming import Priming, specialisation
from pp4.wire.facts import (
    Block,
    Cached,
    Case,
    Compiled,
    Expectation,
    Grid,
    Identity,
    Launch,
    Pattern,
    Shape,
    Source,
    Waits,
)
from pp4.worker import expecting, inputs
from pp4.worker.device import Device, PairLink
from pp4.worker.libraries import mapping_digest

Pause = Callable[[str], None]
"""Says how far it is and returns when the owner lets it go on."""

_PATTERN_S = 60.0

FROZEN = "frozen-input"
"""The control that is a graph, not a mutant of the kernel."""


def _grid(array: Any) -> Grid:
    return tuple(tuple(int(value) for value in row) for row in array)


def _bounds(waits: Waits, start: int) -> Bounds:
    return Bounds(
        first_ns=waits.first_ns,
        next_ns=waits.next_ns,
        first_polls=waits.first_polls,
        next_polls=waits.next_polls,
        epoch_limit=EPOCH_LIMIT if waits.epochs is None else start + waits.epochs,
    )


class Bench:
    """One rank's side of the exercises.

    Args:
        rank: 0 or 1.
        device: what its kernels run on.
        directory: a directory that both ranks may write.
        pause: how to report progress and wait for the owner.
    """

    def __init__(self, rank: int, device: Device, directory: Path, pause: Pause) -> None:
        self.rank, self.device, self.directory, self.pause = rank, device, directory, pause
        self.priming = Priming()
        self.geometry: Geometry | None = None
        self._link: PairLink | None = None
        self._heads: dict[tuple[Geometry, Cached, int], Head] = {}
        self._blocks: dict[tuple[Geometry, str, int, int, str], SampledBlock] = {}
        self._graphs: dict[str, RecordedGraph] = {}
        self._mutants: dict[str, Any] = {}

    # -- who and what -----------------------------------------------------------------------

    def identity(self) -> Identity:
        """Who this rank is."""
        return Identity(
            rank=self.rank,
            pid=os.getpid(),
            device=self.device.name,
            device_name=self.device.model,
            peer_access=self.device.peer_access(),
            python=platform.python_version(),
            torch=version("torch"),
            triton=version("triton"),
            mapped=mapping_digest(),
        )

    def prime(self, shape: Shape, shards: int, *, recorded: bool) -> tuple[str, Compiled, bool]:
        """Compile and load a specialisation; -> its key, what came out, whether by a record."""
        geometry = inputs.geometry_of(shape)
        key = specialisation(geometry, shards)
        if self.device.compilations() is None:
            # nobody else would notice that it comes too late
            self.priming.check(key)
        built, known = self.device.prime(shape, shards, recorded=recorded)
        self.priming.add(key)
        self.geometry = geometry
        return key, built, known

    def plant(self, shape: Shape, control: str) -> None:
        """Build and load a mutant of the kernel; the seal ends that as well."""
        home = self.directory / f"controls-{self.rank}-{os.getpid()}"
        home.mkdir(exist_ok=True)
        key = specialisation(inputs.geometry_of(shape), self.device.shards, control)
        self._mutants[key] = self.device.plant(shape, control, home)
        self.priming.add(key)

    def seal(self) -> None:
        """Nothing compiles from now on."""
        self.priming.seal()
        self.device.seal()

    # -- the link ---------------------------------------------------------------------------

    def make_link(self, generation: int, rows: int, waits: Waits, start: int) -> None:
        """Make this rank's part of a new link."""
        if self._link is not None:
            self._link.close()
        self._blocks.clear()
        self._graphs.clear()
        self._link = self.device.link(
            generation, rows=rows, start=start, bounds=_bounds(waits, start)
        )

    @property
    def link(self) -> PairLink:
        """The link; refuses where none was made."""
        if self._link is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "link", "a rendezvous", "none was made"))
        return self._link

    def exchange_pattern(self, writer: int, seed: int, epochs: int, flip_at: int) -> Pattern:
        """Write patterns to the peer or read them, depending on who writes."""
        found = pattern.run(
            self.link,
            writer=self.rank == writer,
            seed=seed,
            epochs=epochs,
            flip_at=flip_at,
            limit_s=_PATTERN_S,
        )
        return Pattern(rank=self.rank, epochs=found.epochs, mismatches=found.mismatches)

    # -- blocks -----------------------------------------------------------------------------

    def require_geometry(self) -> Geometry:
        """The primed geometry; refuses where nothing was primed."""
        if self.geometry is None:
            raise RefusedError(
                Refusal(Code.UNPRIMED, "block", "a primed specialisation", "nothing was primed")
            )
        return self.geometry

    def _head(self, cached: Cached, shards: tuple[int, ...]) -> Head:
        geometry = self.require_geometry()
        key = (geometry, cached, len(shards))
        if key not in self._heads:
            self._heads[key] = inputs.head(geometry, cached, shards, self.device.where)
        return self._heads[key]

    def _key(self, control: str | None = None) -> str:
        """The specialisation that blocks launch here."""
        return specialisation(self.require_geometry(), self.device.shards, control)

    def _mutant(self, control: str | None) -> Any:
        if control is None:
            return None
        key = self._key(control)
        self.priming.require(key)
        return self._mutants[key]

    def sampled_block(self, case: Case, control: str | None = None) -> SampledBlock:
        """The buffers of a case's shape, the same ones every time."""
        geometry = self.require_geometry()
        key = (geometry, case.cached, case.batch, case.n_out, control or "")
        if key not in self._blocks:
            self._blocks[key] = SampledBlock(
                self._head(case.cached, (0, 1) if self.device.shards == 2 else (self.rank,)),
                self.link,
                batch=case.batch,
                n_out=case.n_out,
                kernel=self._mutant(control),
            )
        return self._blocks[key]

    def load(self, block: SampledBlock, case: Case) -> None:
        """Rewrite a block's inputs for a case and poison what it will write."""
        geometry = self.require_geometry()
        base = inputs.logits(geometry, case, self.device.where)
        block.load(inputs.requests(geometry, case), base)
        block.poison()

    def capture(self, name: str, case: Case, control: str | None) -> RecordedGraph:
        """Record a graph for a case's shape; a control may record one input by value."""
        mutant = None if control == FROZEN else control
        key = self._key(mutant)
        self.priming.require(key)
        block = self.sampled_block(case, mutant)
        self.load(block, case)
        launches = frozen_launches(block) if control == FROZEN else launches_of(block)
        self._graphs[name] = self.device.graph(block, key, launches)
        return self._graphs[name]

    def graph(self, name: str) -> RecordedGraph:
        """A recorded graph by name."""
        if name not in self._graphs:
            raise RefusedError(
                Refusal(Code.MISSING_SAMPLED_GRAPH, name, "a captured graph", "none of that name")
            )
        return self._graphs[name]

    def run(self, case: Case, launch: Launch) -> Block:
        """Run one block and report what came out."""
        self.priming.require(self._key())
        if launch.graph is not None:
            graph = self.graph(launch.graph)
            self.load(graph.block, case)
            return self.replay(graph, launch.delay_ns)
        block = self.sampled_block(case, launch.control)
        self.priming.require(self._key(launch.control))
        self.load(block, case)
        return self._timed(
            block, lambda: self._eagerly(block, launch.pause_before), launch.delay_ns
        )

    def replay(self, graph: RecordedGraph, delay_ns: int = 0) -> Block:
        """Replay a graph whose inputs are loaded, and report what came out."""
        self.priming.require(graph.key)
        return self._timed(graph.block, graph.replay, delay_ns)

    def _eagerly(self, block: SampledBlock, pause_before: int | None) -> None:
        for index in range(block.n_out):
            if index == pause_before:
                # what was launched before has reached the peer when somebody stops this rank here
                self.device.settle()
                self.pause("paused")
            block.launch(index)

    def _timed(self, block: SampledBlock, go: Callable[[], None], delay_ns: int) -> Block:
        """Say that a launch begins, before anything of it can reach the peer."""
        self.device.settle()
        self.pause("launching")
        began = time.monotonic_ns()
        if delay_ns:
            self.device.delay(delay_ns)
        go()
        self.device.settle()
        return self._report(block, began, time.monotonic_ns() - began)

    def _report(self, block: SampledBlock, began: int, elapsed: int) -> Block:
        out, words = block.outputs(), block.link.words()
        return Block(
            rank=self.rank,
            digest=out.digest(),
            rows=tuple(out.digest(row)[:16] for row in range(len(out.ids))),
            tokens=_grid(out.token),
            firsts=_grid(out.ids[:, :, 0]),
            q_zero=tuple(int(not np.any(row)) for row in out.q),
            errors=_grid(out.error),
            stamps=_grid(out.stamp),
            waited=_grid(block.waits()),
            own_error=int(words.own),
            peer_error=int(words.peer),
            epochs=words.epochs,
            launched_ns=began,
            elapsed_ns=elapsed,
        )

    def expect(self, case: Case, by: Source) -> Expectation:
        """What a case must give, by a reference or by the solo kernel."""
        geometry = self.require_geometry()
        if by == "solo":
            out = self._solo(case)
        elif by == "reference":
            out = expecting.by_integers(geometry, case, self.device.where)
        else:
            out = expecting.outputs(expecting.by_tensors(geometry, case, self.device.where))
        return Expectation(
            by=by,
            digest=out.digest(),
            rows=tuple(out.digest(row)[:16] for row in range(len(out.ids))),
            tokens=_grid(out.token),
        )

    def _solo(self, case: Case) -> Outputs:
        self.priming.require(specialisation(self.require_geometry(), 2))
        link = self.device.solo_link(case.batch)
        head = self._head(case.cached, (0, 1))
        block = SampledBlock(head, link, batch=case.batch, n_out=case.n_out)
        self.load(block, case)
        block.run()
        return block.outputs()

    def definition(self) -> str:
        """Digest of the numerical definition that this rank runs."""
        return definition_digest()

    def close(self) -> None:
        """Let go of the link."""
        if self._link is not None:
            self._link.close()
