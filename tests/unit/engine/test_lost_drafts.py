"""What the loss of a sampled draft may depend on, and what it must not: docs/engine.md."""

import pytest

from pp4.engine.drafting import Cause
from tests.unit.engine.chains import REQUESTS, chance_of
from tests.unit.engine.doubles import FakeDrafts, TableTarget
from tests.unit.verifier.chances import ALPHA


def losing(rule):
    """-> the chance of what comes out where drafts are lost by a rule of the draft and its turn."""
    target = TableTarget(slots=REQUESTS, memory=1, spread=1.0)
    # of a longer block all but the first token hide what happens to that
    drafts = FakeDrafts(target, [0], depth=1)
    make = drafts._one

    def one(want):
        draft = make(want)
        return Cause.TIMED_OUT if rule(draft, drafts.turn) else draft

    drafts._one = one
    found, _, told = chance_of(target, drafts, 1.0)
    assert told["plain_timed_out"] > told["steps"]
    assert told["drafted_rows"] > told["steps"]
    return found


@pytest.mark.parametrize(
    "rule",
    [
        lambda draft, turn: turn % 7 < 3,
        lambda draft, turn: draft.tickets[0].max() > 5 << 20,
    ],
    ids=["load", "q"],
)
def test_a_loss_may_depend_on_load_and_on_q(rule):
    assert losing(rule) > ALPHA


def test_one_that_depends_on_the_tokens_is_caught():
    assert losing(lambda draft, turn: draft.tokens[0] % 2) < ALPHA
