"""The order of a measuring HOLD as a transcript: gates, then arms, then the end, then receipts.

Everything is the product's own but the host: a HOLD that writes down what is asked of it, whose
steps are played in this process.
"""

import contextlib
import json
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4 import cli
from pp4.clock import ManualClock
from pp4.errors import Code, Exit, Refusal, RefusedError, TimedOutError
from pp4.measure import held as measuring
from pp4.measure import schedule, sealing
from pp4.qualify import held
from pp4.receipts import journal, store
from pp4.receipts.digests import Source, installed_source
from pp4.run import qualified as proofs
from pp4.run import receipt
from pp4.wire.facts import read
from pp4.wire.holds import Granted, Run
from tests.faults import measured_steps
from tests.unit.measure import evidence
from tests.unit.qualify.gpus import gpu, report
from tests.unit.receipts.parts import UUIDS

PACKAGE = Path(__file__).parents[2] / "pp4"
HOLD, FENCE = "0123456789abcdef", 9
NAMES = {"gpus": UUIDS, "boot_id": "boot-1"}
"""What a tombstone says of the machine, and stays on it."""


def granted(hold=HOLD, fence=FENCE, place="/nowhere"):
    tree = {
        "hold": hold,
        "fence": fence,
        "nonce": "n",
        "exclusion": "private",
        "boot_id": "boot-1",
        "gpus": UUIDS,
        "opened_at": "2026-03-01T12:00:00Z",
        "bound_s": 5400.0,
        "ttl_s": 30.0,
        "deadline_boottime_ns": 1,
        "transport": "local",
        "rehearsal": False,
        **dict.fromkeys(("directory", "public", "work"), str(place)),
        "compiled": f"{place}/state/compiled",
    }
    return read(Granted, tree)


class Window:
    """A HOLD that plays what is started in it, and writes down that it was."""

    def __init__(self, transcript, watcher, place):
        self.granted, self.tombstone = granted(place=place), None
        self._transcript, self._watcher, self._lines = transcript, watcher, []

    def run(self, label, module, arguments):
        self._transcript.append(f"start {label}")
        self.asked = arguments
        facts = measured_steps.work(Run(granted=self.granted, arguments=arguments), self)
        self._transcript.append(f"end {label}")
        return json.loads(json.dumps(facts))

    # what a step sees of its supervisor

    def tell(self, item):
        if item.get("snapshot"):
            self._transcript.append(f"{item['arm']} {item['snapshot']['label']}")
        self._watcher.told(item)

    def ask(self, verb, asked):
        before = self._lines[-1] if self._lines else None
        line = journal.next_line(before, asked["step"], asked["event"], asked["found"])
        self._lines.append(line)
        return {"lines": self._lines[asked["after"] :]}


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """The command with such a HOLD; -> (transcript, a function that runs it)."""
    transcript, windows, ends = [], [], SimpleNamespace(raises=None, proven=True)

    @contextlib.contextmanager
    def kept(place, deferred, asked, watcher, note, option):
        transcript.append(f"open for {asked.command}, evidence {len(asked.evidence)}")
        window = Window(transcript, watcher, tmp_path)
        windows.append(window)
        window.granted = window.granted.model_copy(update={"hold": ends.hold})
        try:
            yield window
            if ends.raises is not None:
                raise ends.raises
        finally:
            transcript.append("close")
            closed = {**evidence.TOMBSTONE, "hold": ends.hold, "fence": str(FENCE), **NAMES}
            window.tombstone = closed if ends.proven else None

    @contextlib.contextmanager
    def reached(file, source):
        host = SimpleNamespace(address="local", fingerprint=None)
        yield SimpleNamespace(host=host, program=None)

    def write(path, data):
        transcript.append(f"write {path.name.split('-')[0]}{path.suffix}")
        store.write_new(path, data)

    ends.hold = HOLD
    two = report(*(gpu(index, uuid=uuid) for index, uuid in enumerate(UUIDS)))
    monkeypatch.setattr(held, "kept", kept)
    monkeypatch.setattr(held, "reached", reached)
    monkeypatch.setattr(held, "_gpus_there", lambda place, command: two)
    monkeypatch.setattr(schedule, "STANDARD", evidence.FEW)
    for module in (held, measuring):
        monkeypatch.setattr(
            module, "bring_pair", lambda *_: transcript.append("bring") or "/there/drafter"
        )
    for module in (held, receipt, sealing):
        monkeypatch.setattr(module, "write_new", write)
    monkeypatch.setenv("PP4_STATE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("PP4_HOST_DIR", str(tmp_path / "host"))

    file = tmp_path / "hold.toml"
    file.write_text(f'[hold]\nname = "x"\n[receiving_host]\ntransport = "local"\n{evidence.MODEL}')

    def run(work, *more, **does):
        (tmp_path / "behaviour.json").write_text(json.dumps(does))
        given = evidence.options(tmp_path, work, ("first_half",) if more else (), evidence.FEW)
        argv = ["measure", work, "--hold", str(file), *given, *more, "--out", str(tmp_path / "out")]
        return cli.main(argv)

    made = {"transcript": transcript, "windows": windows, "ends": ends}
    return SimpleNamespace(**made, run=run, file=file, out=tmp_path / "out")


OF_ARM = ("baseline", "headline", "profiled", "final")


def arms(*names):
    return [f"{name} {label}" for name in names for label in OF_ARM]


AFTER = [
    "write qualification.json",
    "write qualification.closed",
    "write measurement.json",
    "write measurement.closed",
]


def test_a_half_is_gates_then_off_then_on_then_the_end_then_receipts(stage):
    assert stage.run("A1B1") == Exit.DONE
    assert stage.transcript == [
        "open for measure A1B1, evidence 3",
        "bring",
        "start gates",
        "end gates",
        "start measure",
        *arms("A1", "B1"),
        "end measure",
        "close",
        *AFTER,
    ]
    for path in stage.out.glob("*.closed"):
        assert json.loads(path.read_text()).keys() == evidence.TOMBSTONE.keys()


def test_the_second_half_is_in_a_second_hold_with_gates_of_its_own_on_then_off(stage):
    assert stage.run("A1B1") == Exit.DONE
    first, stage.ends.hold = stage.out / f"measurement-{HOLD}.json", "fedcba9876543210"
    stage.transcript.clear()
    # the fence of a second HOLD is a higher one
    window = Window.__init__
    Window.__init__ = lambda self, *given: (
        window(self, *given)
        or setattr(self, "granted", self.granted.model_copy(update={"fence": FENCE + 1}))
    )
    try:
        assert stage.run("B2A2", "--first", str(first)) == Exit.DONE
    finally:
        Window.__init__ = window
    assert stage.transcript == [
        "open for measure B2A2, evidence 4",
        "bring",
        "start gates",
        "end gates",
        "start measure",
        *arms("B2", "A2"),
        "end measure",
        "close",
        *AFTER,
    ]


def test_gates_that_fail_are_stored_and_nothing_is_measured(stage):
    assert stage.run("A1B1", gates="wrong") == Exit.WRONG
    assert stage.transcript[-5:] == ["start gates", "end gates", "close", *AFTER[:2]]
    assert not list(stage.out.glob("measurement-*"))


def test_an_arm_that_fails_is_the_last_one_and_claims_nothing(stage, capsys):
    assert stage.run("A1B1", fail="A1") == Exit.WRONG
    assert "FAILED_ROUNDS" in capsys.readouterr().err
    told = ["start measure", "A1 baseline", "A1 headline", "end measure"]
    assert stage.transcript[-9:] == [*told, "close", *AFTER]
    half = json.loads((stage.out / f"measurement-{HOLD}.json").read_text())
    assert (half["complete"], half["summary"]) == (False, None)
    assert [one["verdict"] for one in half["arms"]] == ["failed_rounds_grew"]


@pytest.mark.parametrize(
    ("code", "ends"),
    [("MISSING_GRAPH", Exit.REFUSED), ("RANK_DIED", Exit.WRONG), ("DEADLINE", Exit.TIMEOUT)],
)
def test_arms_that_do_not_begin_leave_no_half_and_say_why(stage, capsys, code, ends):
    assert stage.run("A1B1", refuse=code) == ends
    assert f"code      {code}" in capsys.readouterr().err
    assert stage.transcript[-3:] == ["close", *AFTER[:2]]
    assert not list(stage.out.glob("measurement-*.json"))


def test_a_lease_that_is_lost_after_the_arms_leaves_no_complete_half(stage, capsys):
    lost = Refusal(Code.LEASE_LOST, "HOLD", "a heartbeat", "none")
    stage.ends.raises = TimedOutError(lost)
    assert stage.run("A1B1") == Exit.TIMEOUT
    assert stage.transcript[-5:] == ["close", *AFTER]
    assert "LEASE_LOST" in capsys.readouterr().err
    half = json.loads((stage.out / f"measurement-{HOLD}.json").read_text())
    assert (half["complete"], [one["verdict"] for one in half["arms"]]) == (False, ["complete"] * 2)


def test_an_end_that_is_not_proven_leaves_no_complete_half(stage):
    stage.ends.proven = False
    stage.run("A1B1")
    half = json.loads((stage.out / f"measurement-{HOLD}.json").read_text())
    assert (half["complete"], [one["verdict"] for one in half["arms"]]) == (False, ["complete"] * 2)
    assert not (stage.out / f"measurement-{HOLD}.closed").exists()


def test_an_answer_that_is_not_what_was_told_leaves_no_half(stage, capsys):
    assert stage.run("A1B1", differ=True) == Exit.WRONG
    assert "code      INCOMPLETE" in capsys.readouterr().err
    assert stage.transcript[-3:] == ["close", *AFTER[:2]]


def test_a_source_that_was_changed_meanwhile_leaves_no_half(stage, capsys, monkeypatch):
    # the gates were stored just before
    monkeypatch.setattr(held, "require_same_source", lambda *_: None)
    monkeypatch.setattr(receipt, "installed_source", lambda: Source("0" * 64, ()))
    assert stage.run("A1B1") == Exit.REFUSED
    assert "code      SUBJECT_MISMATCH" in capsys.readouterr().err
    assert stage.transcript[-3:] == ["close", *AFTER[:2]]


def test_a_budget_that_is_cut_is_none(stage):
    stage.ends.raises = TimedOutError(Refusal(Code.LEASE_LOST, "HOLD", "a heartbeat", "none"))
    assert stage.run("budget") == Exit.TIMEOUT
    assert not list(stage.out.glob("budget-*.json"))


def test_a_budget_over_the_window_is_stored_and_refused(stage, capsys):
    assert stage.run("budget", slow=10**12) == Exit.REFUSED
    (path,) = stage.out.glob("budget-*.json")
    assert json.loads(path.read_text())["verdict"] == "over"
    assert "verdict: over" in capsys.readouterr().out


def test_a_run_of_gates_alone_can_have_the_drafter_that_is_going_to_be_measured(stage):
    argv = ["--hold", str(stage.file), "--checkpoint", "mini", "--out", str(stage.out)]
    assert cli.main(["solo-qualify", *argv]) == Exit.DONE
    assert stage.transcript[:3] == ["open for solo-qualify, evidence 0", "bring", "start gates"]
    assert stage.windows[-1].asked["checkpoint"] == "/there/drafter"


# -- the proof that the gates passed


def body(**changes):
    made = measured_steps.samples.qualification()
    return {**made, "hold": {**made["hold"], "id": HOLD, "fence": str(FENCE)}, **changes}


def proof():
    return proofs.qualified(body(), granted(), installed_source())


def test_gates_of_another_hold_or_fence_open_nothing():
    for other in (granted(hold="f" * 16), granted(fence=FENCE + 1)):
        with pytest.raises(RefusedError) as raised:
            proofs.qualified(body(), other, installed_source())
        assert raised.value.refusal.code is Code.STALE_FENCE
        with pytest.raises(RefusedError) as raised:
            proof().require(other)
        assert raised.value.refusal.code is Code.STALE_FENCE
    proof().require(granted())


def test_nothing_is_measured_in_another_hold_than_that_of_the_gates():
    one = measuring.Measuring(None, None, ManualClock())
    one._window = SimpleNamespace(granted=granted(hold="f" * 16))
    with pytest.raises(RefusedError) as raised:
        one.measure(proof())
    assert raised.value.refusal.code is Code.STALE_FENCE


@pytest.mark.parametrize(
    "made",
    [
        body(verdict="wrong"),
        body(scope="kernels"),
        body(gates=[]),
        measured_steps.samples.rehearsal(),
        {**measured_steps.samples.solo(), "scope": "full"},
    ],
    ids=["a failed gate", "scope kernels", "no receipt", "a rehearsal", "one GPU"],
)
def test_what_does_not_qualify_the_pair_is_no_proof(made):
    assert proofs.qualified(made, granted(), installed_source()) is None


def test_nobody_else_makes_copies_or_changes_a_proof():
    with pytest.raises(TypeError):
        proofs.Qualified()
    with pytest.raises(AttributeError):
        proof().fence = 1
    with pytest.raises(TypeError):
        pickle.dumps(proof())
    with pytest.raises(TypeError):
        type("Other", (proofs.Qualified,), {})


def test_the_gates_alone_ask_for_the_proof():
    texts = {file: file.read_text() for file in PACKAGE.rglob("*.py")}
    named = {file for file, text in texts.items() if re.search(r"run\.qualified|run import", text)}
    made = [file for file in named if re.search(r"\bqualified\(", texts[file])]
    assert made == [PACKAGE / "qualify" / "held.py"]
    assert len(named) > 1
