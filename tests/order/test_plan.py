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
from pp4.qualify.gates import KERNELS
from pp4.qualify.pair_qualify import plan
from pp4.qualify.rehearsal import DIFFERENCES, LIMITS
from pp4.qualify.settings import REHEARSAL
from pp4.receipts.gate_checks import REQUIRED_GATES
from pp4.wire.frames import Model

STEPS = plan(KERNELS)
WORD = re.compile(r"[a-z0-9][a-z0-9-]*")

# What the gates are for, arm by arm.  A plan that loses one of these no longer qualifies anything.
MUST_PASS = {
    0: {"devices", "data-pattern", "libraries"},
    1: {"both-primed-before-launch", "one-specialisation"},
    2: {
        "pair-equals-reference",
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
    7: {"settled", "libraries-unchanged"},
}
MUST_CATCH = {
    0: {"wrong-device", "flipped-bit", "changed-library-byte"},
    1: {"unprimed-capture", "late-compilation"},
    2: {
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
    7: {"leak"},
}
RECORDED = {2: {"missing-barrier-ran", "relaxed-signal-ran"}}


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
    assert {step.gate for step in STEPS} == set(REQUIRED_GATES["kernels"])


def test_arms_stand_in_the_gate_whose_number_they_carry():
    for gate in KERNELS:
        assert {arm.step.gate for arm in gate.arms} == {gate.number}


def test_names_are_unique_and_plain():
    assert max(Counter(step.name for step in STEPS).values()) == 1
    for step in STEPS:
        assert WORD.fullmatch(step.arm)
        assert step.name == f"gate-{step.gate}/{step.arm}"


def test_sentences_are_unique_and_say_something():
    assert max(Counter(step.what for step in STEPS).values()) == 1
    for step in STEPS:
        assert len(step.what.split()) >= 4


@pytest.mark.parametrize("step", [s for s in STEPS if s.expected != "pass"], ids=lambda s: s.name)
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


def test_every_limit_ends():
    for gate in KERNELS:
        for arm in gate.arms:
            assert 0 < arm.limit_s <= 600


def test_the_plan_is_the_same_every_time():
    assert plan(KERNELS) == STEPS
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


def test_every_arm_runs_something_of_its_own():
    runs = [arm.run for gate in KERNELS for arm in gate.arms]
    assert len(set(runs)) == len(runs)
    for run in runs:
        assert list(inspect.signature(run).parameters) == ["context"]


def changed(name):
    """The settings with one of them changed, and nothing else."""
    value = getattr(REHEARSAL, name)
    if isinstance(value, Model):
        for member, inside in value.model_dump().items():
            yield replace(REHEARSAL, **{name: value.model_copy(update={member: (inside or 0) + 1})})
    elif isinstance(value, tuple):
        yield replace(REHEARSAL, **{name: value[::-1]})
    else:
        yield replace(REHEARSAL, **{name: value + 1})


@pytest.mark.parametrize("name", [field.name for field in fields(REHEARSAL)])
def test_every_setting_is_in_the_receipt(name):
    """A number that changes what is tried must not be invisible."""
    for other in changed(name):
        assert other != REHEARSAL
        assert other.as_facts() != REHEARSAL.as_facts()


def test_the_settings_try_what_the_gates_promise():
    assert set(REHEARSAL.depths) == {4, 5}
    assert REHEARSAL.rows >= max(REHEARSAL.batches) > 1
    assert REHEARSAL.replays > 1
    assert 0 < REHEARSAL.failed_block_s <= 60
    assert REHEARSAL.pattern_epochs > 0
    assert REHEARSAL.late_shape != REHEARSAL.shape
    # more than one tile and a rest in each shard, or ties across a tile border meet no border
    assert REHEARSAL.shape.split > REHEARSAL.shape.tile
    assert REHEARSAL.shape.split % REHEARSAL.shape.tile


def test_the_limits_say_what_a_rehearsal_is_not():
    text = " ".join(LIMITS)
    for word in ("GPU", "Gate 6", "GB10", "grammar", "throughput", "launch compiles"):
        assert word in text
    assert any("GPU" in line for line in DIFFERENCES)
