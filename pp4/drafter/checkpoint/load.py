"""Loads a rank's part of a drafter's checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pp4.drafter.checkpoint.reading import read_rows
from pp4.drafter.checkpoint.survey import Survey, survey
from pp4.drafter.checkpoint.tensors import MAP, rows_of
from pp4.drafter.config import WORLDS
from pp4.drafter.weights import Weights
from pp4.errors import BadInputError


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
    rows = {
        name: rows_of(one, rank, world)
        for name, one in found.tensors.items()
        if one.read and name != MAP
    }
    tensors = read_rows(found.path, found.entries, rows, device)
    return Weights(found.config, rank, world, tensors, _map_on(found, device))


def _map_on(found: Survey, device: str | torch.device) -> Tensor | None:
    if found.token_map is None:
        return None
    return torch.tensor(found.token_map, dtype=torch.int32, device=device)
