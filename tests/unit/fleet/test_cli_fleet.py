"""``pp4 fleet``: the whole way on the command line, exit codes, one document, one refusal."""

import json

import pytest

from pp4 import cli
from pp4.errors import Exit
from pp4.fleet.plan import read_plan
from tests.unit.fleet.fleets import leave, plan


def call(capsys, *arguments):
    code = cli.main(["fleet", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_from_nodes_to_a_suspect(capsys, tmp_path):
    (known,) = plan(4).nodes
    file, run = tmp_path / "plan.json", tmp_path / "run"
    code, out, err = call(capsys, "plan", f"n1={','.join(known.uuids)}", "--out", file)
    assert (code, err) == (Exit.DONE, "")
    assert [line.split()[:4] for line in out.splitlines()[1:3]] == [
        ["n1", "4", "1", "0-1"],
        ["n1", "4", "2", "0-3"],
    ]
    code, out, err = call(capsys, "emit", "slurm", file, "--out", run, "--pp4", "/opt/pp4/bin/pp4")
    assert (code, out, err) == (Exit.DONE, f"script: {run}/n1.sbatch\n", "")
    assert "/opt/pp4/bin/pp4 pair-qualify --hold local" in (run / "n1.sbatch").read_text()
    assert call(capsys, "report", run)[0] == Exit.INCONCLUSIVE
    (node,) = read_plan(file).nodes
    for pair in node.pairs:
        leave(run, node, pair, good=2 not in pair)
    code, out, err = call(capsys, "report", run)
    assert (code, err) == (Exit.WRONG, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["fail", "n1", "4", "6", "3", "3", "0"] in rows
    assert ["gpu", "n1", "2", f"({node.uuids[2]})", "0-2", "1-2", "2-3"] in [
        row[:7] for row in rows
    ]
    assert [row[2] for row in rows if row[:2] == ["fail", "n1"]][1:] == ["2-3", "1-2", "0-2"]


def test_nodes_of_a_file_and_of_the_command_line(capsys, tmp_path):
    (tmp_path / "nodes").write_text("n1=8\nn2=8\nn3=8\nn4=8\nn5=8\n")
    nodes = ("--nodes", tmp_path / "nodes")
    code, out, _ = call(capsys, "plan", "x=2", *nodes, "--mode", "quick", "--minutes", 5)
    assert code == Exit.DONE
    rows = [line.split("  ")[0] for line in out.splitlines()]
    assert rows[1:4] == ["x", "n1 ... n5 (5)", "n1 ... n5 (5)"]
    code, out, err = call(capsys, "plan", "x=2", *nodes, "--together", "--json")
    tree = json.loads(out)
    assert (code, err) == (Exit.DONE, "")
    assert [node["name"] for node in tree["plan"]["nodes"]] == ["x", "n1", "n2", "n3", "n4", "n5"]
    assert tree["minutes"]["total"] == 7 * 15
    assert tree["minutes"]["nodes"]["x"] == {"rounds": [15], "total": 15}


def test_a_report_is_one_document(capsys, tmp_path):
    made = plan(2)
    file, run = tmp_path / "plan.json", tmp_path / "run"
    file.write_bytes(made.raw())
    call(capsys, "emit", "slurm", file, "--out", run)
    leave(run, made.nodes[0], (0, 1))
    code, out, err = call(capsys, "report", run, "--json")
    tree = json.loads(out)
    assert (code, tree["exit"], err) == (0, 0, "")
    assert [pair["result"] for pair in tree["nodes"][0]["pairs"]] == ["passed"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["plan"], Exit.REFUSED),
        (["plan", "n1"], Exit.REFUSED),
        (["plan", "n1=8", "n1=8"], Exit.REFUSED),
        (["plan", "n1=8", "--minutes", "0"], Exit.USAGE),
        (["plan", "n1=8", "--mode", "fast"], Exit.USAGE),
        (["plan", "--nodes", "gone"], Exit.REFUSED),
        (["emit", "slurm", "gone", "--out", "run"], Exit.REFUSED),
        (["emit", "pbs"], Exit.USAGE),
        (["report", "gone"], Exit.USAGE),
        (["report", "gone", "--plan", "gone"], Exit.REFUSED),
        (["report", "gone", "--share", "much"], Exit.USAGE),
        (["report", "gone", "--share", "nan"], Exit.USAGE),
        (["report", "gone", "--share", "1e9"], Exit.USAGE),
    ],
)
def test_bad_input_is_one_refusal(capsys, tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    found, out, err = call(capsys, *arguments)
    assert (found, out) == (code, "")
    assert err.startswith("code ")
    assert len(err.splitlines()) == 8
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_never_written_over(capsys, tmp_path):
    file = tmp_path / "plan.json"
    assert call(capsys, "plan", "n1=8", "--out", file)[0] == Exit.DONE
    before = file.read_bytes()
    assert call(capsys, "plan", "n1=4", "--out", file)[0] == Exit.REFUSED
    assert file.read_bytes() == before


@pytest.mark.parametrize("verb", [["plan"], ["emit", "slurm"], ["report"]])
def test_help_has_examples(capsys, verb):
    code, out, _ = call(capsys, *verb, "--help")
    assert code == Exit.DONE
    assert f"\n    pp4 fleet {' '.join(verb)} " in out.partition("Examples:")[2]
