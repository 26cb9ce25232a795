"""The Markov cache: bias rows of the tokens that requests were drafted after, kept on the device.

A cached row is the BF16 row of the same tree that an uncached token takes, so it changes the speed
of a block and none of its bits.  What is kept follows from the traffic alone, so two ranks that see
the same traffic keep the same tokens in the same slots.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels.bias_rows import bias_rows

_MIB = 1 << 20


class MarkovCache:
    """Slots of bias rows and the map from tokens to them; the least recently used row gives way.

    Nothing here may be called while a block runs that reads the cache: :meth:`starts` says when
    one begins, :meth:`used` that it has ended, and :meth:`fill` refuses between them.

    Args:
        w1: ``[target vocab, R]`` int16 BF16 patterns.
        shards: ``[columns, R]`` int16 BF16 patterns of each shard that is here.
        stride: elements of a row of the cache, at least the columns of a shard.
        mib: what the rows may take, in MiB; with 0 nothing is cached.

    Raises:
        BadInputError: less than 0 MiB.

    Attributes:
        bias: ``[shards, slots, stride]`` int16 BF16 patterns; one row that is never used where
            nothing can be cached.
        slot_of: ``[target vocab]`` int32, slot of a token's row or -1.
        capacity: tokens that can be cached.
        hits: previous tokens so far that were cached, one for each position of an active row.
        misses: those that were not.
    """

    def __init__(self, w1: Tensor, shards: Sequence[Tensor], *, stride: int, mib: int) -> None:
        if mib < 0:
            raise BadInputError.of("markov cache", "0 MiB or more", str(mib))
        self._w1, self._shards = w1, tuple(shards)
        self.capacity = min(len(w1), mib * _MIB // (len(shards) * stride * w1.element_size()))
        rows = max(1, self.capacity)
        self.bias = w1.new_zeros((len(shards), rows, stride))
        self.slot_of = torch.full((len(w1),), -1, dtype=torch.int32, device=w1.device)
        self.hits = self.misses = 0
        self._slots: OrderedDict[int, int] = OrderedDict()
        self._free = list(range(self.capacity))
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._running = False

    @property
    def slots(self) -> Mapping[int, int]:
        """Slot of each cached token, the least recently used first."""
        return MappingProxyType(self._slots)

    @property
    def queued(self) -> tuple[int, ...]:
        """Tokens that wait for a slot, the next one first; never more than there are slots."""
        return tuple(self._queue)

    def starts(self) -> None:
        """A block that reads the cache is launched."""
        self._running = True

    def used(self, previous: Iterable[int]) -> None:
        """A block has ended: count what it found, and queue what it did not.

        A block of the original path reads no cache, and nothing is told of it.

        Args:
            previous: tokens before the positions of its active rows, row by row: the anchor and
                the drafted tokens but for the last.

        Raises:
            BadInputError: one of them is no token of the target; then nothing was counted.
        """
        tokens = [int(one) for one in previous]
        wrong = [one for one in tokens if not 0 <= one < len(self._w1)]
        if wrong:
            raise BadInputError.of("previous", f"tokens below {len(self._w1)}", str(wrong[0]))
        self._running = False
        for token in tokens:
            if token in self._slots:
                self.hits += 1
                self._slots.move_to_end(token)
            else:
                self.misses += 1
                self._queue.setdefault(token)
        while len(self._queue) > self.capacity:
            # more than fit at once would only push each other out
            self._queue.popitem(last=False)

    def fill(self, limit: int) -> int:
        """Compute rows of queued tokens, in the order in which they came; reads nothing back.

        Args:
            limit: rows at most.

        Returns:
            Rows that were computed.

        Raises:
            BadInputError: a block is running, or a limit below 0.
        """
        if self._running:
            raise BadInputError.of("markov cache", "no block in flight", "one that has not ended")
        if limit < 0:
            raise BadInputError.of("limit", "0 rows or more", str(limit))
        tokens = list(islice(self._queue, limit))
        if tokens:
            slots = self._vacated(len(tokens))
            self._write(tokens, slots)
            for token, slot in zip(tokens, slots, strict=True):
                del self._queue[token]
                self._slots[token] = slot
            del self._free[: len(slots)]
        return len(tokens)

    def _vacated(self, count: int) -> list[int]:
        """Slots that no token names any more, neither here nor on the device."""
        evicted = []
        while len(self._free) < count:
            token, slot = self._slots.popitem(last=False)
            self._free.append(slot)
            evicted.append(token)
        if evicted:
            self.slot_of[self._on_device(evicted)] = -1
        return self._free[:count]

    def _write(self, tokens: Sequence[int], slots: Sequence[int]) -> None:
        """Rows first, then their names: on one stream nobody can find a row that is not whole."""
        named, places = self._on_device(tokens), self._on_device(slots)
        for rows, w2 in zip(self.bias, self._shards, strict=True):
            rows[places, : len(w2)] = bias_rows(named.to(torch.int32), self._w1, w2)
        self.slot_of[named] = places.to(torch.int32)

    def _on_device(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._w1.device)
