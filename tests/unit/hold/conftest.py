"""A place that users of one machine share."""

import shutil
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def shared():
    """A directory that every user can reach."""
    directory = Path(tempfile.mkdtemp(prefix="pp4-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)
