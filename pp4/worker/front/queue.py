"""Drafts that wait, in the order of their arrival; no socket, no clock."""

from __future__ import annotations

from pp4.worker.front.requests import Asked


class Queue:
    """Gives batches of one depth, that of the oldest, so that nobody waits behind newer ones."""

    def __init__(self) -> None:
        # a dict keeps the order and finds what is to be removed
        self._waiting: dict[Asked, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, asked: Asked) -> None:
        """Add the newest."""
        self._waiting[asked] = None

    def remove(self, asked: Asked) -> bool:
        """Take one out; -> whether it still waited."""
        if asked not in self._waiting:
            return False
        del self._waiting[asked]
        return True

    def take(self, largest: int) -> list[Asked]:
        """Take the oldest and those behind it of its depth, in order.

        Args:
            largest: rows at most, at least 1.
        """
        batch: list[Asked] = []
        for asked in self._waiting:
            if len(batch) < largest and (not batch or asked.depth == batch[0].depth):
                batch.append(asked)
        for asked in batch:
            del self._waiting[asked]
        return batch

    def drain(self) -> list[Asked]:
        """Take all."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting
