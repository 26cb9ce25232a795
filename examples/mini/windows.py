"""Sequences of a fixed length out of one long stream of tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from pp4.errors import BadInputError


class Windows:
    """Batches of windows, every pass over the stream cut elsewhere and in another order.

    Args:
        stream: ``[tokens]`` of any integer type, on the device where the batches are wanted.
        length: tokens of a window.
        stride: tokens from one window to the next.
        batch: windows of a batch.
        seed: of the cuts and orders.

    Raises:
        BadInputError: the stream has less than one batch for some cut.
    """

    def __init__(self, stream: Tensor, *, length: int, stride: int, batch: int, seed: int) -> None:
        self._stream, self._length, self._stride, self._batch = stream, length, stride, batch
        self._spread = torch.arange(length, device=stream.device)
        self._generator = torch.Generator().manual_seed(seed)
        self._starts = torch.empty(0, dtype=torch.int64)
        least = stride + length + stride * (batch - 1)
        if len(stream) < least:
            raise BadInputError.of("stream", f"at least {least} tokens", str(len(stream)))

    @property
    def batches(self) -> int:
        """Batches of a pass, about."""
        return (len(self._stream) - self._length) // (self._stride * self._batch)

    def next(self) -> Tensor:
        """The next batch; -> ``[batch, length]`` int64."""
        if len(self._starts) < self._batch:
            self._starts = self._shuffled()
        starts, self._starts = self._starts[: self._batch], self._starts[self._batch :]
        places = starts.to(self._stream.device, non_blocking=True)[:, None] + self._spread
        return self._stream[places].long()

    def _shuffled(self) -> Tensor:
        """Starts of a whole pass; what does not fill a batch at its end is left for another one."""
        offset = int(torch.randint(self._stride, (), generator=self._generator))
        count = (len(self._stream) - self._length - offset) // self._stride + 1
        return offset + self._stride * torch.randperm(count, generator=self._generator)


def consecutive(stream: Tensor, *, length: int, stride: int) -> Tensor:
    """All whole windows of a stream in order; -> ``[windows, length]`` int64.

    Raises:
        BadInputError: there is none.
    """
    if len(stream) < length:
        raise BadInputError.of("stream", f"at least {length} tokens", str(len(stream)))
    return stream.unfold(0, length, stride).long()
