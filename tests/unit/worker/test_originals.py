"""Two ranks find each other through a file, whatever its directory is called."""

import subprocess
import sys
from pathlib import Path

import pytest

from pp4.config import child_environment

ROOT = Path(__file__).parents[3]
RANK = """
import sys
from pathlib import Path
import torch
from pp4.worker import group
rank = int(sys.argv[1])
store, whole = group.join(rank, Path(sys.argv[2]), "gloo")
both = group.gather(torch.tensor([[rank, 7], [rank, 8]], dtype=torch.int32))
print(both.tolist(), whole.rank(), whole.size())
"""


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "\u00fc", "50%20", "a?b#c&d=e"])
def test_a_store_in_a_directory_of_any_name(tmp_path, name):
    directory = tmp_path / name
    directory.mkdir()
    environment = child_environment({"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"})
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(directory / "group")],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        said = [rank.communicate(timeout=50)[0].strip() for rank in ranks]
        both = "[[[0, 7], [0, 8]], [[1, 7], [1, 8]]]"
        assert said == [f"{both} {rank} 2" for rank in (0, 1)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
