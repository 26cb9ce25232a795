"""A half with a real worker and engine on a CPU, and what is left when a rank stands still."""

import json
from dataclasses import dataclass, field

import pytest

from pp4.clock import SystemClock
from pp4.config import SWITCHES
from pp4.errors import Code
from pp4.hold.chained import read_chained
from pp4.hold.rehearsal import open_rehearsal
from pp4.measure import far
from pp4.measure.programs import Limits
from pp4.measure.recorder import FILE
from pp4.measure.schedule import REHEARSED, rounds
from pp4.receipts.admission import Command, Subject, admit
from pp4.receipts.canonical import dump
from pp4.receipts.growth import arm_verdict
from pp4.receipts.runs import MeasuredArm
from pp4.transport.local import LocalTransport
from pp4.wire.facts import read
from pp4.wire.measuring import Measure, Measured, Pair
from tests.unit.engine.measured.arms import write_pair
from tests.unit.processes import halt

TINY = REHEARSED.model_copy(update={"batches": (2,), "new_tokens": 4, "headline": 2, "profiled": 1})
BLOCK_S = 3.0
"""After which a worker gives a rank up that does not answer; a block takes a part of a second."""


@dataclass
class Watcher:
    """Takes what is told, and does something to a process after a round.

    Attributes:
        items: what was told.
        after: arm, phase and index of the round.
        do: given the HOLD, once.
    """

    items: list = field(default_factory=list)
    after: tuple = ()
    do: object = None
    hold: object = None

    def tell(self, item):
        self.items.append(item)
        found = item.get("round")
        if found and (item["arm"], found["phase"], found["index"]) == self.after:
            self.do(self.hold)


@dataclass
class Half:
    """What is left of a half.

    Attributes:
        answer: of the step.
        items: what it told.
        kept: lines on the disk.
        alive: labels of processes that were left.
    """

    answer: Measured
    items: list
    kept: tuple
    alive: list


def measured(directory, work, watcher):
    """Run a half in a rehearsal HOLD of this process."""
    admitted = admit(Command.REHEARSAL, [], Subject(source_digest="0" * 64))
    pair = Pair(**write_pair(directory))
    asked = Measure(work=work, command="pp4 measure --dry-run", pair=pair, schedule=TINY)
    with open_rehearsal(admitted, LocalTransport(), SystemClock(), directory) as hold:
        watcher.hold = hold
        compiled, limits = hold.directory / "compiled", Limits(block_s=BLOCK_S)
        told = far.measure(hold, asked, watcher, None, compiled, limits)
        kept = read_chained(hold.directory / FILE)
        alive = [one.label for one in hold.running()]
    assert (kept.torn, kept.fault) == (False, "")
    return Half(read(Measured, told), watcher.items, kept.lines, alive)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """B2 and A2, started by somebody in whose shell both switches are on.

    A rank of A2 is stopped after the first of its profiled rounds.
    """
    watcher = Watcher(after=("A2", "profiled", 0), do=stop("worker-a2-rank-1"))
    with pytest.MonkeyPatch.context() as patch:
        for name in SWITCHES:
            patch.setenv(name, "1")
        return measured(tmp_path_factory.mktemp("half"), "B2A2", watcher)


def stop(label):
    """Stop the process of a label."""

    def do(hold):
        (pid,) = (one.pid for one in hold.running() if one.label == label)
        halt(pid)

    return do


def arms_of(half):
    return [MeasuredArm.model_validate_json(json.dumps(one)) for one in half.answer.arms]


def test_the_first_arm_is_complete_with_every_round_of_the_schedule(half):
    on, off = arms_of(half)
    assert (on.arm, on.switch, on.verdict) == ("B2", "ON", "complete")
    assert (off.arm, off.switch, off.verdict) == ("A2", "OFF", "partial")
    found = [(one.phase, one.index, one.batch, one.temperature) for one in on.rounds]
    assert found == [
        (one.phase, one.index, one.cell.batch, one.cell.temperature)
        for phase in ("headline", "profiled")
        for one in rounds(TINY, phase)
    ]
    assert {one.tokens for one in on.rounds} == {8}
    assert [one.label for one in on.snapshots] == ["baseline", "headline", "profiled", "final"]
    assert arm_verdict(on.snapshots, on.rounds) == "complete"


def test_a_rank_that_stands_still_ends_the_arm_and_goes_with_it(half):
    """Its worker gives the rank up and ends both; the rows of that round lack their drafts."""
    _, off = arms_of(half)
    # ranks that are gone are seen after a round, rows without drafts in a snapshot
    ended = (off.verdict, half.answer.refusal["code"])
    assert ended in (("partial", Code.RANK_DIED), ("failed_rounds_grew", Code.FAILED_ROUNDS))
    found = [(one.phase, one.index) for one in off.rounds]
    assert found == [*(("headline", index) for index in range(4)), ("profiled", 0), ("profiled", 1)]
    *_, before, hit = off.rounds
    assert len(before.draft_ns) <= before.drafted
    # it waited for its worker, and then went on without it
    assert max(hit.draft_ns) > BLOCK_S / 2 * 1e9
    assert hit.drafted < hit.batch * len(hit.draft_ns)
    assert half.alive == []


def test_both_arms_say_the_same_at_temperature_0_and_are_drafted_throughout(half):
    on, off = arms_of(half)
    pairs = list(zip(on.rounds, off.rounds, strict=False))
    assert len(pairs) == 6
    same = [one.outputs_sha256 == other.outputs_sha256 for one, other in pairs]
    assert all(same[place] for place, (one, _) in enumerate(pairs) if one.temperature == "0")
    # what is sampled is drawn otherwise, or both arms would have run the same
    assert not all(same)
    assert all(one.drafted > 0 for pair in pairs[:-1] for one in pair)


def test_only_the_arm_that_is_on_has_drawn_anything(half):
    """Bias rows are computed where a draft is sampled, and nowhere else."""
    on, off = arms_of(half)
    assert off.snapshots[-1].counters["worker_cache_misses"] == "0"
    assert int(on.snapshots[-1].counters["worker_cache_misses"]) > 0


def test_engine_and_worker_count_the_same_in_every_snapshot(half):
    for arm in arms_of(half):
        for one in arm.snapshots:
            assert one.counters["worker_asked"] == one.counters["drafts_asked"]
            assert set(one.memory_bytes) == {"rss.engine", "rss.worker", "rss.rank0", "rss.rank1"}
    on, _ = arms_of(half)
    assert on.snapshots[-1].counters["worker_disconnects"] == "1"


def test_what_was_told_lies_on_the_disk_and_is_what_is_answered(half):
    for arm in half.answer.arms:
        found = [one for one in half.items if one["arm"] == arm["arm"]]
        assert [one["round"] for one in found if one.get("round")] == arm["rounds"]
        assert [one["snapshot"] for one in found if one.get("snapshot")] == arm["snapshots"]
        lines = [line for line in half.kept if line["step"] == f"arm-{arm['arm']}"]
        for event, name in (("round", "rounds"), ("snapshot", "snapshots")):
            kept = [line["detail"] for line in lines if line["event"] == event]
            assert dump(kept) == dump(arm[name])
