"""A tombstone is believed if it is of exactly the HOLD that was to be closed."""

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, WrongError
from pp4.hold.window import _tombstone
from pp4.wire.holds import Close

ASKED = Close(hold="0123456789abcdef", fence=7, why="done")
OURS = {"hold": ASKED.hold, "fence": "7", "why": "done", "survivors": []}


class Line:
    """Answers a close with one tombstone."""

    def __init__(self, tombstone):
        self.tombstone, self.asked = tombstone, []

    def ask(self, verb, arguments, deadline):
        self.asked.append((verb, arguments))
        return {"tombstone": self.tombstone}


def close(tombstone):
    line = Line(tombstone)
    found = _tombstone(line, ASKED, Deadline.after(SystemClock(), 60))
    assert line.asked == [("close", {"hold": ASKED.hold, "fence": 7, "why": "done"})]
    return found


def test_the_tombstone_of_the_hold_is_taken():
    # also where it was closed before, for another reason
    assert close({**OURS, "why": "deadline"}) == {**OURS, "why": "deadline"}


@pytest.mark.parametrize(
    "tombstone",
    [
        {},
        {**OURS, "hold": "fedcba9876543210"},
        {**OURS, "fence": "8"},
        {**OURS, "survivors": ["rank (pid 5, start 7)"]},
        {name: one for name, one in OURS.items() if name != "survivors"},
    ],
)
def test_any_other_is_none(tombstone):
    with pytest.raises(WrongError) as raised:
        close(tombstone)
    assert raised.value.refusal.code is Code.BAD_FRAME
