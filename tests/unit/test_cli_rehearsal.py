"""``pair-qualify --dry-run``, with a small double in the place of the rehearsal."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from pp4 import cli
from pp4.errors import Code, Exit, Refusal, TimedOutError
from pp4.qualify.plan import Step

STEPS = (
    Step(0, "uuid", "pass", "the GPUs are the admitted ones"),
    Step(0, "wrong-uuid", "caught(DEVICE_MISMATCH)", "another GPU is noticed"),
    Step(2, "relaxed-flag", "caught(OUTPUT_MISMATCH)", "a race is recorded", gating=False),
)
FOUND = ("pass", "caught(DEVICE_MISMATCH)", "pass")


def _receipt(found):
    def arm(step, what):
        return {
            "arm": step.arm,
            "expected": step.expected,
            "found": what,
            "gating": step.gating,
            "elapsed_ns": "1500000000",
        }

    arms = [arm(step, what) for step, what in zip(STEPS, found, strict=True)]
    return {
        "kind": "rehearsal",
        "gates": [
            {"gate": 0, "name": "preflight", "arms": arms[:2]},
            {"gate": 2, "name": "peer kernels", "arms": arms[2:]},
        ],
    }


@dataclass(frozen=True)
class Double:
    """What the rehearsal would hand back."""

    verdict: str
    receipt_path: Path
    exit: Exit
    receipt: dict
    differences: tuple[str, ...] = ("peer memory is NVLink, not shared memory",)
    more: tuple[Path, ...] = ()


@pytest.fixture
def rehearsal(monkeypatch):
    """Put a rehearsal in place; the dictionary says what it shall find and how it shall end."""
    plan = {"found": FOUND, "verdict": "rehearsed", "exit": Exit.DONE, "error": None, "out": None}

    def rehearse(out, progress):
        plan["out"] = out
        progress.planned(STEPS)
        progress.note("two ranks started")
        for step, found in zip(STEPS, plan["found"], strict=True):
            progress.started(step)
            progress.finished(step, found, 1.5)
        if plan["error"]:
            raise plan["error"]
        path = out / "rehearsal one.json"
        return Double(plan["verdict"], path, plan["exit"], _receipt(plan["found"]))

    module = ModuleType("pp4.qualify.rehearsal")
    module.rehearse = rehearse
    monkeypatch.setitem(sys.modules, "pp4.qualify.rehearsal", module)
    return plan


def test_the_table_has_every_arm_and_the_way_on(rehearsal, capsys):
    assert cli.main(["pair-qualify", "--dry-run", "--out", "here"]) == 0
    out, _ = capsys.readouterr()
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "0 preflight uuid must pass pass pass 1.50 ok" in rows
    caught = "caught(DEVICE_MISMATCH)"
    assert f"0 preflight wrong-uuid must be caught {caught} {caught} 1.50 ok" in rows
    race = "caught(OUTPUT_MISMATCH) pass 1.50 recorded"
    assert f"2 peer kernels relaxed-flag must be caught {race}" in rows
    assert "verdict: rehearsed" in rows
    assert "- peer memory is NVLink, not shared memory" in rows
    assert rows[-1] == (
        "check it with: pp4 verify-receipt --kind rehearsal 'here/rehearsal one.json'"
    )
    assert rehearsal["out"] == Path("here")


def test_progress_goes_to_standard_error_line_by_line(rehearsal, capsys):
    cli.main(["pair-qualify", "--dry-run"])
    _, err = capsys.readouterr()
    assert err.splitlines() == [
        "plan gate-0/uuid: pass: the GPUs are the admitted ones",
        "plan gate-0/wrong-uuid: caught(DEVICE_MISMATCH): another GPU is noticed",
        "plan gate-2/relaxed-flag: caught(OUTPUT_MISMATCH): a race is recorded",
        "two ranks started",
        "[1/3] gate-0/uuid: pass (1.50 s)",
        "[2/3] gate-0/wrong-uuid: caught(DEVICE_MISMATCH) (1.50 s)",
        "[3/3] gate-2/relaxed-flag: pass, expected caught(OUTPUT_MISMATCH) (1.50 s)",
    ]


def test_json_is_one_document_and_nothing_else(rehearsal, capsys):
    assert cli.main(["pair-qualify", "--dry-run", "--json"]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert err == ""
    assert (record["verdict"], record["exit"]) == ("rehearsed", 0)
    assert record["receipt"] == _receipt(FOUND)
    assert record["receipt_path"] == "pp4-rehearsal/rehearsal one.json"
    assert record["more_receipts"] == []


@pytest.mark.parametrize("code", [Exit.WRONG, Exit.TIMEOUT, Exit.INCONCLUSIVE, Exit.UNCLEAN])
def test_the_exit_code_is_that_of_the_run(rehearsal, capsys, code):
    rehearsal.update(exit=code, verdict="x", found=("failed(LEAK)", *FOUND[1:]))
    assert cli.main(["pair-qualify", "--dry-run"]) == code
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "0 preflight uuid must pass pass failed(LEAK) 1.50 WRONG" in rows


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_refusal_of_the_run_is_shown_like_any_other(rehearsal, capsys, flags):
    refusal = Refusal(Code.STEP_TIMEOUT, "gate-5/late", "an end within 2 s", "none", left="pid 9")
    rehearsal["error"] = TimedOutError(refusal)
    assert cli.main(["pair-qualify", "--dry-run", *flags]) == Exit.TIMEOUT
    out, err = capsys.readouterr()
    if flags:
        assert json.loads(out) == refusal.as_dict()
    else:
        assert "left      pid 9" in err.splitlines()


# A run that says when it stands inside its work, waits for ever, and cleans up on the way out.
WAITING = """
import signal, sys, threading
from types import ModuleType
from pp4 import cli
def rehearse(out, progress):
    try:
        progress.note("inside")
        threading.Event().wait()
    finally:
        progress.note("cleaning")
        {clean}
        progress.note("cleaned")
module = ModuleType("pp4.qualify.rehearsal")
module.rehearse = rehearse
sys.modules[module.__name__] = module
sys.exit(cli.main(["pair-qualify", "--dry-run", *sys.argv[1:]]))
"""


def _waiting(clean="pass", *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(clean=clean), *arguments],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "inside\n"
    return process


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
)
def test_a_signal_ends_the_run_cleanly(number, code):
    process = _waiting()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    lines = err.splitlines()
    assert lines[:3] == ["cleaning", "cleaned", "code      INTERRUPTED"]
    assert f"found     {number.name}" in lines
    assert "left      nothing" in lines
    assert len(lines) == 10


def test_a_second_signal_during_the_clean_up_is_unclean():
    process = _waiting("threading.Event().wait()")
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "cleaning\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.UNCLEAN
    assert "left      processes of this run may still be there" in err.splitlines()
    assert "Traceback" not in err


def test_an_unforeseen_error_while_something_may_run_is_unclean(rehearsal, capsys):
    rehearsal["error"] = KeyError("a bug")
    assert cli.main(["pair-qualify", "--dry-run", "--json"]) == Exit.UNCLEAN
    record = json.loads(capsys.readouterr().out)
    assert (record["code"], record["left"]) == (Code.INTERNAL, "not known")


def test_an_unforeseen_error_after_the_run_is_wrong(rehearsal, capsys, monkeypatch):
    def broken(*_):
        raise KeyError("a bug")

    monkeypatch.setattr("pp4.console.Console.outcome", broken)
    assert cli.main(["pair-qualify", "--dry-run", "--json"]) == Exit.WRONG
    assert json.loads(capsys.readouterr().out)["left"] == "nothing"


def test_the_help_says_what_is_left_and_where(capsys):
    assert cli.main(["pair-qualify", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Directory for the receipt; pp4-rehearsal, or that of this user's receipts." in text
    assert "Rehearse every gate on the CPU of this machine." in text
    for option in ("--dry-run", "--hold", "--soak", "--solo", "--out", "--json"):
        assert option in text
