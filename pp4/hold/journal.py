"""The journal of a HOLD: append-only, durable line by line, each line chained to the one before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pp4.errors import Code, Refusal, UncleanError
from pp4.receipts import journal as chain
from pp4.receipts.canonical import dump


class Journal:
    """Writes the chain to a file.

    Args:
        path: a file that does not exist yet.

    Raises:
        UncleanError: ``UNWRITABLE``, a line could not be made durable; nothing may go on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, object]] = []
        try:
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> UncleanError:
        return UncleanError(
            Refusal(
                Code.UNWRITABLE,
                str(self._path),
                "a durable journal line",
                str(error),
                left=f"{len(self._lines)} lines",
            )
        )

    def add(
        self,
        step: str,
        event: str,
        *,
        found: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Append one line and wait until it is durable."""
        before = self._lines[-1] if self._lines else None
        line = chain.next_line(before, step, event, found, detail)
        try:
            self._file.write(dump(line) + b"\n")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error
        self._lines.append(line)

    @property
    def lines(self) -> tuple[dict[str, object], ...]:
        """Every line so far."""
        return tuple(self._lines)

    @property
    def head(self) -> str:
        """Hash of the last line."""
        return chain.head(self._lines)

    def close(self) -> None:
        """Close the file; no line may follow."""
        self._file.close()
