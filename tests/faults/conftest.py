"""Owners of their own for what ends an owner; one that stays for what it has to survive."""

import pytest

from tests.unit.worker.owners import Asker


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
