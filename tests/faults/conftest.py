"""An owner of its own for each test: what is done to it here is not survived by the next one."""

import pytest

from tests.unit.worker.owners import Asker


@pytest.fixture
def owner(tmp_path):
    """A running owner without a pair."""
    asker = Asker(tmp_path)
    yield asker
    asker.close()
