"""The plan: what every gate must have, and that nothing in it is a stub."""

import ast
import inspect
import re
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from pp4.errors import Code
from pp4.explain import PAGES
from pp4.kernels.controls.registry import MUTANTS
from pp4.qualify import gates
from pp4.qualify.gates import FULL, KERNELS, PHYSICAL, REHEARSED, SOLO
from pp4.qualify.pair_qualify import plan
from pp4.qualify.physical import FULL_LIMITS, PAIR_LIMITS, SOLO_LIMITS
from pp4.qualify.rehearsal import DIFFERENCES, LIMITS
from pp4.qualify.settings import REHEARSAL, physical
from pp4.qualify.whole_settings import PHYSICAL as PHYSICAL_WHOLE
from pp4.receipts.gate_checks import REQUIRED_GATES
from pp4.receipts.plan_checks import FLOORS, FULL_FLOORS, FULL_PLAN, plan_of
from pp4.wire.frames import Model
from pp4.worker.frozen_inputs import PLANS, longest

STEPS = plan(REHEARSED)
TABLES = {"rehearsal": REHEARSED, "kernels": PHYSICAL, "full": FULL, "solo": SOLO}
SETTINGS = ("rehearsal", "kernels", "solo")
PAIR_OF_GPUS, ONE_GPU = physical(("GPU-a", "GPU-b")), physical(("GPU-a",))
every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
WORD = re.compile(r"[a-z0-9][a-z0-9-]*")

# What the gates are for, arm by arm.  A plan that loses one of these no longer qualifies anything.
MUST_PASS = {
    0: {"devices", "data-pattern", "libraries"},
    1: {"both-primed-before-launch", "one-specialisation"},
    2: {
        "pair-equals-reference",
        "vectorised-agrees",
        "many-rows",
        "ties",
        "edges",
        "launch-order",
        "skewed-start",
        "bad-logits",
        "infinite-logits",
        "empty-row",
        "foreign-epoch",
        "ptx-order",
        "host-model",
    },
    3: {"replay-equals-eager", "padded-rows"},
    4: {"mixed-batch", "neighbours", "original-objects", "refusals"},
    5: {
        "healthy",
        "never-launched",
        "late-first",
        "late-next",
        "killed",
        "nan-row",
        "exhausted-epochs",
    },
    6: {"worker-equals-archive"},
    7: {"settled", "libraries-unchanged"},
}
MUST_CATCH = {
    0: {"wrong-device", "flipped-bit", "changed-library-byte"},
    1: {"unprimed-capture", "late-compilation"},
    2: {
        "many-rows-of-a-mutant",
        "many-rows-unstamped",
        "flag-before-data",
        "dropped-candidate",
        "swapped-bounds",
        "tie-broken-upwards",
        "skipped-test",
        "unsaid-fault",
        "ptx-missing-barrier",
        "ptx-relaxed-signal",
        "ptx-relaxed-chain",
        "host-model-bugs",
    },
    3: {"padded-exchange", "reused-epoch", "input-by-value", "missing-stamp"},
    4: {"swapped-mask", "draw-on-greedy-row"},
    5: {"late-answer", "one-rank-word"},
    6: {"flipped-archive-byte", "other-gpu-model"},
    7: {"leak"},
}
RECORDED = {2: {"missing-barrier-ran", "relaxed-signal-ran"}}
# What only a GPU can be asked.
HARDWARE = {"gate-0/idle": "pass", "gate-0/foreign-memory": "caught(NOT_IDLE)"}
# What one GPU has no peer for, and what it calls by another name.
NEEDS_PEER = {
    *("gate-0/data-pattern", "gate-0/flipped-bit"),
    *("gate-2/launch-order", "gate-2/skewed-start", "gate-2/foreign-epoch"),
    *("gate-2/ptx-missing-barrier", "gate-2/ptx-relaxed-signal", "gate-2/ptx-relaxed-chain"),
    *("gate-2/host-model", "gate-2/host-model-bugs"),
    *("gate-2/flag-before-data", "gate-2/dropped-candidate", "gate-2/unsaid-fault"),
    *("gate-2/missing-barrier-ran", "gate-2/relaxed-signal-ran"),
    *("gate-3/padded-exchange", "gate-3/reused-epoch"),
    *("gate-4/original-objects", "gate-4/refusals"),
}
RENAMED = {
    "gate-0/devices": "gate-0/device",
    "gate-1/both-primed-before-launch": "gate-1/primed-before-launch",
    "gate-2/pair-equals-reference": "gate-2/solo-equals-reference",
}


def arms(gating, control):
    """Arms by gate: those that have to pass, or those that have to be caught."""
    found = {}
    for step in STEPS:
        if step.gating is gating and (step.expected != "pass") is control:
            found.setdefault(step.gate, set()).add(step.arm)
    return found


def test_every_gate_has_the_arms_that_it_is_for():
    assert arms(gating=True, control=False) == MUST_PASS
    assert arms(gating=True, control=True) == MUST_CATCH
    assert arms(gating=False, control=True) == RECORDED
    assert arms(gating=False, control=False) == {}


def test_the_gates_are_those_that_a_receipt_of_this_scope_needs():
    assert tuple(gate.number for gate in KERNELS) == REQUIRED_GATES["kernels"]
    for gates_of_full in (FULL, REHEARSED):
        assert tuple(gate.number for gate in gates_of_full) == REQUIRED_GATES["full"]
    assert {step.gate for step in STEPS} == set(REQUIRED_GATES["full"])


def test_scope_full_is_scope_kernels_and_gate_6_before_anybody_looks_what_is_left():
    assert [gate for gate in FULL if gate.number != 6] == list(PHYSICAL)
    assert [gate.number for gate in FULL][-2:] == [6, 7]
    (gate,) = (gate for gate in FULL if gate.number == 6)
    arms = {arm.step.arm: arm.step.expected for arm in gate.arms}
    assert {6: (gate.name, arms)} == {n: (one.name, one.arms) for n, one in FULL_PLAN.items()}


def test_the_rehearsal_is_the_physical_run_without_what_only_a_gpu_can_be_asked():
    """The very arms, in their order: whatever else differed would not be rehearsed."""
    run = [arm for gate in FULL for arm in gate.arms]
    assert [arm for gate in REHEARSED for arm in gate.arms] == [a for a in run if not a.hardware]
    assert [(gate.number, gate.name) for gate in REHEARSED] == [
        (gate.number, gate.name) for gate in FULL
    ]
    assert {arm.step.name: arm.step.expected for arm in run if arm.hardware} == HARDWARE


def test_one_gpu_runs_every_arm_that_needs_no_peer():
    run = {arm.step.name: arm for gate in PHYSICAL for arm in gate.arms}
    assert set(run) >= NEEDS_PEER
    alone = [name for name in run if name not in NEEDS_PEER and not name.startswith("gate-5/")]
    steps = plan(SOLO)
    assert [step.name for step in steps] == [RENAMED.get(name, name) for name in alone]
    assert [step.expected for step in steps] == [run[name].step.expected for name in alone]
    found = [arm.run for gate in SOLO for arm in gate.arms]
    assert found == [run[name].run for name in alone]


@pytest.mark.parametrize(
    ("table", "kind", "scope"),
    [
        (KERNELS, "rehearsal", "kernels"),
        (REHEARSED, "rehearsal", "full"),
        (FULL, "qualification", "full"),
        (PHYSICAL, "qualification", "kernels"),
        (SOLO, "solo", "solo"),
    ],
)
def test_the_plan_holds_what_its_receipt_cannot_lack(table, kind, scope):
    assert tuple(gate.number for gate in table) == REQUIRED_GATES[scope]
    for gate in table:
        name, wanted = plan_of(kind, scope)[gate.number]
        found = {(arm.step.arm, arm.step.expected) for arm in gate.arms}
        assert (gate.name, set(wanted.items()) - found) == (name, set())


@every_table
def test_arms_stand_in_the_gate_whose_number_they_carry(table):
    for gate in table:
        assert {arm.step.gate for arm in gate.arms} == {gate.number}


@every_table
def test_names_are_unique_and_plain(table):
    steps = plan(table)
    assert max(Counter(step.name for step in steps).values()) == 1
    for step in steps:
        assert WORD.fullmatch(step.arm)
        assert step.name == f"gate-{step.gate}/{step.arm}"


@every_table
def test_sentences_are_unique_and_say_something(table):
    steps = plan(table)
    assert max(Counter(step.what for step in steps).values()) == 1
    for step in steps:
        assert len(step.what.split()) >= 4


@pytest.mark.parametrize(
    "step", [s for s in plan(FULL) if s.expected != "pass"], ids=lambda s: s.name
)
def test_a_control_expects_a_code_that_is_explained(step):
    match = re.fullmatch(r"caught\(([A-Z0-9_]+)\)", step.expected)
    code = Code(match[1])
    assert code in PAGES
    # caught by the words of a missed control or of a wait that ran out would be no evidence
    assert code not in (Code.CONTROL_NOT_CAUGHT, Code.STEP_TIMEOUT, Code.INTERNAL, Code.RANK_DIED)


def test_every_mutant_of_the_kernel_runs_in_an_arm():
    """A defect that somebody wrote down and no gate tries is no control."""
    text = "".join(path.read_text() for path in Path(gates.__file__).parent.glob("*.py"))
    assert [name for name in MUTANTS if f'"{name}"' not in text] == []


# As many rows as the floor demands take minutes; everything else is a few blocks.
LONG = {"gate-2/many-rows"}


@every_table
def test_every_limit_ends(table):
    for gate in table:
        for arm in gate.arms:
            assert 0 < arm.limit_s <= (900 if arm.step.name in LONG else 300)


def test_the_plan_is_the_same_every_time():
    assert plan(REHEARSED) == STEPS
    assert plan(()) == ()
    assert plan(KERNELS[:1]) == tuple(arm.step for arm in KERNELS[0].arms)


def functions():
    for path in sorted(Path(gates.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield path.stem, node


@pytest.mark.parametrize(
    ("module", "node"), [pytest.param(m, n, id=f"{m}.{n.name}") for m, n in functions()]
)
def test_no_gate_is_a_stub(module, node):
    body = [part for part in node.body if not _is_text(part)]
    assert body, "nothing but a docstring"
    text = ast.unparse(ast.Module(body, []))
    assert text not in ("pass", "...")
    assert "NotImplementedError" not in text
    # a finding that depends on nothing that was seen would pass on any machine
    assert not re.fullmatch(r"return Finding\([^()]*\)", text)


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@every_table
def test_every_arm_runs_something_of_its_own(table):
    runs = [arm.run for gate in table for arm in gate.arms]
    assert len(set(runs)) == len(runs)
    for run in runs:
        assert list(inspect.signature(run).parameters) == ["context"]


CHOICES = {"reference": "vectorised", "unit": "ns"}
"""Settings that are one word of a few: another one of them."""


def changed(settings, name):
    """The settings with one of them changed, and nothing else."""
    value = getattr(settings, name)
    if isinstance(value, Model):
        for member, inside in value.model_dump().items():
            other = value.model_copy(update={member: _other(inside)})
            yield replace(settings, **{name: other})
    elif isinstance(value, tuple):
        # one more, one less, or the same in another order
        more = (*value, settings.shape.model_copy(update={"vocab": 7}))
        yield replace(settings, **{name: more if name == "more_shapes" else (*value, value[0])})
        if value:
            yield replace(settings, **{name: value[:-1]})
        if len(value) > 1:
            yield replace(settings, **{name: value[::-1]})
        if name == "more_shapes":
            yield from inside_shapes(settings)
    elif isinstance(value, bool):
        yield replace(settings, **{name: not value})
    elif name in CHOICES:
        other = CHOICES[name] if value != CHOICES[name] else getattr(REHEARSAL, name)
        yield replace(settings, **{name: other})
    else:
        yield replace(settings, **{name: value + 1})


def _other(number):
    """Another number, or the other of two answers."""
    return not number if isinstance(number, bool) else (number or 0) + 1


def inside_shapes(settings):
    """The settings with one number of one further shape changed."""
    for place, shape in enumerate(settings.more_shapes):
        for member, inside in shape.model_dump().items():
            shapes = list(settings.more_shapes)
            shapes[place] = shape.model_copy(update={member: _other(inside)})
            yield replace(settings, more_shapes=tuple(shapes))


@pytest.mark.parametrize("settings", [REHEARSAL, PAIR_OF_GPUS, ONE_GPU], ids=SETTINGS)
@pytest.mark.parametrize("name", [field.name for field in fields(REHEARSAL)])
def test_every_setting_is_in_the_receipt(settings, name):
    """A number that changes what is tried must not be invisible."""
    for other in changed(settings, name):
        assert other != settings
        assert other.as_facts() != settings.as_facts()


def test_numbers_of_64_bits_are_text_in_the_receipt():
    """Readers of JSON keep whole numbers up to 2**53; a receipt must not be rounded by one."""
    big = 1 << 53
    waits = REHEARSAL.hasty.model_copy(update={"first_ns": big, "next_ns": big - 1})
    facts = replace(REHEARSAL, hasty=waits).as_facts()
    assert (facts["hasty_first_ns"], facts["hasty_next_ns"]) == (str(big), big - 1)


def test_the_settings_try_what_the_gates_promise():
    assert set(REHEARSAL.depths) == {4, 5}
    assert REHEARSAL.rows >= max(REHEARSAL.batches) > 1
    # a replay with other inputs than those of the capture, beside an eager run and in a stream
    assert min(REHEARSAL.replays, REHEARSAL.streamed_replays) >= 1
    assert 0 < REHEARSAL.failed_block_s <= 60
    assert REHEARSAL.pattern_epochs > 0
    assert REHEARSAL.late_shape != REHEARSAL.shape
    # more than one tile and a rest in each shard, or ties across a tile border meet no border
    assert REHEARSAL.shape.split > REHEARSAL.shape.tile
    assert REHEARSAL.shape.split % REHEARSAL.shape.tile


def test_the_physical_settings_reach_the_floors_of_their_receipt():
    for settings, kind in ((PAIR_OF_GPUS, "qualification"), (ONE_GPU, "solo")):
        replays = len(settings.depths) * (settings.replays + settings.streamed_replays)
        counts = {
            "gate-0/data-pattern": 2 * settings.pattern_epochs,
            "gate-2/many-rows": settings.streamed_rows,
            "gate-3/replay-equals-eager": replays,
        }
        for name, least in FLOORS[kind].items():
            assert counts[name] >= least, name


def test_the_frozen_inputs_reach_the_floor_of_their_receipt():
    plan = PLANS[PHYSICAL_WHOLE.inputs]
    blocks = len(plan.batches) * len(plan.depths) * len(plan.kinds)
    assert {"gate-6/worker-equals-archive": blocks} == FULL_FLOORS
    assert (plan.batches, plan.depths) == ((1, 3, 8), (4, 5))
    assert set(plan.kinds) == {"mixed", "sampled", "greedy"}
    assert PHYSICAL_WHOLE.batch >= max(plan.batches)
    assert PHYSICAL_WHOLE.context >= longest(PHYSICAL_WHOLE.inputs)


def test_the_physical_settings_try_what_the_gates_promise():
    assert (PAIR_OF_GPUS.solo, ONE_GPU.solo) == (False, True)
    assert set(PAIR_OF_GPUS.batches) == {1, 3, 8, 32}
    assert min(PAIR_OF_GPUS.replays, PAIR_OF_GPUS.streamed_replays) > 1
    assert PAIR_OF_GPUS.rows >= max(PAIR_OF_GPUS.batches)
    assert PAIR_OF_GPUS.late_shape != PAIR_OF_GPUS.shape
    vocabularies = [shape.vocab for shape in (PAIR_OF_GPUS.shape, *PAIR_OF_GPUS.more_shapes)]
    assert len(set(vocabularies)) == len(vocabularies) == 3
    # one whose shards are not equal
    assert any(2 * shape.split != shape.vocab for shape in PAIR_OF_GPUS.more_shapes)
    assert (PAIR_OF_GPUS.unit, PAIR_OF_GPUS.reference) == ("ns", "vectorised")
    waits = PAIR_OF_GPUS.hasty
    assert PAIR_OF_GPUS.budget(waits, first=True) == waits.first_ns
    assert PAIR_OF_GPUS.budget(waits, first=False) == waits.next_ns
    assert REHEARSAL.budget(waits, first=True) == waits.first_polls
    assert REHEARSAL.budget(waits, first=False) == waits.next_polls
    # a rank that waits its whole budget out is inside what a failed block may take
    assert waits.first_ns < PAIR_OF_GPUS.failed_block_ns


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (PAIR_LIMITS, ("Gate 6", "nothing is admitted", "race", "seeds", "GB10", "throughput")),
        (FULL_LIMITS, ("Gate 6", "race", "seeds", "one client", "GB10", "throughput")),
        (SOLO_LIMITS, ("never proof of a pair", "peer memory", "seeds", "GB10", "throughput")),
    ],
)
def test_the_limits_say_what_a_run_on_gpus_is_not(limits, words):
    text = " ".join(limits)
    for word in words:
        assert word.lower() in text.lower()
    assert len(set(limits)) == len(limits)


def test_the_limits_say_what_a_rehearsal_is_not():
    text = " ".join(LIMITS)
    for word in ("GPU", "Gate 6", "GB10", "grammar", "throughput", "launch compiles"):
        assert word in text
    assert any("GPU" in line for line in DIFFERENCES)
