"""An owner, a host and coordinators of its own for each test that ends them; one owner survives."""

import os

import pytest

from tests.faults.windows import Coordinator
from tests.faults.workers import write_checkpoint
from tests.unit.worker.owners import Asker


@pytest.fixture(scope="session")
def drafter(tmp_path_factory):
    """The small checkpoint that all workers serve."""
    return write_checkpoint(tmp_path_factory.mktemp("drafters") / "drafter")


@pytest.fixture
def owner(tmp_path):
    """A running owner without a pair."""
    asker = Asker(tmp_path)
    yield asker
    asker.close()


@pytest.fixture(scope="module")
def survivor(tmp_path_factory):
    """A running owner that is asked to survive one fault of its ranks after the other."""
    asker = Asker(tmp_path_factory.mktemp("survivor"))
    yield asker
    asker.close()


@pytest.fixture
def place(tmp_path):
    for name in ("state", "host"):
        (tmp_path / name).mkdir(mode=0o700)
    if os.geteuid() == 0:
        (tmp_path / "host").chmod(0o755)
        # a host directory below one that others may write would exclude nobody
        (tmp_path / "host").rmdir()
        return tmp_path
    (tmp_path / "host").rmdir()
    return tmp_path


@pytest.fixture
def coordinator(place):
    started = []

    def start(arguments=None, **more):
        started.append(Coordinator(place, arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()
