"""These tests run the kernel in Triton's interpreter, which is chosen when Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import json

import pytest
import torch

from pp4.drafter.checkpoint import synthetic
from pp4.engine.replay.making import make_heldout
from pp4.engine.replay.reading import read_heldout
from pp4.kernels import interpreting
from tests.unit.engine.replay.cases import DOCUMENTS, DRAFTER, PLAN, TARGET, cut
from tests.unit.engine.target import checkpoints

interpreting.repeat_nothing()


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Sums of a model may round otherwise with another number of threads; and cores are few."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """A directory with a tiny target, a drafter that goes with it, and token ids of a text."""
    path = tmp_path_factory.mktemp("mini")
    checkpoints.write(path / "target", TARGET)
    synthetic.write(path / "drafter", DRAFTER)
    (path / "tokens.json").write_text(json.dumps(DOCUMENTS))
    return path


@pytest.fixture(scope="session")
def heldout(pair):
    """Path of the held-out file of that pair."""
    make_heldout(
        target=pair / "target",
        drafter=pair / "drafter",
        tokens=pair / "tokens.json",
        out=pair / "heldout",
        plan=PLAN,
        device=torch.device("cpu"),
    )
    return pair / "heldout"


@pytest.fixture(scope="session")
def held(heldout):
    """What is in it; whoever changes a tensor clones it first."""
    return read_heldout(heldout)


@pytest.fixture(scope="session")
def short(heldout):
    """Path of that file, blocks cut to two positions: an interpreted kernel takes long."""
    path = heldout.with_name("short")
    path.write_bytes(cut(heldout.read_bytes(), 2))
    return path
