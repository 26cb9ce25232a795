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
from types import SimpleNamespace
import torch
from pp4.worker.originals import Originals
rank = int(sys.argv[1])
originals = Originals(SimpleNamespace(rank=rank), Path(sys.argv[2]))
both = originals._gather(torch.tensor([[rank, 7]], dtype=torch.int32))
print(both[:, 0, 0].tolist())
"""


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "\u00fc", "50%20"])
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
        assert [rank.communicate(timeout=50)[0].strip() for rank in ranks] == ["[0, 1]"] * 2
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
