"""What ranks could not serve is refused before anything is started."""

import dataclasses
from pathlib import Path

import pytest

from pp4.errors import BadInputError, Code, RefusedError
from pp4.wire.facts import Waits
from pp4.worker.serving.setup import Setup, check
from tests.unit.drafter.checkpoints import SMALL

SETUP = Setup(Path("/c"), None, (1, 64), (4,), 1, 16, 0, True, Waits(), "nonce", 1)


def test_what_fits_is_let_through():
    check(SETUP, SMALL)
    # the original selector takes as many rows as there is memory for
    check(dataclasses.replace(SETUP, batches=(1, 65), sampled=False), SMALL)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"batches": (1, 65)}, "batches: expected at most 64 rows .*, found 65"),
        ({"depths": (4, SMALL.block + 1), "sampled": False}, "depths: expected at most"),
        ({"context": SMALL.max_positions}, "context: expected at most"),
    ],
)
def test_what_does_not_fit_refuses(change, match):
    with pytest.raises(BadInputError, match=match):
        check(dataclasses.replace(SETUP, **change), SMALL)


def test_a_drafter_that_cannot_be_sampled_refuses_with_a_way_out():
    narrow = dataclasses.replace(SMALL, markov_rank=3)
    with pytest.raises(RefusedError) as caught:
        check(SETUP, narrow)
    assert caught.value.refusal.code is Code.UNSUPPORTED_CHECKPOINT
    assert caught.value.refusal.next == "switch sampled drafting off for this drafter"
    check(dataclasses.replace(SETUP, sampled=False), narrow)
