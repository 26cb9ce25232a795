"""Two ranks find each other through a file, whatever its directory is called."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pp4.config import child_environment

ROOT = Path(__file__).parents[3]
NAMES = ["plain", "a b", "it's", "\u00fc", "50%20", "a?b#c&d=e"]
RANK = """
import sys
from pathlib import Path
import torch
from pp4.worker import group
rank = int(sys.argv[1])
for directory in sys.argv[2:]:
    store, whole = group.join(rank, Path(directory, "group"), "gloo")
    both = group.gather(torch.tensor([[rank, 7], [rank, 8]], dtype=torch.int32))
    print(both.tolist(), whole.rank(), whole.size(), flush=True)
    torch.distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What both ranks say, one line for each directory in which they met."""
    directories = [tmp_path_factory.mktemp("stores") / name for name in NAMES]
    for directory in directories:
        directory.mkdir()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), *map(str, directories)],
            env=child_environment({"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        for rank in ranks:
            # one that never meets the other has said where it came to
            with suppress(subprocess.TimeoutExpired):
                rank.wait(60)
    finally:
        for rank in ranks:
            rank.kill()
    return [rank.communicate()[0].splitlines() for rank in ranks]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_in_a_directory_of_any_name(said, name):
    met = [lines[NAMES.index(name) :][:1] for lines in said]
    assert met == [[f"[[[0, 7], [0, 8]], [[1, 7], [1, 8]]] {rank} 2"] for rank in (0, 1)]
