"""Controls of the owner: rules that a careless owner would follow.  Never imported by the product.

``python -m pp4.worker.controls DIRECTORY COMPILED`` runs an owner that believes one rank's
own word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pp4.wire.facts import Grid
from pp4.worker.owner import Owner, places, serve
from pp4.worker.release import Release, Told, both_ranks


def one_word(blocks: Sequence[Told], stamps: Grid) -> Release:
    """Release as soon as any one rank's own word and rows are clean."""
    for block in blocks:
        if not block.own_error and not any(any(row) for row in block.errors):
            return Release(True, None)
    return both_ranks(blocks, stamps)


if __name__ == "__main__":
    serve(Owner(*places(sys.argv[1:]), rule=one_word, lifeline=0))
