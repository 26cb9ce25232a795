"""Standard output and standard error, safe against what strangers put into names and pipes."""

from __future__ import annotations

import io
import os
from typing import TextIO

from pp4.errors import Code, Refusal, RefusedError


def visible(text: str) -> str:
    """Return ``text`` with everything that a terminal would act on spelled out.

    File names and receipts come from strangers; an escape sequence in one must not be able to
    recolour, retitle or rewrite what a person reads.
    """
    return "".join(sign if sign.isprintable() else _spelled(sign) for sign in text)


def _spelled(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


class Stream:
    """One of the two output streams, made safe to write to.

    Args:
        file: the stream, or ``None`` where the process was started without one.
        name: how a refusal calls it.
    """

    def __init__(self, file: TextIO | None, name: str) -> None:
        self._file = file
        self._name = name
        if isinstance(file, io.TextIOWrapper):
            # A name that the terminal's encoding lacks is shown escaped instead of crashing.
            file.reconfigure(errors="backslashreplace")

    @property
    def file(self) -> TextIO | None:
        """The stream itself; ``None`` once it is gone."""
        return self._file

    @property
    def terminal(self) -> bool:
        """Whether a person sits in front of it."""
        return self._file is not None and not self._file.closed and self._file.isatty()

    def write(self, text: str) -> None:
        """Write and flush.  A reader that left early changes nothing about a run's result.

        Raises:
            RefusedError: ``UNWRITABLE`` for a full disk and the like.
        """
        if self._file is None or self._file.closed:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except BrokenPipeError:
            self._drop()
        except OSError as error:
            self._drop()
            found = error.strerror or type(error).__name__
            raise RefusedError(
                Refusal(Code.UNWRITABLE, self._name, "room for the output", found)
            ) from None

    def close(self) -> None:
        """Flush for the last time; a stream that fails is dropped without a word."""
        if self._file is None or self._file.closed:
            return
        try:
            self._file.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        # What is still buffered would fail again at exit, where nobody can answer for it.
        file, self._file = self._file, None
        try:
            descriptor = file.fileno() if file is not None else -1
        except (OSError, ValueError):
            return
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, descriptor)
        os.close(sink)
