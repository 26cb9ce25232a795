"""Writes a held-out file: whole, once, never over another file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from pp4.engine.replay.checking import check_values
from pp4.engine.replay.heldout import (
    FORMAT,
    METADATA,
    TEMPERATURES,
    Header,
    Heldout,
    Sizes,
    Sources,
    assembled,
    layout,
    tensor_sha256,
)
from pp4.kernels import dyadic24
from pp4.receipts.canonical import dump
from pp4.receipts.store import write_new


def write_heldout(
    path: Path, sizes: Sizes, sources: Sources, tensors: Mapping[str, Tensor]
) -> Heldout:
    """Write a held-out file; the same inputs give the same bytes.

    Args:
        path: of the file, which must not exist.
        sizes: of everything.
        sources: what it was made from.
        tensors: those of :func:`pp4.engine.replay.heldout.layout`, on any device.

    Returns:
        What was written.

    Raises:
        BadInputError: a value is out of range or contradicts another, as a reader would find.
        RefusedError: ``EXISTS`` or ``UNWRITABLE``.
    """
    # whoever has loaded a checkpoint has the package
    from safetensors.torch import save

    kept = {name: tensors[name].detach().cpu().contiguous() for name in layout(sizes)}
    header = Header(
        format=FORMAT,
        definition=dyadic24.DEFINITION,
        definition_sha256=dyadic24.definition_digest(),
        temperatures=TEMPERATURES,
        sizes=sizes,
        sources=sources,
        tensors={name: tensor_sha256(one) for name, one in kept.items()},
    )
    text = dump(header.model_dump(mode="json"), METADATA).decode()
    raw = save(kept, metadata={METADATA: text})
    held = assembled(header, hashlib.sha256(raw).hexdigest(), kept)
    check_values(held)
    write_new(path, raw)
    return held
