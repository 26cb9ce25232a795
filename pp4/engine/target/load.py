"""Loads a target's checkpoint; it is held against its config before a value is read."""

from __future__ import annotations

from pathlib import Path

import torch

from pp4.drafter.checkpoint.bundle import read_bundle
from pp4.drafter.checkpoint.problems import refused
from pp4.drafter.checkpoint.reading import read_rows
from pp4.drafter.checkpoint.survey import misfits
from pp4.engine.target.config import read_config
from pp4.engine.target.weights import TargetWeights, wanted


def load(path: str | Path, device: str | torch.device = "cpu") -> TargetWeights:
    """Load a target of the Qwen3 family; nothing is ever unpickled.

    A file that another process shortens while it is mapped ends this process (``SIGBUS``); a
    checkpoint has to stay as it is while it is loaded.

    Args:
        path: directory with ``config.json`` and safetensors, as Hugging Face writes it.
        device: where to put the tensors.

    Raises:
        RefusedError: ``UNREADABLE``, ``BAD_CHECKPOINT`` or ``UNSUPPORTED_CHECKPOINT``: the first
            thing that is wrong, and how many more there are; ``MISSING_PACKAGE``: safetensors is
            not installed.
    """
    path = Path(path)
    bundle = read_bundle(path)
    config = read_config(path)
    calls = wanted(config)
    problems = misfits(bundle, calls, bundle.entries)
    if problems:
        raise refused(path, problems)
    rows = {name: (0, one.shape[0]) for name, one in calls.items() if one.read}
    return TargetWeights(config, read_rows(path, bundle.entries, rows, device))
