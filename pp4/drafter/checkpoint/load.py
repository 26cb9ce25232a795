"""Reads a rank's part of a checkpoint: memory mapped, its own rows alone, nothing unpickled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from pp4.drafter.checkpoint.headers import Entry
from pp4.drafter.checkpoint.problems import Problem, refused, shown
from pp4.drafter.checkpoint.survey import Survey, survey
from pp4.drafter.checkpoint.tensors import MAP, Wanted, rows_of
from pp4.drafter.config import WORLDS
from pp4.drafter.weights import Weights
from pp4.errors import BadInputError, Code, Refusal, RefusedError

_AT_ONCE: Final = 1 << 20
"""Elements whose finiteness is looked at in one go; torch takes some 11 bytes for each."""


def load(
    path: Path,
    rank: int,
    world: int,
    *,
    target: Path | None = None,
    device: str | torch.device = "cpu",
) -> Weights:
    """Load what one rank holds of a checkpoint in either published layout.

    The whole checkpoint is held against its config before a value is read.  Values have to be
    finite: an infinite or undefined weight would make every row of every request an error, and
    that of the whole worker, so it is refused here, by the name of the tensor.

    A file that another process shortens while it is mapped ends this process (``SIGBUS``); a
    checkpoint has to stay as it is while it is loaded.

    Args:
        path: directory with ``config.json`` and safetensors.
        rank: 0 or, in a world of two, 1.
        world: ranks that share the heads' rows, 1 or 2.
        target: directory of the target's checkpoint, for what the drafter's leaves to it.
        device: where to put the tensors.

    Raises:
        BadInputError: another world, or a rank outside of it.
        RefusedError: ``MISSING_PACKAGE``: safetensors is not installed; else as
            :func:`pp4.drafter.checkpoint.survey.survey`, or values that are not finite.
    """
    if world not in WORLDS or not 0 <= rank < world:
        raise BadInputError.of("rank", "a rank of a world of 1 or 2", f"{rank} of {world}")
    found = survey(Path(path), target)
    tensors: dict[str, Tensor] = {}
    problems: list[Problem] = []
    for file in dict.fromkeys(entry.file for entry in found.entries.values()):
        with _opened(found, file) as opened:
            for name, entry in found.entries.items():
                one = found.tensors[name]
                if entry.file != file or not one.read or name == MAP:
                    continue
                # The mapping ends with the file, so rows are copied out, and only these are read.
                rows = _rows(found, opened, entry, one, rows_of(one, rank, world))
                problems += _not_finite(name, rows)
                tensors[name] = rows.to(device)
    if problems:
        raise refused(found.path, problems)
    return Weights(found.config, rank, world, tensors, _map_on(found, device))


@contextmanager
def _opened(found: Survey, file: Path) -> Iterator[Any]:
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
        raise refused(found.path, [Problem(file.name, expected, shown(str(error)))]) from error


def _rows(found: Survey, opened: Any, entry: Entry, one: Wanted, rows: tuple[int, int]) -> Tensor:
    """Copy some rows of a tensor out of the mapping."""
    part = opened.get_slice(entry.name)
    described = (part.get_dtype(), tuple(part.get_shape()))
    if described != (entry.dtype, entry.shape):
        problem = Problem(one.name, f"{entry.dtype} {list(entry.shape)}", shown(described))
        raise refused(found.path, [problem])
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


def _map_on(found: Survey, device: str | torch.device) -> Tensor | None:
    if found.token_map is None:
        return None
    return torch.tensor(found.token_map, dtype=torch.int32, device=device)
