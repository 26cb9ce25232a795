"""What a person and a program see of qualifications that stand, and of those that do not."""

import json

import pytest

from pp4.console import Console
from pp4.qualify.standing import StandingPolicy, exit_of, gate, status, summary
from pp4.receipts.build import build
from tests.unit.qualify.machines import machine
from tests.unit.receipts import samples

POLICY = StandingPolicy(source=samples.SOURCE["digest"], now=samples.NOW)


def changed():
    facts = machine()
    facts["libraries"][0]["sha256"] = samples.digest("0")
    for gpu in facts["gpus"]:
        gpu["driver"] = "580.1"
    return facts


@pytest.fixture
def shown(capsys):
    def show(render, **how):
        console = Console(**how)
        try:
            render(console)
        finally:
            console.close()
        return capsys.readouterr()

    return show


def answer(facts):
    return gate(samples.sample("qualification"), facts, POLICY, "q\x1b.json")


def test_a_receipt_that_admits_is_one_row(shown):
    out, err = shown(lambda console: console.answer(answer(machine())))
    head, row = out.splitlines()
    assert (
        " ".join(head.split()) == "result qualification scope made GPUs because of expected found"
    )
    assert row.split() == ["stands", "q\\x1b.json", "full", samples.MADE, "H200,", "H200"]
    assert err == ""


def test_a_receipt_that_does_not_has_a_row_for_each_reason_and_a_refusal(shown):
    out, err = shown(lambda console: console.answer(answer(changed())))
    _, *rows = out.splitlines()
    assert [row.split()[0] for row in rows] == ["void", "void"]
    assert "driver" in rows[0]
    assert "580.1" in rows[0]
    assert "library" in rows[1]
    assert "libcuda.so.1" in rows[1]
    said = dict(line.split(maxsplit=1) for line in err.splitlines())
    assert said["code"] == "SUBJECT_MISMATCH"
    assert said["from"] == "q\\x1b.json"
    assert said["next"] == "pp4 pair-qualify --hold local --scope full"


@pytest.mark.parametrize(("facts", "code"), [(machine, 0), (changed, 3)])
def test_an_answer_is_one_document(shown, facts, code):
    out, err = shown(lambda console: console.answer(answer(facts())), as_json=True)
    document = json.loads(out)
    assert (document["admitted"], document["exit"]) == (code == 0, code)
    assert (document["refusal"] is None) is (code == 0)
    assert [reason["what"] for reason in document["reasons"]] == (
        [] if code == 0 else ["driver", "library"]
    )
    assert err == ""


@pytest.fixture
def found(tmp_path):
    (tmp_path / "full.json").write_bytes(samples.sample("qualification"))
    (tmp_path / "kernels.json").write_bytes(build(samples.qualification("kernels")))
    paths = sorted(tmp_path.iterdir())
    return lambda facts: status(paths, facts, POLICY)


def render(standings):
    return lambda console: console.standings(standings, summary(standings), exit_of(standings))


def test_the_first_line_says_what_the_machine_is_qualified_for(shown, found):
    out, _ = shown(render(found(machine())))
    line, _, first, second = out.splitlines()
    assert line.startswith("qualified: a worker with the switch on may start")
    assert first.startswith("stands")
    assert second.startswith("void")
    assert "scope kernels, which opens nothing" in second
    out, _ = shown(render(found(changed())))
    assert out.startswith("qualified for nothing: ")


def test_without_a_qualification_the_line_is_all_there_is(shown):
    out, err = shown(render([]))
    assert out == "qualified for nothing: there is no qualification\n"
    assert err == ""


def test_all_of_them_are_one_document(shown, found):
    out, _ = shown(render(found(changed())), as_json=True)
    document = json.loads(out)
    assert document["exit"] == 3
    assert document["summary"].startswith("qualified for nothing")
    assert [q["stands"] for q in document["qualifications"]] == [False, False]
    assert {q["scope"] for q in document["qualifications"]} == {"full", "kernels"}
