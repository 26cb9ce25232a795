"""A run of fixed arrays, recorded once and repeated: a CUDA graph on a GPU, a plain call elsewhere.

A target of a few small layers is some hundred launches a step, and launched one by one from Python
they take many times what they compute.  As a graph they are one launch.  The kernels, their order
and their shapes are those of a plain call, and so are the bits: torch gives cuBLAS a workspace of
one size on every stream, captured or not, so cuBLAS chooses the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch
from numpy.typing import NDArray

T = TypeVar("T")


class Numbers:
    """Whole numbers that a run reads: written on the host, read from the same place every time.

    On a GPU the host's are pinned, so that their copy is not waited for, until they are to be
    written again.

    Args:
        count: how many.
        device: of the run.

    Attributes:
        there: ``[count]`` int64, what the run reads.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        apart = device.type == "cuda"
        self._here = torch.zeros(count, dtype=torch.int64, pin_memory=apart)
        self._written: NDArray[Any] = self._here.numpy()
        self.there = self._here.to(device, copy=True) if apart else self._here
        self._sent = _event() if apart else None

    def writable(self) -> NDArray[Any]:
        """The host's numbers, once the last copy of them has been made."""
        if self._sent is not None:
            self._sent.synchronize()
        return self._written

    def send(self) -> None:
        """Let what is launched from here on read what was written."""
        if self._sent is not None:
            self.there.copy_(self._here, non_blocking=True)
            self._sent.record(torch.cuda.current_stream(self.there.device))


class Recorder(Protocol):
    """How runs are repeated."""

    def numbers(self, count: int) -> Numbers:
        """Make room for what a run reads."""

    def record(self, launch: Callable[[], T]) -> Callable[[], T]:
        """Record a run.

        Args:
            launch: reads nothing back, makes no shape of a value, and returns tensors.  It is
                called some times.

        Returns:
            What runs it again, with what its tensors hold by then; what it returns is valid until
            it is called again.
        """


class Plain:
    """Calls again what it was given: a run is launched operator by operator.

    Args:
        device: of the runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def numbers(self, count: int) -> Numbers:
        """See :class:`Recorder`."""
        return Numbers(count, self._device)

    def record(self, launch: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Recorder`."""
        return launch


class Graphs(Plain):
    """Records runs as CUDA graphs, one stream's, of which none may run beside another.

    Each graph has memory of its own.  In a common pool the results of one would lie where another
    computes, and be gone once that runs.  What goes wrong while a graph is recorded is raised;
    nothing is launched in another way instead.

    Each target has a stream of its own: where a graph goes, torch lets go of cuBLAS' workspace of
    the stream that it was recorded on, also where another graph of that stream still uses it
    (https://github.com/pytorch/pytorch/issues/193402).

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, launch: Callable[[], T]) -> Callable[[], T]:
        """See :class:`Recorder`; waits until the device is idle."""
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            # The first time loads modules and takes cuBLAS' workspace, which is not to come from
            # the graph's memory.
            with torch.cuda.stream(self._stream):
                launch()
            return _Recording(launch, self._stream)


class _Recording(Generic[T]):
    """A CUDA graph.  It holds addresses alone, so what was launched is kept beside it.

    Args:
        launch: was launched on the stream before.
        stream: to record on.
    """

    def __init__(self, launch: Callable[[], T], stream: torch.cuda.Stream) -> None:
        self._launch, self._graph = launch, torch.cuda.CUDAGraph()
        # what other threads of the process do meanwhile is none of it
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            self._given = launch()

    def __call__(self) -> T:
        """Launch it on the current stream; -> the same tensors every time."""
        self._graph.replay()
        return self._given


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]


def recorder_for(device: torch.device) -> Recorder:
    """How runs are repeated on a device: as CUDA graphs on a GPU."""
    return Graphs(device) if device.type == "cuda" else Plain(device)
