"""One rank of a pair, as a program: drafts over a link to its peer and leaves its outputs."""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import torch

from pp4.drafter.sampling import geometry_of
from pp4.drafter.tp_drafter import TPDrafter
from pp4.kernels import interpreting
from pp4.kernels.link import Bounds, SharedMemoryLink
from tests.unit.drafter.checkpoints import SMALL
from tests.unit.drafter.drafting import CONTEXT, GREEDY, PADDING, SLOTS, Row, draft, parts_of

POLLS = 60_000
ROWS = (Row(0, 7, 3), PADDING, Row(1, 2, 9, GREEDY))
"""What both ranks draft, and a solo drafter beside them."""


def launched_once(launch):
    """As on a GPU: recording launches, and the peer may not be there yet."""
    launch()
    return launch


def meet(word):
    """Say how far this rank is, and wait until the test lets both go on."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def main(rank, directory):
    torch.set_num_threads(1)
    interpreting.quicken()
    own, peer = (Path(directory) / f"words-{one}" for one in (rank, 1 - rank))
    bounds = Bounds(first_polls=POLLS, next_polls=POLLS)
    link = SharedMemoryLink(own, peer, rank=rank, rows=3, start=1, bounds=bounds)
    made = []

    def gather(mine):
        # the original selector only warms up here; nobody looks at what it gives
        return torch.stack([mine, mine])

    meet("made")
    link.connect()
    drafter = TPDrafter(
        parts_of(SMALL, (rank,)),
        slots=SLOTS,
        context=CONTEXT,
        cache_mib=1,
        gather=gather,
        repeated=launched_once,
        link=link,
        geometry=geometry_of(SMALL, tile=32),
    )
    drafter.prepare([3], [4])
    meet("ready")
    for _ in range(2):
        captured, found, _ = draft(drafter, 4, ROWS)
        made.append(captured.outputs.numpy().tobytes())
        previous = [row.anchor for row in ROWS if row is not None]
        drafter.markov.used([*previous, *found["token"][[0, 2], :3].ravel().tolist()])
        drafter.markov.fill(8)
    (Path(directory) / f"outputs-{rank}").write_bytes(b"".join(made))
    link.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
