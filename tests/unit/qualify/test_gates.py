"""Gates with a scripted session: a control that nobody notices and facts that are not there."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest

from pp4.errors import Code
from pp4.qualify import context, judge
from pp4.qualify import session as sessions
from pp4.qualify.gates import KERNELS, PHYSICAL, SOLO
from pp4.qualify.pair_qualify import pair_qualify
from pp4.qualify.session import PRODUCT
from pp4.qualify.settings import REHEARSAL, physical
from pp4.wire import Event
from tests.unit.qualify.fakes import Transcript, Watched
from tests.unit.qualify.gpus import UUIDS
from tests.unit.qualify.test_session import Channel, Starting

CONTROLS = [arm for gate in PHYSICAL for arm in gate.arms if arm.step.expected != "pass"]
# arms that start no process: the host model is a pure function
ALONE = {"gate-2/host-model", "gate-2/host-model-bugs"}
RUNS = {
    "rehearsal": (KERNELS, REHEARSAL),
    "pair": (PHYSICAL, physical(UUIDS)),
    "solo": (SOLO, physical(UUIDS[:1])),
}


class Empty:
    """A session that answers every verb with nothing at all."""

    made = 0

    def __init__(self, hold, label, compiled, module=PRODUCT, *, solo=False):
        self.label = label
        Empty.made += 1

    def __getattr__(self, name):
        def answer(*given, **more):
            return {}

        return answer


class Mute(Channel):
    """A process that says that it is there, and nothing else."""

    def receive(self, deadline):
        return Event(sequence=0, name="occupied")


@pytest.fixture
def hold(tmp_path):
    hold = Starting(tmp_path)
    yield hold
    hold.journal.close()


@pytest.mark.parametrize("run", RUNS)
def test_no_arm_passes_or_catches_on_nothing(hold, monkeypatch, run):
    """Every answer is empty: whatever a gate makes of it, it is never what the plan expects."""
    table, settings = RUNS[run]
    monkeypatch.setattr(context, "Session", Empty)
    monkeypatch.setattr(Empty, "made", 0)
    hold.gpus = () if run == "rehearsal" else settings.devices
    hold.script.append(Mute())
    gates = [
        replace(gate, arms=tuple(arm for arm in gate.arms if arm.step.name not in ALONE))
        for gate in table
    ]
    results = pair_qualify(Watched(hold, Transcript(), settings), gates, Transcript())
    assert len(results) == sum(len(gate.arms) for gate in gates)
    assert [result.step.name for result in results if result.as_expected] == []
    # each asked its session, and was not stopped by one that could not be made
    assert Empty.made > len(results) / 2
    texts = [str(result.finding.facts.get("refusal", "")) for result in results]
    assert [text for text in texts if "__init__" in text] == []


def codes_in(function, seen=None):
    """Codes that stand in a function, in what it calls in this package, and in its closure."""
    seen = set() if seen is None else seen
    function = inspect.unwrap(function)
    if function in seen or not inspect.isfunction(function):
        return set()
    seen.add(function)
    text = inspect.getsource(function)
    found = {code for code in Code if f"Code.{code.name}" in text}
    names = {*function.__code__.co_names}
    for inner in function.__code__.co_consts:
        if inspect.iscode(inner):
            names |= set(inner.co_names)
    inside = [function.__globals__.get(name) for name in names]
    inside += [cell.cell_contents for cell in function.__closure__ or ()]
    inside += [getattr(judge, name, None) for name in names]
    for one in inside:
        if getattr(one, "__module__", "").startswith("pp4.qualify"):
            found |= codes_in(one, seen)
    return found


# codes that a rank, the owner or the release rule says, passed on by a judge as they came
PASSED_ON = {
    Code.UNPRIMED,
    Code.COMPILED_AFTER_PRIMING,
    Code.PROTOCOL,
    Code.RANKS_DIFFER,
    Code.INCOMPLETE,
    Code.PEER_TIMEOUT,
    Code.BAD_LOGITS,
}


@pytest.mark.parametrize("arm", CONTROLS, ids=lambda arm: arm.step.name)
def test_every_control_expects_a_code_that_its_judge_can_give(arm):
    code = Code(arm.step.expected.removeprefix("caught(").removesuffix(")"))
    assert code in codes_in(arm.run) | PASSED_ON


def test_what_is_passed_on_is_said_by_somebody():
    package = Path(sessions.__file__).parents[1]
    text = "".join(
        path.read_text() for unit in ("worker", "kernels") for path in (package / unit).glob("*.py")
    )
    for code in PASSED_ON:
        assert f"Code.{code.name}" in text or f"    {code.name} = " in text
