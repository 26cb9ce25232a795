"""Arms with programs that are played: what stops one, what is kept of it, what it is told."""

import json

import pytest

from pp4.clock import Deadline
from pp4.config import INTERPRETED, ON_GPUS, SWITCHES
from pp4.errors import Code, Refusal, TimedOutError, UncleanError, WrongError
from pp4.measure import arms, budgeting, members
from pp4.measure.schedule import STANDARD, rounds
from pp4.receipts.digests import tree_digest
from pp4.receipts.growth import PARTS
from pp4.wire.measuring import Sampled, Stepped
from pp4.wire.serving import read_settings
from tests.unit.measure.stage import MIB, PREPARED, SMALL, Stage, look_of, round_of
from tests.unit.qualify.gpus import PLACES, UUIDS, gpu, report
from tests.unit.qualify.whole_runs import LIBRARIES, primed, settled, torn_down


@pytest.fixture
def stage(tmp_path):
    made = Stage(tmp_path)
    yield made
    made.journal.close()


def refusal(code, where="engine"):
    return WrongError(Refusal(code, where, "a thing", "another"))


def of(answer):
    """Arms and how each ended."""
    return [(arm["arm"], arm["verdict"]) for arm in answer.arms]


def timed(arm):
    return [(one["phase"], one["index"]) for one in arm["rounds"]]


# -- what is started ----------------------------------------------------------------------------


def test_a_switch_is_set_in_arm_b_alone_and_for_its_own_program_alone(stage):
    stage.measure()
    assert stage.environments == {
        "engine-a1": INTERPRETED,
        "worker-a1": INTERPRETED,
        "engine-b1": {**INTERPRETED, SWITCHES[1]: "1"},
        "worker-b1": {**INTERPRETED, SWITCHES[0]: "1"},
    }
    assert {label: module for label, module in stage.modules.items() if "b1" in label} == {
        "engine-b1": "pp4.engine.measured",
        "worker-b1": "pp4.worker.serve",
    }


def test_each_engine_is_told_the_switch_of_its_arm_and_whose_memory_counts(stage):
    asked = {}

    def keep(arm):
        return lambda given: asked.update({arm: given}) or {}

    for arm in ("A1", "B1"):
        stage.plots[f"{arm} engine connect"] = keep(arm)
    stage.measure()
    assert {arm: given["sampled"] for arm, given in asked.items()} == {"A1": False, "B1": True}
    for arm, given in asked.items():
        (owner,) = (pid for pid, label in stage.owned if label == f"worker-{arm.lower()}")
        assert given["processes"] == {"worker": owner, "rank0": 41, "rank1": 42}


def test_both_workers_are_told_the_same_but_for_names(stage):
    # a HOLD file may name batch sizes in any order, and a worker takes rising ones
    stage.measure(schedule=SMALL.model_copy(update={"batches": (8, 1)}))
    told = [stage.settings[name][0].encode() for name in ("worker-a1", "worker-b1")]
    off, on = map(read_settings, told)
    ours = ("socket", "state")
    assert off.model_dump(exclude=set(ours)) == on.model_dump(exclude=set(ours))
    assert (off.device, off.gpus, off.permission.kind) == ("reference", (), "grant")
    assert (off.batches, off.depths, off.slots, off.context) == ((1, 8), (5,), 8, 106)
    # paths that begin nowhere begin in the directory of the HOLD
    assert off.checkpoint == str(stage.directory / "drafter")
    assert off.socket != on.socket


def test_ranks_are_in_the_books(stage):
    stage.measure()
    labels = [label for _, label in stage.owned]
    for arm in ("a1", "b1"):
        assert {f"worker-{arm}-rank-0", f"worker-{arm}-rank-1"} <= set(labels)


def on_gpus(tmp_path, monkeypatch, **changes):
    seen = report(gpu(0), gpu(1))
    monkeypatch.setattr(members, "look_at_gpus", lambda: seen)
    stage = Stage(tmp_path, gpus=UUIDS)
    stage.admission.evidence = (("budget", "budget", "c" * 64),)
    stage.plots.update(changes)
    return stage, seen


def test_on_gpus_the_pair_runs_there_and_the_members_name_it(tmp_path, monkeypatch):
    stage, seen = on_gpus(tmp_path, monkeypatch)
    answer = stage.measure(report=seen)
    stage.journal.close()
    told = read_settings(stage.settings["worker-b1"][0].encode())
    assert (told.device, told.gpus) == ("gpu", UUIDS)
    assert stage.environments["engine-a1"] == ON_GPUS
    found = answer.members
    assert [one["uuid"] for one in found["gpus"]] == ["gpu.0.uuid", "gpu.1.uuid"]
    assert found["private"]["gpu.1.uuid"]["value"] == UUIDS[1]
    assert found["hardware_executed"] is True
    assert found["evidence"] == [{"role": "budget", "kind": "budget", "sha256": "c" * 64}]
    # what both arms have loaded is named once
    names = [(row["name"], row["rank"]) for row in found["kernels"]]
    assert names == [
        ("bias_rows.worker", 0),
        ("bias_rows.worker", 1),
        ("sampled_fused.pair.worker", 0),
        ("sampled_fused.pair.worker", 1),
    ]
    assert len(found["libraries"]) == len({row["name"] for row in found["libraries"]})


def test_names_of_gpus_are_out_of_a_snapshot_before_it_is_sealed(tmp_path, monkeypatch):
    untold = {"nvml.gpu.0": f"{UUIDS[0]} at {PLACES[0]} does not answer"}
    look = {"A1 engine look baseline": lambda asked: look_of(asked, unsupported=untold)}
    stage, seen = on_gpus(tmp_path, monkeypatch, **look)
    answer = stage.measure(report=seen)
    stage.journal.close()
    baseline = answer.arms[0]["snapshots"][0]
    said = baseline["unsupported"]["nvml.gpu.0"]
    assert said == "gpu.0.uuid at gpu.0.pci_id does not answer"
    assert answer.arms[0]["baseline_sha256"] == tree_digest(baseline)
    assert UUIDS[0] not in json.dumps(stage.told)


def other_library(library):
    return (library.model_copy(update={"sha256": "0" * 64}),)


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        (
            {"bias": (primed(0, "other"), primed(1, "other"))},
            "B1, kernels, bias_rows.worker/0/sm_90",
        ),
        ({"libraries": other_library(LIBRARIES[0])}, f"B1, libraries, {LIBRARIES[0].name}"),
        ({"versions": {"torch": "3"}}, "B1, worker, version.torch"),
    ],
)
def test_an_arm_whose_worker_loaded_other_things_is_not_begun(stage, changes, where):
    stage.plots["B1 worker serve"] = stage.served("B1", **changes)
    answer = stage.measure()
    assert of(answer) == [("A1", "complete")]
    assert (answer.refusal["code"], answer.refusal["where"]) == (Code.EVIDENCE_MISMATCH, where)
    assert "B1 engine connect" not in stage.transcript


@pytest.mark.parametrize("name", ["target_sha256", "drafter_sha256", "prompts_sha256"])
def test_an_arm_with_another_pair_than_the_first_is_not_begun(stage, name):
    stage.plots["B1 engine prepare"] = {**PREPARED, name: "0" * 64}
    answer = stage.measure()
    assert of(answer) == [("A1", "complete")]
    assert answer.refusal["code"] == Code.EVIDENCE_MISMATCH
    assert answer.refusal["where"] == f"B1, engine, {name}"
    assert "B1 worker starts" not in stage.transcript


@pytest.mark.parametrize(
    ("arm", "kernels", "found"),
    [
        ("A1", (primed(0), primed(1)), "ranks 0, 1"),
        ("B1", (), "no rank"),
        ("B1", (primed(0),), "ranks 0"),
    ],
)
def test_the_sampled_kernel_is_loaded_in_arm_b_alone(tmp_path, monkeypatch, arm, kernels, found):
    stage, seen = on_gpus(tmp_path, monkeypatch)
    stage.plots[f"{arm} worker serve"] = stage.served(arm, kernels=kernels)
    answer = stage.measure(report=seen)
    stage.journal.close()
    assert answer.refusal["code"] == Code.KERNELS_DIFFER
    assert answer.refusal["found"] == f"the sampled kernel on {found}"
    assert f"{arm} engine connect" not in stage.transcript


def test_a_rank_on_a_gpu_that_does_not_count_compilations_is_not_timed(tmp_path, monkeypatch):
    stage, seen = on_gpus(tmp_path, monkeypatch)
    stage.plots["A1 worker settle"] = settled(compilations=(0, None)).model_dump(mode="json")
    answer = stage.measure(report=seen)
    stage.journal.close()
    assert (answer.refusal["code"], answer.arms) == (Code.INCOMPLETE, ())


# -- what stops an arm --------------------------------------------------------------------------


def grown_in(label, **changes):
    return {f"A1 engine look {label}": lambda asked: look_of(asked, **changes)}


@pytest.mark.parametrize("label", ["headline", "profiled", "final"])
@pytest.mark.parametrize(
    ("changes", "verdict", "code", "said"),
    [
        ({"failed_rounds": {"timed_out": "1"}}, "failed_rounds_grew", Code.FAILED_ROUNDS, "1 rows"),
        ({"failed_rounds": {"lost": "2"}}, "failed_rounds_grew", Code.FAILED_ROUNDS, "lost by 2"),
        (
            {"memory_bytes": {"rss.engine": str(116 * MIB + 1)}},
            "memory_grew",
            Code.LEAK,
            f"rss.engine by {16 * MIB + 1} bytes",
        ),
        (
            {"memory_bytes": {"another": "1"}},
            "memory_grew",
            Code.LEAK,
            "rss.engine gives no number any more",
        ),
    ],
)
def test_growth_over_the_baseline_ends_the_arm_at_the_snapshot_that_shows_it(
    stage, label, changes, verdict, code, said
):
    stage.plots.update(grown_in(label, **changes))
    answer = stage.measure()
    assert of(answer) == [("A1", verdict)]
    assert answer.refusal["code"] == code
    assert said in answer.refusal["found"]
    # the snapshot is told and kept, nothing is measured after it, and no other arm begins
    assert answer.arms[0]["snapshots"][-1]["label"] == label
    after = stage.transcript[stage.transcript.index(f"A1 told: snapshot {label}") + 1 :]
    assert after == ["A1 worker stopped", "A1 engine stopped"]
    *_, last = stage.lines()
    assert (last["step"], last["found"], last["detail"]) == ("arm-A1", verdict, {"code": code})


def test_what_was_there_in_the_baseline_is_no_growth(stage):
    for label in ("baseline", "headline", "profiled", "final"):
        stage.plots.update(
            grown_in(
                label,
                failed_rounds={"timed_out": "7"},
                memory_bytes={"rss.engine": str(100 * MIB + (label == "final") * 16 * MIB)},
            )
        )
    assert of(stage.measure()) == [("A1", "complete"), ("B1", "complete")]


def test_a_leak_below_the_allowance_is_found_once_the_rounds_are_over(stage):
    """From round to round a little more: no snapshot is above the allowance, and it slopes."""
    many = SMALL.model_copy(update={"headline": 10, "primary": 10})
    assert sum(len(rounds(many, phase)) for phase in ("headline", "profiled")) >= 4 * PARTS + 4
    sizes = iter(range(100 * MIB, 110 * MIB, MIB // 8))

    def leak(asked):
        return round_of(asked, memory_bytes={"rss.engine": str(next(sizes))})

    for phase in ("headline", "profiled"):
        for one in rounds(many, phase):
            stage.plots[f"A1 engine round {phase} {one.index}"] = leak
    answer = stage.measure(schedule=many)
    assert of(answer) == [("A1", "memory_grew")]
    assert answer.arms[0]["snapshots"][-1]["label"] == "profiled"
    assert "round by round" in answer.refusal["found"]


def test_a_worker_that_has_failed_does_not_hide_what_that_cost(stage):
    """Its counters cannot be asked for; the rows without a draft are counted by the engine."""
    stage.plots.update(grown_in("headline", failed_rounds={"failed": "9"}))
    answers = iter([settled().model_dump(mode="json"), refusal(Code.RANK_DIED, "worker")])
    stage.plots["A1 worker settle"] = lambda _: next(answers)
    answer = stage.measure()
    assert of(answer) == [("A1", "failed_rounds_grew")]
    assert "failed by 9 rows" in answer.refusal["found"]


def test_a_worker_that_does_not_answer_ends_the_arm_with_its_last_snapshot(stage):
    answers = iter([settled().model_dump(mode="json"), refusal(Code.RANK_DIED, "worker")])
    stage.plots["A1 worker settle"] = lambda _: next(answers)
    answer = stage.measure()
    assert of(answer) == [("A1", "partial")]
    assert answer.refusal["code"] == Code.RANK_DIED
    assert [one["label"] for one in answer.arms[0]["snapshots"]] == ["baseline", "headline"]


def test_the_worker_counts_beside_the_engine_in_every_snapshot(stage):
    counters = {"blocks": 12, "refused_CACHE_FULL": 3, "refusals": {"CACHE_FULL": 3}}
    stage.plots["A1 worker settle"] = settled(counters=counters).model_dump(mode="json")
    answer = stage.measure()
    for snapshot in answer.arms[0]["snapshots"]:
        assert snapshot["counters"] == {
            "drafts_late": "0",
            "worker_blocks": "12",
            "worker_refused_cache_full": "3",
        }


def test_a_worker_that_still_compiles_is_not_timed(stage):
    stage.plots["A1 worker settle"] = settled(compilations=(0, 1)).model_dump(mode="json")
    answer = stage.measure()
    assert answer.arms == ()
    assert answer.refusal["code"] == Code.COMPILED_AFTER_PRIMING


def cut_at(index):
    """Rounds that were recorded when round number so many of the headline phase is cut."""
    return [("headline", one) for one in range(index)]


def test_a_round_that_is_refused_ends_the_arm_with_the_rounds_before_it(stage):
    stage.plots["B1 engine round headline 2"] = refusal(Code.BAD_LOGITS)
    answer = stage.measure()
    assert of(answer) == [("A1", "complete"), ("B1", "partial")]
    assert timed(answer.arms[1]) == cut_at(2)
    assert answer.refusal["code"] == Code.BAD_LOGITS
    assert [line["event"] for line in stage.kept() if line["step"] == "arm-B1"] == [
        "snapshot",
        "round",
        "round",
    ]
    ends = {line["step"]: line["found"] for line in stage.lines() if line["event"] == "end"}
    assert ends["arm-B1/headline"] == "failed(BAD_LOGITS)"
    assert ends["arm-B1"] == "partial"
    assert stage.transcript[-2:] == ["B1 worker stopped", "B1 engine stopped"]


def test_an_answer_about_another_round_is_none(stage):
    stage.plots["A1 engine round headline 1"] = lambda asked: round_of({**asked, "index": 0})
    answer = stage.measure()
    assert answer.refusal["code"] == Code.BAD_FRAME
    assert timed(answer.arms[0]) == cut_at(1)


@pytest.mark.parametrize("mark", ["worker-b1-rank-1", "worker-b1", "engine-b1"])
def test_a_process_that_is_gone_is_said_after_the_round_in_which_it_went(stage, mark):
    def kill(item):
        found = item.get("round")
        if item["arm"] == "B1" and found and found["index"] == 1:
            stage.end(mark)

    stage.on_told = kill
    answer = stage.measure()
    assert of(answer)[1] == ("B1", "partial")
    assert timed(answer.arms[1]) == cut_at(2)
    assert answer.refusal["code"] == Code.RANK_DIED
    assert mark in answer.refusal["found"]


def test_a_hold_that_is_over_begins_no_further_round(stage):
    stage.deadline = Deadline.after(stage.clock, 100.0)

    def sleep(item):
        found = item.get("round")
        if item["arm"] == "A1" and found and found["index"] == 1:
            stage.clock.advance(100.0)

    stage.on_told = sleep
    answer = stage.measure()
    assert of(answer) == [("A1", "partial")]
    assert timed(answer.arms[0]) == cut_at(2)
    assert answer.refusal["code"] == Code.DEADLINE


@pytest.mark.parametrize(("seconds", "code"), [(100.0, Code.DEADLINE), (9.0, Code.STEP_TIMEOUT)])
def test_a_round_without_an_answer_is_the_end_of_the_hold_only_where_that_is_over(
    stage, seconds, code
):
    stage.deadline = Deadline.after(stage.clock, 100.0)

    def late(_):
        stage.clock.advance(seconds)
        return TimedOutError(Refusal(Code.STEP_TIMEOUT, "engine", "an answer", "none"))

    stage.plots["A1 engine round headline 1"] = late
    answer = stage.measure()
    assert of(answer) == [("A1", "partial")]
    assert answer.refusal["code"] == code


def test_an_arm_that_never_came_to_its_baseline_is_in_no_receipt(stage):
    late = TimedOutError(Refusal(Code.STEP_TIMEOUT, "engine", "an answer", "none"))
    stage.plots["B1 engine prepare"] = late
    answer = stage.measure()
    assert of(answer) == [("A1", "complete")]
    assert answer.refusal["code"] == Code.STEP_TIMEOUT


@pytest.mark.parametrize("left", [{"dead": (True, False)}, {"links_left": 1}, {"pids": (41, 43)}])
def test_an_arm_whose_ranks_are_not_proven_dead_is_not_complete(stage, left):
    stage.plots["A1 worker teardown"] = torn_down(**left).model_dump(mode="json")
    answer = stage.measure()
    assert of(answer) == [("A1", "partial")]
    assert answer.refusal["code"] == Code.NOT_TORN_DOWN
    assert len(answer.arms[0]["snapshots"]) == 4


def test_nothing_follows_an_arm_of_which_something_is_left(stage, monkeypatch):
    monkeypatch.setattr(arms, "_GONE_S", 0.0)

    def stop(channel):
        stage.transcript.append("not stopped")

    stage.stop = stop
    with pytest.raises(UncleanError) as caught:
        stage.measure()
    assert caught.value.refusal.code is Code.SURVIVOR
    assert "B1 engine starts" not in stage.transcript


def test_nothing_follows_a_round_that_cannot_be_written_down(stage):
    unwritable = UncleanError(Refusal(Code.UNWRITABLE, "journal", "a durable line", "full"))

    def full(item):
        if item.get("round"):
            raise unwritable

    stage.on_told = full
    with pytest.raises(UncleanError):
        stage.measure()
    told = [line for line in stage.transcript if "told: headline" in line]
    assert told == ["A1 told: headline 0"]
    assert stage.running() == ()


# -- equal text at T = 0 ------------------------------------------------------------------------


def other_text(asked):
    return round_of(asked, outputs_sha256="f" * 64)


def zero(phase):
    """The last round of a phase at temperature 0."""
    return [one for one in rounds(SMALL, phase) if one.cell.temperature == "0"][-1]


@pytest.mark.parametrize("phase", ["warm-up", "greedy", "headline", "profiled"])
@pytest.mark.parametrize(("work", "second"), [("A1B1", "B1"), ("B2A2", "A2")])
def test_another_text_at_temperature_0_is_a_wrong_answer_and_no_measurement(
    stage, phase, work, second
):
    one = zero(phase)
    stage.plots[f"{second} engine round {phase} {one.index}"] = other_text
    answer = stage.measure(work)
    assert answer.refusal["code"] == Code.OUTPUT_MISMATCH
    said = f"{phase} round {one.index}, batch {one.cell.batch}, temperature 0"
    assert answer.refusal["where"] == said
    assert answer.refusal["found"] == "f" * 64
    # nothing is asked after it, and what is wrong is among no arm's rounds
    asked = [line for line in stage.transcript if " engine round " in line]
    assert asked[-1] == f"{second} engine round {phase} {one.index}"
    assert "f" * 64 not in json.dumps(answer.arms)


def test_text_above_temperature_0_may_differ(stage):
    for phase in ("warm-up", "headline", "profiled"):
        for one in rounds(SMALL, phase):
            if one.cell.temperature != "0":
                stage.plots[f"B1 engine round {phase} {one.index}"] = other_text
    assert of(stage.measure()) == [("A1", "complete"), ("B1", "complete")]


# -- a budget -----------------------------------------------------------------------------------


def takes(stage, seconds, answer):
    def play(asked):
        stage.clock.advance(seconds)
        return answer(asked)

    return play


def test_a_budget_has_the_worst_of_each_part_of_both_arms(stage):
    """Round times by hand: the slower arm and the slower sample count, whatever the other took."""
    few = budgeting.sampled_schedule(STANDARD, 2)
    found = [one for one in rounds(few, "headline") if one.cell.name == "b8.t0.7"]
    assert len(found) == 2
    for arm, place, seconds in (("A1", 0, 1.0), ("A1", 1, 4.0), ("B1", 0, 3.0), ("B1", 1, 2.0)):
        said = f"{arm} engine round headline {found[place].index}"
        stage.plots[said] = takes(stage, seconds, round_of)
    stage.plots["B1 worker serve"] = takes(stage, 30.0, lambda _: stage.served("B1"))
    stage.plots["A1 engine look final"] = takes(stage, 0.5, look_of)
    answer = stage.measure("budget", STANDARD, samples=2)
    assert answer.refusal is None
    assert answer.arms == ()
    worst = {one.name: one.worst_ns for one in answer.sampled}
    assert worst["headline.b8.t0.7"] == 4_000_000_000
    assert worst["worker-start"] == 30_000_000_000
    assert worst["arm-rest"] == 500_000_000
    counted = {one.name: one.samples for one in answer.sampled}
    assert counted["headline.b8.t0.7"] == counted["profiled.b32.t0"] == 4
    assert counted["worker-start"] == counted["greedy"] == 2


def test_a_budget_s_samples_are_all_that_a_host_can_say_of_a_half(stage):
    answer = stage.measure("budget", STANDARD)
    names = ("staging", "qualification", "closing")
    ours = [Sampled(name=name, worst_ns=1, samples=1) for name in names]
    found = budgeting.project([*answer.sampled, *ours], STANDARD, 10**12)
    assert found.verdict == "fits"


def test_a_budget_of_an_arm_that_was_cut_has_no_samples(stage):
    stage.plots["B1 engine round profiled 3"] = refusal(Code.BAD_LOGITS)
    answer = stage.measure("budget", STANDARD)
    assert (answer.sampled, answer.arms) == ((), ())
    assert answer.refusal["code"] == Code.BAD_LOGITS


# -- what is told -------------------------------------------------------------------------------


def test_every_item_that_is_told_is_one_of_two_models(stage):
    stage.measure()
    steps = [Stepped(**item) for item in stage.told if "event" in item]
    assert [(one.phase, one.event) for one in steps[:4]] == [
        (None, "begin"),
        ("engine", "begin"),
        ("engine", "end"),
        ("worker", "begin"),
    ]
    assert steps[-1] == Stepped(arm="B1", phase=None, event="end", found="complete")
    assert len(stage.told) - len(steps) == 2 * (
        4 + sum(len(rounds(SMALL, phase)) for phase in ("headline", "profiled"))
    )
