"""A subject for each test."""

import pytest

from tests.unit.launch.subjects import Subject


@pytest.fixture
def subject(tmp_path):
    """The reference runner, copied."""
    return Subject(tmp_path)
