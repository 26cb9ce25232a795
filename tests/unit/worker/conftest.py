"""These tests import the GPU side, which chooses the interpreter when Triton is imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import pytest

from tests.unit.worker.owners import Asker


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """One owner process for a module; each test starts a pair of its own in it."""
    asker = Asker(tmp_path_factory.mktemp("owner"))
    yield asker
    asker.close()


@pytest.fixture
def pair(owner):
    """The owner with a fresh pair, sealed and linked, with patient waits."""
    owner.fresh()
    yield owner
    owner.teardown()
