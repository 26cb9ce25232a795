"""A real worker without a kernel, one for all tests of this directory that need one."""

import pytest

from tests.unit.engine.served import Served


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """A worker that samples, of a drafter with few tokens, so that a target agrees by chance."""
    made = Served(tmp_path_factory.mktemp("engine"))
    yield made
    made.close()
