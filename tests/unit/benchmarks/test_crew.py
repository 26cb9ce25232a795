"""The parent's side of a race: a rank that hangs, fails or ends costs its line and no more."""

import os
import signal
from types import SimpleNamespace

import pytest

from benchmarks import race
from benchmarks.racing import crew as crews
from benchmarks.racing.crew import Crew, LostError
from benchmarks.racing.field import PAIR, SOLO, Entry

PLAYER = "tests.unit.benchmarks.player"
PATIENCE_S = 60


@pytest.fixture
def pair():
    with Crew(2, "cpu", PLAYER) as crew:
        yield crew


def gone(pids):
    """Whether none of some processes is there, not even as a zombie of ours."""
    for pid in pids:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        return False
    return True


def test_both_answer_or_the_first_alone(pair):
    assert pair.ask({"how": ["say", "fail"]}, PATIENCE_S) == [
        {"state": "checked"},
        {"state": "failed", "found": "RuntimeError: no"},
    ]
    assert pair.ask({"how": ["say", "hang"]}, PATIENCE_S, seats=1) == [{"state": "checked"}]


def test_a_rank_that_hangs_is_ended_at_the_deadline_with_the_other(pair):
    pair.ask({"how": ["say", "say"]}, PATIENCE_S)
    pids = pair.pids()
    with pytest.raises(LostError, match=r"no answer of rank \[1\]"):
        pair.ask({"how": ["say", "hang"]}, 2)
    assert gone(pids)
    assert pair.ask({"how": ["say", "say"]}, PATIENCE_S) == [{"state": "checked"}] * 2
    assert not set(pair.pids()) & set(pids)


def test_a_stopped_rank_is_ended_too(pair):
    pair.ask({"how": ["say", "say"]}, PATIENCE_S)
    pids = pair.pids()
    os.kill(pids[0], signal.SIGSTOP)
    with pytest.raises(LostError, match=r"rank \[0\]"):
        pair.ask({"how": ["say", "say"]}, 2)
    assert gone(pids)


def test_a_rank_that_waits_for_a_failed_one_gets_a_grace_only(pair, monkeypatch):
    monkeypatch.setattr(crews, "GRACE_S", 0.2)
    with pytest.raises(LostError, match=r"rank \[1\].*RuntimeError: no"):
        pair.ask({"how": ["fail", "hang"]}, PATIENCE_S)


def test_a_rank_that_ends_is_noticed_at_once(pair):
    with pytest.raises(LostError, match="rank 1 ended"):
        pair.ask({"how": ["hang", "end"]}, PATIENCE_S)
    with pytest.raises(LostError, match="rank 0 ended"):
        pair.ask({"how": ["end", "say"]}, PATIENCE_S)


def test_a_race_goes_on_after_a_contender_that_hangs(pair, monkeypatch):
    field = [Entry(name, seats, "", "") for name, seats in (("hang", PAIR), ("say", SOLO))]
    monkeypatch.setattr(race, "FIELD", field)
    monkeypatch.setattr(race, "BY_NAME", {entry.name: entry for entry in field})
    monkeypatch.setattr(race, "PATIENCE_S", 0.5)
    asked = race.parsed(["--device", "cpu", "--check-only"])
    asked.only = None
    monkeypatch.setattr(crews, "GRACE_S", 0.2)
    told = []
    lines = race.Race(asked, pair, lambda so_far: told.append(so_far[-1]["state"])).run()
    # the second line of the one that hung is not tried: it would hang as long again
    assert [line["state"] for line in lines[:2]] == ["lost", "left out"] == told[:2]
    monkeypatch.setattr(race, "PATIENCE_S", PATIENCE_S)
    assert race.Race(asked, pair, lambda so_far: None)._line(
        {"contender": "say", "replays": 0}
    ) == {"state": "checked"}
    assert race.status(asked, lines) == 1


def test_a_budget_leaves_lines_out_and_says_so(pair):
    asked = race.parsed(["--device", "cpu", "--check-only", "--seconds", "-1"])
    lines = race.Race(asked, pair, lambda so_far: None).run()
    assert {line["state"] for line in lines} == {"left out"}
    assert len(lines) == len(race.FIELD) * 2
    assert not pair.pids()


def test_a_pair_needs_two_seats():
    asked = race.parsed(["--device", "cpu", "--check-only"])
    line = race.Race(asked, SimpleNamespace(seats=1), None)._line({"contender": "pp4_pair"})
    assert line == {"state": "absent", "found": "needs two GPUs"}
