"""Looks at a checkpoint without loading it: ``python -m pp4.drafter.inspection PATH [TARGET]``.

It needs neither torch nor safetensors, since headers are read by
:mod:`pp4.drafter.checkpoint.headers`; what it refuses, loading would refuse.  Only loading looks at
values.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.headers import ITEM_BYTES
from pp4.drafter.checkpoint.problems import shown
from pp4.drafter.checkpoint.survey import Survey, survey
from pp4.drafter.checkpoint.tensors import MAP, Wanted, rows_of
from pp4.drafter.config import bounds_of
from pp4.drafter.support import DEPTHS, unsupported
from pp4.errors import Exit, Pp4Error

WORLD: Final = 2
_MAP_BYTES: Final = 4
"""Bytes of an id of the token map once it is loaded: it is read as 64 bits and held as 32."""


def inspect(path: Path, target: Path | None = None) -> dict[str, Any]:
    """Describe a checkpoint.

    Args:
        path: directory of the checkpoint.
        target: directory of the target's checkpoint, for what the drafter's leaves to it.

    Returns:
        What is ready for JSON: ``config`` as understood; ``tensors``, each with its file, type,
        shape, bytes and the rows and bytes of each rank; ``bounds`` of the ranks' draft ids,
        ``file_bytes`` of all tensors, ``rank_bytes`` of what each rank of two holds once it is
        loaded (features not counted); ``depths``, with the reasons against each.

    Raises:
        RefusedError: as :func:`pp4.drafter.checkpoint.survey.survey`.
    """
    found = survey(path, target)
    tensors = [_described(found, one) for one in found.tensors.values()]
    return {
        "path": shown(str(path)),
        "config": {
            **asdict(found.config),
            "layout": str(found.config.layout),
            "target_layers": list(found.config.target_layers),
        },
        "tensors": tensors,
        "bounds": [list(pair) for pair in bounds_of(found.config.draft_vocab, WORLD)],
        "file_bytes": sum(tensor["bytes"] for tensor in tensors),
        "rank_bytes": [
            sum(tensor["ranks"][rank]["bytes"] for tensor in tensors) for rank in range(WORLD)
        ],
        "depths": [
            {"n_out": depth, "why_not": list(unsupported(found.config, depth))} for depth in DEPTHS
        ],
    }


def _described(found: Survey, one: Wanted) -> dict[str, Any]:
    entry = found.entries[one.name]
    return {
        "name": one.name,
        "file": shown(str(entry.file)),
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "bytes": entry.bytes,
        "ranks": [_part(one, entry.dtype, rank) for rank in range(WORLD)],
    }


def _part(one: Wanted, dtype: str, rank: int) -> Mapping[str, Any]:
    """Rows and bytes that a rank holds of a tensor; none of one that is not read."""
    if not one.read:
        return {"rows": None, "bytes": 0}
    first, last = rows_of(one, rank, WORLD)
    item = _MAP_BYTES if one.name == MAP else ITEM_BYTES[dtype]
    return {"rows": [first, last], "bytes": (last - first) * prod(one.shape[1:]) * item}


def main(arguments: Sequence[str]) -> int:
    """Write the description or the refusal as one JSON object; -> the exit code."""
    try:
        paths = [Path(one) for one in arguments]
        text, status = json.dumps(inspect(*paths)), Exit.DONE
    except Pp4Error as error:
        text, status = json.dumps({"refusal": error.refusal.as_dict()}), error.exit
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
