"""A rank on a GPU: kernels compiled and loaded, the peer's memory mapped, graphs captured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic

import torch
import triton
from torch._C._distributed_c10d import ProcessGroup, Store
from triton.runtime.cache import triton_key

from pp4.drafter import fused
from pp4.drafter.config import DrafterConfig
from pp4.drafter.heads import Original
from pp4.drafter.selector import GreedyOutputs, OriginalSelector
from pp4.drafter.tp_drafter import MakeBlock
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.kernels import bias_rows, loading, pattern, ptx, sampled_fused
from pp4.kernels.block import SampledBlock
from pp4.kernels.compile import Compiled as Built
from pp4.kernels.controls import build
from pp4.kernels.graph import CapturedGraph, RecordedGraph, capture
from pp4.kernels.link import Bounds, SoloLink
from pp4.kernels.symmetric import Rendezvous, SymmetricMemoryLink
from pp4.wire.facts import Compiled, Shape
from pp4.worker import group
from pp4.worker.compiling import Homes
from pp4.worker.device import Launches, PairLink, Seats, T
from pp4.worker.inputs import geometry_of

_CYCLES_PER_NS = 2
"""Clocks of a GPU stay below 2 GHz: a delay is at least as long as asked for."""


class _Repeated(Generic[T]):
    """Launches as a CUDA graph.  It holds addresses alone, so what was launched is kept beside it.

    Args:
        launch: reads nothing back and returns the tensors that it fills.
        pool: memory of graphs that return nothing: what one makes on its way is nobody's after it.
    """

    def __init__(self, launch: Callable[[], T], pool: Any) -> None:
        self._launch = launch
        # the first time loads modules and makes communicators, which cannot be captured
        first = launch()
        torch.cuda.synchronize()
        given: list[T] = []
        self._captured = capture(lambda: given.append(launch()), pool if first is None else None)
        self._given = given[0]

    def __call__(self) -> T:
        """Launch it again; -> the same tensors every time."""
        self._captured.replay()
        return self._given


class _CapturedOriginal:
    """The original selector as a CUDA graph; its outputs are the selector's own."""

    def __init__(self, replay: Callable[[], GreedyOutputs]) -> None:
        self.replay = replay


def preload() -> None:
    """Do before ranks are forked what each would do for itself; none of it touches a GPU."""
    # what the first allocation of symmetric memory imports, in two seconds
    from torch.fx.experimental import symbolic_shapes

    del symbolic_shapes
    # Triton digests its own files for the name of the first kernel, in half a second
    triton_key()


def number_of(uuid: str) -> int:
    """Torch's number of a GPU."""
    found = {
        f"GPU-{torch.cuda.get_device_properties(number).uuid}": number
        for number in range(torch.cuda.device_count())
    }
    if uuid not in found:
        raise RefusedError(
            Refusal(
                Code.NO_GPU_PAIR,
                "rank",
                f"GPU {uuid}",
                f"this process sees {', '.join(sorted(found)) or 'no GPU'}",
                next="pp4 doctor",
            )
        )
    return found[uuid]


class Cuda:
    """See :class:`pp4.worker.device.Device`.

    Args:
        rank: 0 or 1.
        homes: directories that both ranks may write.
        seats: the GPUs of a pair, or one for solo.

    Raises:
        RefusedError: ``NO_GPU_PAIR``, a GPU is not there.
    """

    def __init__(self, rank: int, homes: Homes, seats: Seats) -> None:
        self._rank, self._directory, self.shards = rank, homes.pair, seats.shards
        mine, peer = (seats.gpus[one % len(seats.gpus)] for one in (rank, 1 - rank))
        self.name = mine
        self.where = torch.device("cuda", number_of(mine))
        self._peer = torch.device("cuda", number_of(peer))
        torch.cuda.set_device(self.where)
        self.model = torch.cuda.get_device_name(self.where)
        # of one rank number, so that the digests of two ranks never come from one file
        triton.knobs.cache.dir = str(homes.compiled / f"rank-{rank}" / "triton")
        self._met: tuple[Store, ProcessGroup] | None = None
        # of the first link, which no other pair of this owner has; 0 where nothing is linked
        self._generation = 0
        self._compilations: int | None = None
        self._pool = torch.cuda.graph_pool_handle()

    # -- priming ----------------------------------------------------------------------------

    def prime(self, shape: Shape, shards: int, *, recorded: bool) -> tuple[Compiled, bool]:
        """Compile and load the product's kernel; the record is Triton's own cache on disk."""
        del recorded
        if self._compilations is None:
            pattern.prime(self.where)
        built = self._loaded(sampled_fused._kernel, shape, shards)
        return (
            Compiled(
                target=built.target,
                ptx_sha256=built.ptx_sha256,
                cubin_sha256=built.cubin_sha256,
                faults=ptx.faults(built.ptx, paired=shards == 1),
                resident=built.resident,
            ),
            False,
        )

    def _loaded(self, kernel: Any, shape: Shape, shards: int) -> Built:
        return loading.load(kernel, geometry=geometry_of(shape), shards=shards, device=self.where)

    def plant(self, shape: Shape, control: str, home: Path) -> Any:
        """Compile and load a mutant."""
        kernel = build(control, home)._kernel
        self._loaded(kernel, shape, self.shards)
        return kernel

    def seal(self) -> None:
        """Whatever compiles from now on is counted, and ends in an error."""
        self._compilations = 0
        loading.forbid_compilation(self._compiled)

    def _compiled(self, kernel: str, key: str) -> None:
        self._compilations = (self._compilations or 0) + 1
        raise WrongError(
            Refusal(
                Code.COMPILED_AFTER_PRIMING,
                f"kernel {kernel}",
                "no compilation after priming",
                key[:300],
            )
        )

    def compilations(self) -> int | None:
        """How many there were since the seal."""
        return self._compilations

    # -- the peer ---------------------------------------------------------------------------

    def link(self, generation: int, *, rows: int, start: int, bounds: Bounds) -> PairLink:
        """Meet the peer and map each other's words; returns on both ranks or on neither."""
        if self.shards == 2:
            return SoloLink(rows, start=start, bounds=bounds, device=self.where)
        self._generation = generation
        store, whole = self._group()
        return SymmetricMemoryLink(
            Rendezvous(store, self._rank, f"link-{generation}", group.LIMIT),
            group=whole,
            device=self.where,
            peer=self._peer,
            rows=rows,
            start=start,
            bounds=bounds,
        )

    def _group(self) -> tuple[Store, ProcessGroup]:
        """What both ranks are members of, joined at the first use, which both have together."""
        if self._met is None:
            path = self._directory / f"group-{self._generation}"
            self._met = group.join(self._rank, path, "cpu:gloo,cuda:nccl")
        return self._met

    def peer_access(self) -> bool:
        """By the driver's word; there is no peer solo."""
        return self.where != self._peer and bool(
            torch.cuda.can_device_access_peer(self.where, self._peer)
        )

    def solo_link(self, rows: int) -> SoloLink:
        """A link in this GPU's memory."""
        return SoloLink(rows, device=self.where)

    def gather(self, mine: torch.Tensor) -> torch.Tensor:
        """Gather over NCCL; solo, where one rank has it all, nothing is gathered."""
        if self.shards == 2:
            return torch.stack([mine, mine])
        self._group()
        return group.gather(mine)

    # -- launches ---------------------------------------------------------------------------

    def graph(self, block: SampledBlock, key: str, launches: Launches) -> RecordedGraph:
        """Capture a CUDA graph."""
        torch.cuda.synchronize()
        return CapturedGraph(block, key, launches)

    def repeated(self, launch: Callable[[], T]) -> Callable[[], T]:
        """Capture a CUDA graph."""
        return _Repeated(launch, self._pool)

    @property
    def make_block(self) -> MakeBlock:
        """The product's own."""
        return SampledBlock

    def prime_drafter(self, config: DrafterConfig) -> Compiled | None:
        """Compile and load the bias rows' kernel and the backbone's; -> the bias rows'."""
        built = bias_rows.prime(config.markov_rank, self.where)
        fused.prime(config, self.where)
        return Compiled(
            target=built.target,
            ptx_sha256=built.ptx_sha256,
            cubin_sha256=built.cubin_sha256,
            # it waits for nobody, so there is no order that it could break
            faults=(),
            resident=built.resident,
        )

    def pin(self, memory: torch.Tensor) -> None:
        """Register the pages with the driver."""
        size = memory.numel() * memory.element_size()
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        found = runtime.cudaHostRegister(memory.data_ptr(), size, 0)
        if int(found):
            raise WrongError(
                Refusal(Code.INTERNAL, "cudaHostRegister", f"{size} pinned bytes", str(found))
            )

    def original(self, selector: OriginalSelector) -> Original:
        """Capture a CUDA graph, NCCL's part in it."""
        return _CapturedOriginal(self.repeated(selector.replay))

    def delay(self, nanoseconds: int) -> None:
        """Spin on the stream."""
        torch.cuda._sleep(nanoseconds * _CYCLES_PER_NS)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.where)
