"""One half, rehearsed as a person does it: real processes, on a CPU, in a HOLD of names."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4 import cli
from pp4.errors import Code, Exit, RefusedError
from pp4.measure import rehearsal, schedule
from pp4.measure.rounds_file import read_rounds
from pp4.measure.sealing import seal_file
from tests.faults.test_hold_cli import marked

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
SWITCHES = {"DSPARK_SAMPLED_TOP32": "1", "VLLM_DSPARK_SAMPLED_TOP32": "1"}


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """``pp4 measure A1B1 --dry-run`` by somebody whose shell has both switches set."""
    place = tmp_path_factory.mktemp("measure")
    temporary = Path(tempfile.mkdtemp(prefix="t"))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pp4", "measure", "A1B1", "--dry-run"],
        cwd=place,
        env={
            **os.environ,
            **SWITCHES,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(temporary),
            "PP4_STATE_DIR": str(place / "state"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    left = [path.name for path in temporary.iterdir()]
    shutil.rmtree(temporary)
    said = {"out": done.stdout, "err": done.stderr}
    return SimpleNamespace(place=place, exit=done.returncode, left=left, **said)


def rounds(rehearsed):
    (path,) = (rehearsed.place / "pp4-rehearsal").iterdir()
    return path


def test_it_runs_both_arms_and_says_what_is_not_shown(rehearsed):
    assert rehearsed.exit == Exit.DONE, rehearsed.err
    total = sum(len(schedule.rounds(schedule.REHEARSED, phase)) for phase in schedule.TIMED)
    rows = [line.split() for line in rehearsed.out.splitlines()]
    for arm in ("A1", "B1"):
        assert [arm, "complete", str(total)] in rows
    for text in rehearsal.DIFFERENCES:
        assert f"  - {text}" in rehearsed.out.splitlines()
    said = rehearsed.err.splitlines()
    assert rehearsal.GATES in said
    assert [line.split(":")[0] for line in said if line.startswith("plan ")] == [
        "plan A1, OFF",
        "plan B1, ON",
    ]


def test_its_rounds_are_kept_and_nothing_is_made_of_them(rehearsed):
    path = rounds(rehearsed)
    kept = read_rounds(path)
    assert (kept.head.rehearsal, kept.fault) == (True, "")
    told = [line.rounded for line in kept.lines if line.rounded and line.rounded.round]
    shown = [line for line in rehearsed.err.splitlines() if "tokens/s" in line]
    assert len(told) == len(shown)
    with pytest.raises(RefusedError) as raised:
        seal_file(path, None)
    assert raised.value.refusal.code is Code.NOT_PROVEN
    assert not list(rehearsed.place.rglob("*.json"))


def test_greedy_text_is_the_same_in_both_arms(rehearsed):
    texts = {"A1": {}, "B1": {}}
    for line in read_rounds(rounds(rehearsed)).lines:
        one = line.rounded.round if line.rounded else None
        if one and one["temperature"] == "0":
            texts[line.rounded.arm][one["phase"], one["index"]] = one["outputs_sha256"]
    assert len(texts["A1"]) > 2
    assert texts["A1"] == texts["B1"]


def test_it_leaves_no_process_and_no_directory(rehearsed):
    assert marked(rounds(rehearsed).name.split("-")[1].split(".")[0]) == []
    assert rehearsed.left == []
    assert not (rehearsed.place / "state").exists()


USAGE = {
    "neither": ["measure", "A1B1"],
    "both": ["measure", "A1B1", "--dry-run", "--hold", "local"],
    "with evidence": ["measure", "B2A2", "--dry-run", "--first", "x.json"],
}


@pytest.mark.parametrize("name", USAGE)
def test_a_rehearsal_and_a_run_are_never_both(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*USAGE[name], "--json"]) == Exit.USAGE
    assert json.loads(capsys.readouterr().out)["code"] == Code.USAGE
    assert list(tmp_path.iterdir()) == []
