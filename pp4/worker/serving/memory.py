"""GPU memory that ranks have taken, and whether it is there again after them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pp4.clock import Deadline
from pp4.errors import Pp4Error
from pp4.wire.gpus import find
from pp4.worker.gpus import read_gpus

_LOOK_S = 0.1
_SLACK_BYTES = 64 << 20
"""What other processes may take meanwhile without ours being blamed."""


class Memory:
    """Bytes in use on some GPUs, looked at before anything of ours runs there.

    Args:
        gpus: UUIDs; none where no GPU is used.

    Raises:
        RefusedError: the driver does not answer.
    """

    def __init__(self, gpus: Sequence[str]) -> None:
        self._gpus = tuple(gpus)
        self._before = self._used()

    def _used(self) -> list[int | None]:
        if not self._gpus:
            return []
        report = read_gpus()
        return [find(report, uuid).memory_used_bytes for uuid in self._gpus]

    def gone(self, deadline: Deadline) -> dict[str, object]:
        """Wait until no GPU has more in use than before; drivers take memory back a moment later.

        Returns:
            ``memory_before`` and ``memory_after``, bytes of each GPU, and ``memory_gone``, None
            where the driver does not tell.
        """
        if not self._gpus:
            return {}
        while True:
            try:
                after = self._used()
            except Pp4Error:
                after = [None] * len(self._gpus)
            gone = self._back(after)
            if gone is not False or deadline.expired():
                return {
                    "memory_before": self._before,
                    "memory_after": after,
                    "memory_gone": gone,
                }
            time.sleep(_LOOK_S)

    def _back(self, after: Sequence[int | None]) -> bool | None:
        known = [
            (before, now)
            for before, now in zip(self._before, after, strict=True)
            if before is not None and now is not None
        ]
        if len(known) < len(self._gpus):
            return None
        return all(now <= before + _SLACK_BYTES for before, now in known)
