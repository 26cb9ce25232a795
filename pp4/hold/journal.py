"""The journal of a HOLD: append-only, durable line by line, each line chained to the one before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pp4.errors import Code, Refusal, UncleanError, reason_of
from pp4.receipts import journal as chain
from pp4.receipts.canonical import dump


class Journal:
    """Writes the chain to a file.

    Args:
        path: a file that does not exist yet.

    Raises:
        UncleanError: ``UNWRITABLE``, a line could not be made durable; nothing may go on, and no
            later line is taken: it would stand behind a torn one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, object]] = []
        self._torn: OSError | None = None
        try:
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise self._failed(error) from error
        try:
            _flush_name(path)
        except OSError as error:
            self._file.close()
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> UncleanError:
        return UncleanError(
            Refusal(
                Code.UNWRITABLE,
                str(self._path),
                "a durable journal line",
                reason_of(error),
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
        if self._torn is not None:
            raise self._failed(self._torn)
        before = self._lines[-1] if self._lines else None
        line = chain.next_line(before, step, event, found, detail)
        try:
            self._write(dump(line) + b"\n")
            os.fsync(self._file.fileno())
        except OSError as error:
            self._torn = error
            raise self._failed(error) from error
        self._lines.append(line)

    def _write(self, data: bytes) -> None:
        """Write everything: a disk that fills up takes a part and says so only at the rest."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

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


def _flush_name(path: Path) -> None:
    """Make the file's name durable: a journal that lost its name is no journal."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
