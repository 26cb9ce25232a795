"""Reads tensors of a checkpoint: memory mapped, the rows that are asked for, nothing unpickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pp4.drafter.checkpoint.headers import Entry
from pp4.drafter.checkpoint.problems import Problem, refused, shown
from pp4.errors import Code, Refusal, RefusedError

_AT_ONCE: Final = 1 << 20
"""Elements whose finiteness is looked at in one go; torch takes some 11 bytes for each."""


def read_rows(
    path: Path,
    entries: Mapping[str, Entry],
    rows: Mapping[str, tuple[int, int]],
    device: str | torch.device,
) -> dict[str, Tensor]:
    """Copy rows of tensors out of their files.

    A file that another process shortens while it is mapped ends this process (``SIGBUS``).

    Args:
        path: directory of the checkpoint, as refusals name it.
        entries: where tensors lie, as their headers say it.
        rows: first and past-the-last row of each tensor that is read.
        device: where to put them.

    Raises:
        RefusedError: ``MISSING_PACKAGE``: safetensors is not installed; ``BAD_CHECKPOINT``: a file
            is not the one whose header was read, or values that are not finite.
    """
    tensors: dict[str, Tensor] = {}
    problems: list[Problem] = []
    for file in dict.fromkeys(entry.file for entry in entries.values()):
        with _opened(path, file) as opened:
            for name, entry in entries.items():
                if entry.file != file or name not in rows:
                    continue
                # The mapping ends with the file, so rows are copied out, and only these are read.
                part = _copied(path, opened, entry, name, rows[name])
                problems += _not_finite(name, part)
                tensors[name] = part.to(device)
    if problems:
        raise refused(path, problems)
    return tensors


@contextmanager
def _opened(path: Path, file: Path) -> Iterator[Any]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        wanted, missing = "the package safetensors", "not installed"
        raise RefusedError(
            Refusal(Code.MISSING_PACKAGE, "drafter", wanted, missing, next="pip install 'pp4[gpu]'")
        ) from error
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            yield opened
    except (OSError, SafetensorError) as error:
        expected = "the file whose header was read before"
        raise refused(path, [Problem(file.name, expected, shown(str(error)))]) from error


def _copied(path: Path, opened: Any, entry: Entry, name: str, rows: tuple[int, int]) -> Tensor:
    """Copy some rows of a tensor out of the mapping."""
    part = opened.get_slice(entry.name)
    described = (part.get_dtype(), tuple(part.get_shape()))
    if described != (entry.dtype, entry.shape):
        problem = Problem(name, f"{entry.dtype} {list(entry.shape)}", shown(described))
        raise refused(path, [problem])
    first, last = rows
    copied: Tensor = part[first:last].clone(memory_format=torch.contiguous_format)
    return copied


def _not_finite(name: str, rows: Tensor) -> Iterator[Problem]:
    flat = rows.view(-1)
    count = 0
    for first in range(0, len(flat), _AT_ONCE):
        part = flat[first : first + _AT_ONCE]
        count += len(part) - int(torch.isfinite(part).sum())
    if count:
        yield Problem(name, "finite values", f"{count} that are infinite or undefined")
