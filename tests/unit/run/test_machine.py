"""A machine is asked in a process of its own; whatever that does, there is one clear answer."""

import json
import sys

import pytest

from pp4.errors import Code, Refusal, RefusedError, TimedOutError
from pp4.qualify.standing import StandingPolicy, gate, status
from pp4.run.machine import ask_machine, ask_or_refusal
from tests.unit.qualify.machines import machine
from tests.unit.receipts import samples


def program(text):
    return [sys.executable, "-c", text]


def refusal_of(argv, kind=RefusedError, **how):
    with pytest.raises(kind) as caught:
        ask_machine(argv, **how)
    return caught.value.refusal


def test_facts_come_back_as_they_were_printed(tmp_path):
    (tmp_path / "facts").write_text(json.dumps(machine(), indent=1) + "\n")
    facts = ask_machine(program(f"print(open({str(tmp_path / 'facts')!r}).read())"))
    assert facts == machine()
    policy = StandingPolicy(source=samples.SOURCE["digest"])
    assert gate(samples.sample("qualification"), facts, policy).refusal is None


@pytest.mark.parametrize("code", [0, 3])
def test_a_refusal_comes_back_in_its_own_words(code):
    said = Refusal(Code.NO_GPU_PAIR, "this machine", "two GPUs", "none", next="pp4 doctor")
    text = f"import sys; print({json.dumps({'refusal': said.as_dict()})!r}); sys.exit({code})"
    assert refusal_of(program(text)) == said


def test_why_a_machine_cannot_say_is_the_reason_against_each(tmp_path):
    said = Refusal(Code.NO_GPU_PAIR, "NVML", "a driver", "none is loaded")
    text = f"print({json.dumps({'refusal': said.as_dict()})!r})"
    facts, unknown = ask_or_refusal(lambda: ask_machine(program(text)))
    assert (facts, unknown.code) == (None, Code.NO_GPU_PAIR)
    path = tmp_path / "q.json"
    path.write_bytes(samples.sample("qualification"))
    policy = StandingPolicy(source=samples.SOURCE["digest"])
    ((reason,),) = (one.reasons for one in status([path], facts, policy, unknown))
    assert (reason.what, reason.code) == ("machine", Code.NO_GPU_PAIR)
    assert reason.found == "none: NVML: none is loaded"
    assert ask_or_refusal(lambda: ask_machine(program("print('{}')"))) == ({}, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("print('{}'); raise SystemExit(7)", "exit code 7"),
        ("pass", "exit code 0"),
        ("print('[1]')", "exit code 0, [1]"),
        ("print('{} {}')", "exit code 0"),
        ("print('NaN')", "exit code 0"),
        ("raise ValueError('a driver\\x1b[2J that is torn')", "that is torn"),
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import sys; sys.stdout.buffer.write(b'\\xff' * 99)", "exit code 0"),
    ],
)
def test_anything_else_is_unreadable(text, found):
    refusal = refusal_of(program(text))
    assert refusal.code is Code.UNREADABLE
    assert found in refusal.found
    assert refusal.found.isprintable()


def test_a_program_that_does_not_start_is_unreadable(tmp_path):
    assert refusal_of([str(tmp_path / "gone")]).code is Code.UNREADABLE


def test_a_process_without_an_answer_is_killed(tmp_path):
    text = "import sys; sys.stdin.read(); import threading; threading.Event().wait()"
    refusal = refusal_of(program(text), TimedOutError, limit_s=0.5)
    assert refusal.code is Code.STEP_TIMEOUT
    assert "0.5 s" in refusal.expected


def test_the_switches_are_not_passed_on(monkeypatch):
    monkeypatch.setenv("DSPARK_SAMPLED_TOP32", "1")
    text = "import os, json; print(json.dumps({'switch': os.environ.get('DSPARK_SAMPLED_TOP32')}))"
    assert ask_machine(program(text)) == {"switch": None}
