"""The record of a training: what went in, how it went, what came out; strict JSON."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import torch

from examples.mini.fitting import POINTS, Course
from examples.mini.sizes import Recipe
from pp4 import __version__

RECORD: Final = "record.json"
VERSION: Final = 1
"""Of the record's form."""
_LIBRARIES: Final = ("numpy", "safetensors", "tokenizers", "torch", "triton")
NOTES: Final = {
    "digest": "SHA-256 over path, zero byte, size in decimal, zero byte, bytes of each file in the "
    "order of the paths",
    "bits_per_byte": "cross entropy of windows of the context, end tokens counted as text; what "
    "stands before a window is not seen",
    "drafter_text": "half of each batch is text of the training split, half is sampled from the "
    "target at temperatures 1.0 and 0.7 after prompts of the training split",
    "acceptance": "sum over tokens of min(p, q), for each position, averaged over blocks: p the "
    "target's distribution at the temperature, q that of the 32 best conditioned logits at tau "
    "0.7, in FP32; the tokens before a position are those of the text",
    "confidence": "labels are 1 - total variation at temperature 1, which is what was trained",
    "reproducible": "the text, its splits and the tokenizer are; on a GPU sums of gradients are in "
    "no fixed order and the number of steps follows from the clock, so other weights come out",
}


class Record:
    """A record that is written anew whenever something was added.

    Args:
        directory: where it is written.
        command: what was run.
    """

    def __init__(self, directory: Path, command: str) -> None:
        self._path = directory / RECORD
        self._tree: dict[str, Any] = {
            "version": VERSION,
            "complete": False,
            "command": command,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "notes": NOTES,
        }

    def add(self, **parts: Any) -> None:
        """Add parts and write; a reader never sees half of it."""
        self._tree |= parts
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f".{RECORD}")
        text = json.dumps(self._tree, indent=1, allow_nan=False) + "\n"
        beside.write_text(text, "utf-8")
        os.replace(beside, self._path)


def machine(device: torch.device) -> dict[str, Any]:
    """The machine and its libraries, but for the names of its places."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "device": device.type,
        "gpu": gpu,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "libraries": {"pp4": __version__} | {name: _version(name) for name in _LIBRARIES},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def sizes(recipe: Recipe) -> dict[str, Any]:
    """Sizes and settings."""
    tree = asdict(recipe)
    tree["drafter"]["layout"] = str(recipe.drafter.layout)
    tree["drafter"]["target_layers"] = list(recipe.drafter.target_layers)
    return tree


def course(found: Course) -> dict[str, Any]:
    """How a fitting went, its curves thinned and rounded."""
    tree = asdict(found)
    for name in ("training", "validation"):
        tree[name] = thinned(tree[name])
    for name in ("seconds", "passes"):
        tree[name] = round(tree[name], 2)
    tree["best_loss"] = round(tree["best_loss"], 5)
    return tree


def thinned(curve: Sequence[tuple[int, float]]) -> list[list[float]]:
    """At most POINTS points, the last among them, evenly many left out between; finite ones."""
    every = -(-len(curve) // POINTS) or 1
    kept = curve[::-1][::every][::-1]
    return [[step, round(loss, 4)] for step, loss in kept if math.isfinite(loss)]


def earlier(directory: Path, files: Mapping[str, str]) -> dict[str, Any] | None:
    """What the record beside a target says of it; None where there is none of these files.

    Args:
        directory: of the target.
        files: digests of its files by name.
    """
    try:
        tree = json.loads((directory.parent / RECORD).read_text("utf-8"))
        same = tree["target"]["files"] == dict(files)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return tree["target"] if same else None
