"""The digest of the checkpoint that a whole-worker run loads."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from pp4.drafter.checkpoint.bundle import CONFIG, INDEX, SINGLE, read_bundle
from pp4.drafter.checkpoint.documents import inside
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import shown
from pp4.receipts.digests import tree_digest
from pp4.wire.frozen import CheckpointFacts

_READ: Final = 1 << 20


def digest_of(directory: Path) -> CheckpointFacts:
    """Return the digest over the sorted names and digests of the files that a worker loads.

    Args:
        directory: of a checkpoint; other files in it take no part.

    Raises:
        RefusedError: ``UNREADABLE``, ``BAD_CHECKPOINT``: no checkpoint can be read there.
    """
    files = read_bundle(directory).files
    # an index says which file a tensor comes from, so it is a part of what is loaded
    index = [] if files == (SINGLE,) else [INDEX]
    rows, size = [], 0
    for name in sorted({CONFIG, *index, *files}):
        digest, length = _read(inside(directory, name))
        rows.append([name, digest])
        size += length
    return CheckpointFacts(sha256=tree_digest(rows), files=len(rows), bytes=size)


def _read(path: Path) -> tuple[str, int]:
    digest, length = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while data := file.read(_READ):
                digest.update(data)
                length += len(data)
    except OSError as error:
        found = error.strerror or str(error)
        raise RefusedError(
            Refusal(Code.UNREADABLE, shown(str(path)), "a file of a checkpoint", found)
        ) from error
    return digest.hexdigest(), length
