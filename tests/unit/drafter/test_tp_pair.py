"""Two rank processes, each with its shard and the interpreted kernel, draft as one with both."""

import selectors
import subprocess
import sys
from pathlib import Path

from tests.unit.drafter.checkpoints import SMALL
from tests.unit.drafter.drafting import draft, solo
from tests.unit.drafter.tp_rank import ROWS

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120


def meet(ranks, word):
    """Wait until both ranks are that far, then let both go on."""
    for process in ranks:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S), f"a rank is not {word}"
        assert process.stdout.readline().decode() == f"{word}\n"
    for process in ranks:
        process.stdin.write(b"go\n")
        process.stdin.flush()


def test_a_pair_gives_the_bytes_of_both_shards_in_one_place(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.unit.drafter.tp_rank", str(rank), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        for rank in (0, 1)
    ]
    try:
        meet(ranks, "made")
        meet(ranks, "ready")
        assert [process.wait(PATIENCE_S) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    found = [(tmp_path / f"outputs-{rank}").read_bytes() for rank in (0, 1)]
    alone = solo(SMALL, [(3, 4)])
    expected = [draft(alone, 4, ROWS)[0].outputs.numpy().tobytes() for _ in range(2)]
    # the second time from cached rows, and with the epochs that follow
    assert found == [b"".join(expected)] * 2
    assert expected[0] != expected[1]
