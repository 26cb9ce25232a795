"""A tombstone is believed if it is of exactly the HOLD that was to be closed."""

from unittest.mock import Mock

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError, UncleanError, WrongError
from pp4.hold.delivery import end_of
from pp4.hold.hop_ends import FAR_S
from pp4.hold.window import Window
from pp4.wire.holds import Close, Granted, HostCommand, Open
from pp4.wire.hops import FarLogin, FarStep

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
    found = end_of(line, ASKED, Deadline.after(SystemClock(), 60))
    assert line.asked == [("close", {"hold": ASKED.hold, "fence": 7, "why": "done"})]
    return found


def test_the_end_of_the_hold_is_taken():
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


class Answering:
    """A line that has an answer to everything, and keeps until when each was waited for."""

    ended = None

    def __init__(self):
        self.limits = {}

    def redirect(self, argv):
        """Nothing: there is no program."""

    def patient(self, attempt_s):
        """Nothing: there is one attempt."""

    def drop(self):
        """Nothing to let go of."""

    def ask(self, verb, arguments, deadline):
        self.limits[verb] = deadline.limit_ns / 1e9
        return {
            "beat": {"lease_ns": 1, "deadline_ns": 1, "steps": []},
            "hop": {"pid": 1},
            "watch": {"items": [], "last_line": "", "ended": True, "facts": HOPPED},
            "close": {"tombstone": OURS},
        }[verb]


HOPPED = {"facts": {}, "hold": "f" * 16, "boot_id": "b", "host_key": "k", "tombstone": {}}
GRANTED = Granted(
    hold=ASKED.hold, fence=7, nonce="n", exclusion="host", boot_id="b", gpus=("GPU-1",),
    opened_at="", bound_s=60.0, ttl_s=300.0, deadline_boottime_ns=1, transport="local",
    rehearsal=True, directory="/", public="/", work="/", compiled="/",
)  # fmt: skip
OPEN = Open(
    command="c", source_digest="0", gpus=("GPU-1",), coordinator="me", transport="local",
    ttl_s=300.0, bound_s=60.0, restore=(HostCommand(argv=("true",), limit_s=7.0),),
)  # fmt: skip
LOGIN = FarLogin(address="host", user="u", identity_file="/k", host_key="k")


def opened(line):
    def program(module, *arguments):
        return [module, *arguments]

    return Window(None, program, OPEN, GRANTED, line, SystemClock(), None, "")


@pytest.mark.parametrize(("hops", "longest_s"), [(0, 67.0), (1, 67.0 + FAR_S), (2, 67.0 + FAR_S)])
def test_the_end_is_waited_for_as_long_as_the_host_may_take_for_it(hops, longest_s):
    line = Answering()
    window = opened(line)
    for number in range(hops):
        window.hop(f"h{number}", LOGIN, FarStep(label="a", module="m"))
    assert window.close("done") == OURS
    assert line.limits["close"] == longest_s


def test_what_went_wrong_first_is_said_also_where_the_hold_cannot_be_closed():
    line = Answering()
    window = opened(line)
    lost = WrongError(Refusal(Code.CONNECTION_LOST, "supervisor", "an answer", "the end"))
    line.ask = Mock(side_effect=lost)
    first = RefusedError(Refusal(Code.NOT_IDLE, "quiesce: stop", "status 0", "status 3"))
    with pytest.raises(UncleanError) as raised:
        window.close("failed", first)
    refusal = raised.value.refusal
    assert refusal.code is Code.CONNECTION_LOST
    assert refusal.found == f"the end; what went wrong first: {first}"
    assert refusal.next == f"pp4 hold recover {ASKED.hold}"
