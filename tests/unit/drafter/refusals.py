"""The refusal that a checkpoint gives."""

from pathlib import Path

import pytest

from pp4.drafter.checkpoint.load import load
from pp4.drafter.checkpoint.survey import survey
from pp4.errors import RefusedError


def refusal_of(path, **more):
    """The refusal that loading gives; looking gives the same."""
    with pytest.raises(RefusedError) as caught:
        load(path, 0, 2, **more)
    with pytest.raises(RefusedError) as seen:
        survey(Path(path), more.get("target"))
    assert seen.value.refusal == caught.value.refusal
    assert caught.value.refusal.left == "nothing"
    return caught.value.refusal
