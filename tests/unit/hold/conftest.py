"""Places: one that users of one machine share, and one of this user alone."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.unit.hold.holds import private


@pytest.fixture
def shared():
    """A directory that every user can reach."""
    directory = Path(tempfile.mkdtemp(prefix="pp4-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def exclusion(tmp_path):
    """Locks, fences and registrations that nobody shares."""
    return private(tmp_path)
