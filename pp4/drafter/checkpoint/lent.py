"""Tensors that a checkpoint leaves to its target: looked up in the target's own checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.bundle import CONFIG, read_bundle
from pp4.drafter.checkpoint.documents import read_document
from pp4.drafter.checkpoint.headers import Entry
from pp4.drafter.checkpoint.problems import Problem, refused
from pp4.drafter.checkpoint.tensors import EMBEDDING, LM_HEAD

_BEFORE: Final = ("model.", "model.language_model.", "language_model.model.", "")
"""What stands before a target's embedding, by family; the first that is there counts."""
_BEFORE_HEAD: Final = ("", "language_model.", "model.language_model.")


def read_lent(target: Path) -> dict[str, Entry]:
    """Find the embedding and the LM head of a target.

    Args:
        target: directory of the target's checkpoint.

    Returns:
        Their entries under the names that a drafter gives them; one that is not there is left out.
        A target whose head is tied to its embedding lends the embedding as its head.

    Raises:
        RefusedError: as :func:`read_bundle`; or ``BAD_CHECKPOINT``: a file of it is damaged.
    """
    bundle = read_bundle(target)
    if bundle.problems:
        raise refused(target, bundle.problems)
    found: dict[str, Entry] = {}
    for name, places in ((EMBEDDING, _BEFORE), (LM_HEAD, _BEFORE_HEAD)):
        for before in reversed(places):
            if f"{before}{name}" in bundle.entries:
                found[name] = bundle.entries[f"{before}{name}"]
    if LM_HEAD not in found and EMBEDDING in found and _tied(read_document(target, CONFIG)):
        found[LM_HEAD] = found[EMBEDDING]
    return found


def _tied(config: dict[str, Any]) -> bool:
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    return True in (config.get("tie_word_embeddings"), inner.get("tie_word_embeddings"))


def missing(name: str, shape: tuple[int, ...], target: Path | None) -> Problem:
    """The problem of a lent tensor that is nowhere."""
    where = "no target's directory was given" if target is None else "not in the target either"
    return Problem(name, f"a tensor {list(shape)}, here or in the target's checkpoint", where)
