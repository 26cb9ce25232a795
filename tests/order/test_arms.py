"""A1, B1 | B2, A2: the order of arms and of what each of them does, as a transcript."""

import pytest

from pp4.measure.schedule import rounds
from pp4.receipts.digests import tree_digest
from tests.unit.measure.stage import SMALL, Stage


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    yield made
    made.journal.close()


def asked(arm, phase):
    """Every round of a phase as it is asked for."""
    return [f"{arm} engine round {phase} {one.index}" for one in rounds(SMALL, phase)]


def recorded(arm, phase):
    """Every round of a phase, each told before the next is asked for."""
    return [
        line
        for one in rounds(SMALL, phase)
        for line in (
            f"{arm} engine round {phase} {one.index}",
            f"{arm} told: {phase} {one.index}",
        )
    ]


def seen(arm, label):
    return [
        f"{arm} engine look {label}",
        f"{arm} worker settle",
        f"{arm} told: snapshot {label}",
    ]


def whole(arm):
    """Everything that an arm does."""
    return [
        f"{arm} engine starts",
        f"{arm} engine prepare",
        f"{arm} worker starts",
        f"{arm} worker serve",
        f"{arm} engine connect",
        *asked(arm, "warm-up"),
        *asked(arm, "greedy"),
        *seen(arm, "baseline"),
        *recorded(arm, "headline"),
        *seen(arm, "headline"),
        *recorded(arm, "profiled"),
        *seen(arm, "profiled"),
        f"{arm} engine disconnect",
        *seen(arm, "final"),
        f"{arm} worker teardown",
        f"{arm} worker stopped",
        f"{arm} engine stopped",
    ]


def journaled(arm):
    """What the journal has of an arm."""
    before = [f"{arm}/{phase}" for phase in ("engine", "worker", "connection", "warm-up", "greedy")]
    both = [(step, event) for step in before for event in ("begin", "end")]
    timed = [
        line
        for phase in ("headline", "profiled")
        for line in (
            (f"{arm}/{phase}", "begin"),
            (f"{arm}/{phase}", "end"),
            (f"{arm}/{phase}", "snapshot"),
        )
    ]
    end = [(f"{arm}/final", "snapshot"), (f"{arm}/teardown", "begin"), (f"{arm}/teardown", "end")]
    return [(arm, "begin"), *both, (f"{arm}/baseline", "snapshot"), *timed, *end, (arm, "end")]


@pytest.mark.parametrize(
    ("work", "order"), [("A1B1", ["A1", "B1"]), ("B2A2", ["B2", "A2"]), ("budget", ["A1", "B1"])]
)
def test_each_half_runs_its_two_arms_in_their_order_and_never_both_at_once(stage, work, order):
    answer = stage.measure(work)
    if work != "budget":
        assert stage.transcript == [line for arm in order for line in whole(arm)]
        assert [arm["arm"] for arm in answer.arms] == order
    arms = [line.split()[0] for line in stage.transcript]
    assert arms == sorted(arms, key=order.index)


@pytest.mark.parametrize(("work", "order"), [("A1B1", ["A1", "B1"]), ("B2A2", ["B2", "A2"])])
def test_the_journal_of_the_hold_says_the_order_of_arms_and_phases(stage, work, order):
    answer = stage.measure(work)
    wanted = [line for arm in order for line in journaled(arm)]
    assert stage.steps() == wanted
    # and the answer brings it along, so that it will be in the receipt
    inside = [line for line in answer.members["journal"] if line["step"].startswith("arm-")]
    assert [(line["step"][4:], line["event"]) for line in inside] == wanted
    sealed = [line["detail"]["sha256"] for line in inside if line["event"] == "snapshot"]
    assert sealed == [tree_digest(one) for arm in answer.arms for one in arm["snapshots"]]


def test_an_arm_is_warm_and_greedy_before_its_baseline_and_timed_only_after_it(stage):
    stage.measure()
    for arm in ("A1", "B1"):
        lines = [line for line in stage.transcript if line.startswith(f"{arm} engine")]
        phases = [line.split()[3] for line in lines if " round " in line]
        assert phases == sorted(phases, key=["warm-up", "greedy", "headline", "profiled"].index)
        before = lines[: lines.index(f"{arm} engine look baseline")]
        assert {line.split()[3] for line in before if " round " in line} == {"warm-up", "greedy"}


def test_every_arm_decodes_the_same_rounds_in_the_same_order(tmp_path):
    found = set()
    for work in ("A1B1", "B2A2"):
        (tmp_path / work).mkdir()
        stage = Stage(tmp_path / work)
        stage.measure(work)
        stage.journal.close()
        for arm in work[:2], work[2:]:
            lines = [line for line in stage.transcript if line.startswith(f"{arm} engine round")]
            found.add(tuple(line[2:] for line in lines))
    assert len(found) == 1


def test_a_round_is_on_the_disk_when_it_is_told_and_told_before_the_next(stage):
    durable = []

    def look(item):
        if item.get("round"):
            whole = stage.kept()[-1]
            durable.append((whole["event"], whole["detail"]) == ("round", item["round"]))

    stage.on_told = look
    stage.measure()
    assert durable == [True] * 2 * sum(len(rounds(SMALL, p)) for p in ("headline", "profiled"))


def test_the_next_arm_begins_only_when_nothing_of_the_one_before_is_left(stage):
    seen = []
    real = stage.start

    def start(module, arguments, *, environment, label):
        seen.append((label, [one.label for one in stage.running()]))
        return real(module, arguments, environment=environment, label=label)

    stage.start = start
    stage.measure()
    assert dict(seen)["engine-b1"] == []
