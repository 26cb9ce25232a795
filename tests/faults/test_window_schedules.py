"""Frames between coordinator and host are lost, doubled and late: a HOLD ends all the same."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pp4.errors import Pp4Error
from pp4.hold import window as windows
from pp4.transport.faulty import Action, FaultyHost, Schedule
from pp4.transport.local_host import LocalHost
from tests.faults.windows import DRILLS, until, window

ACTIONS = st.lists(st.sampled_from(list(Action)), max_size=12)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Whoever gets no answer gives up soon: nothing here takes longer when all is well."""
    monkeypatch.setattr(windows, "OPEN_S", 4.0)
    monkeypatch.setattr(windows, "CLOSE_S", 2.0)


def records(place):
    """Registrations by HOLD, each with its tombstone or None."""
    found = {}
    for directory in (place / "host" / "holds", place / "state" / "holds"):
        for one in directory.glob("*/registration.json"):
            closed = one.parent / "closed.json"
            text = closed.read_text() if closed.exists() else None
            found[one.parent.name] = None if text is None else json.loads(text)
    return found


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(to_program=ACTIONS, from_program=ACTIONS)
def test_whatever_becomes_of_the_frames(to_program, from_program):
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        mark = place / "mark"
        host = FaultyHost(LocalHost(), Schedule(to_program, from_program))
        answer = None
        try:
            with window(place, host=host) as one:
                told = {"answer": {"n": 7}, "start": ["setsid"], "mark": str(mark)}
                answer = one.run("drill", DRILLS, told)
        except Pp4Error:
            pass
        # what was answered is right, and nothing was done twice
        assert answer in (None, {"n": 7})
        assert answer is None or mark.exists()
        assert not mark.exists() or mark.read_bytes() == b"x"
        # the host closes what nobody could close, and the next one gets a higher fence
        until(lambda: all(records(place).values()))
        before = [int(closed["fence"]) for closed in records(place).values()]
        assert len(before) <= 1
        with window(place) as again:
            assert again.granted.fence == max(before, default=0) + 1
