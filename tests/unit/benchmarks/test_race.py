"""Everything of the race but its times, on a CPU: two ranks, gloo, kernels in the interpreter."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from benchmarks import race, steps
from benchmarks.racing import field, probe_field
from benchmarks.racing.crew import Crew
from benchmarks.racing.inputs import FEW_SETS


@pytest.fixture(scope="module")
def ranks():
    """Two rank processes for all tests here: they take seconds to start."""
    with Crew(2, "cpu") as crew:
        yield crew


@pytest.fixture
def program(ranks, monkeypatch, tmp_path):
    """Run a program's main with those ranks; -> (exit code, JSON)."""
    shared = contextlib.nullcontext(ranks)

    def run(module, *argv):
        monkeypatch.setattr(module, "Crew", lambda seats, device: shared)
        path = tmp_path / "found.json"
        code = module.main(["--check-only", "--device", "cpu", "--json", str(path), *argv])
        return code, json.loads(path.read_text("utf-8"))

    return run


INTERPRETED = {("pp4_pair", "cached"), ("pp4_solo", "uncached")}
"""Lines that are left out: they take seconds, and of each contender and kind of rows one is run."""


def test_every_contender_that_a_cpu_can_run_is_right(program, capsys, monkeypatch):
    every = race.jobs

    def jobs(asked):
        whole = every(asked)
        return [job for job in whole if (job["contender"], job["rows"]) not in INTERPRETED]

    monkeypatch.setattr(race, "jobs", jobs)
    code, record = program(race)
    assert code == 0
    states = {(line["contender"], line["rows"]): line["state"] for line in record["lines"]}
    expected = {
        (entry.name, rows): "absent" if entry.name in field.FLASHINFER else "checked"
        for entry in field.FIELD
        for rows in ("cached", "uncached")
        if (entry.name, rows) not in INTERPRETED
    }
    assert states == expected
    assert record["versions"].keys() == {"torch", "triton"}
    assert record["where"]["command"][:2] == ["race", "--check-only"]
    table = capsys.readouterr().out
    assert table.count("checked") == list(expected.values()).count("checked")


def test_every_probe_that_can_be_interpreted_is_right(program):
    # how many warps a kernel has is nothing to the interpreter: each tile is run once
    chosen = [step for step in probe_field.STEPS if step.given.get("warps", 4) == 4]
    code, record = program(steps, "--only", *(step.name for step in chosen))
    assert code == 0
    states = {line["step"]: line["state"] for line in record["lines"]}
    assert states == {
        step.name: "absent" if step.given.get("pdl") else "checked" for step in chosen
    }


def test_after_its_checks_a_contender_is_timed_warm_and_cold(ranks):
    # by the host's clock: the way is that of a GPU, the numbers are none
    job = {"verb": "race", "contender": "nccl_topk", "vocab": 128, "rows": "cached", "batch": 1}
    answers = ranks.ask({**job, "rank_dim": 8, "tile": {}, "replays": 21}, 120)
    for answer in answers:
        assert answer["state"] == "timed"
        assert answer["sets"] == FEW_SETS
        for name in ("warm", "cold"):
            assert answer[name]["single"]["count"] == 21
            assert answer[name]["group"]["count"] == 2
            assert 0 < answer[name]["single"]["median_us"] <= answer[name]["single"]["p999_us"]


def test_a_job_that_fails_is_an_answer_and_the_rank_goes_on(ranks):
    job = {"verb": "race", "contender": "torch_topk", "vocab": 128, "rows": "cached", "batch": 1}
    rest = {"rank_dim": 8, "tile": {}, "replays": 0}
    failed, good = (
        ranks.ask(one, 60, seats=1)[0] for one in ({**job, **rest, "batch": -1}, {**job, **rest})
    )
    assert failed["state"] == "failed"
    assert failed["found"].startswith("RuntimeError")
    assert good == {"state": "checked"}


def test_without_a_gpu_it_says_what_cannot_be_measured(monkeypatch, capsys):
    monkeypatch.setattr(race, "seats_here", lambda asked: 0)
    assert race.main([]) == 3
    assert "no GPU here: neither times" in capsys.readouterr().err
    assert race.main(["--device", "cpu"]) == 3
    assert "--check-only" in capsys.readouterr().err
    assert steps.main(["--device", "cpu"]) == 3


@pytest.mark.parametrize(
    "argv",
    [
        ["--vocab", "129281"],
        ["--batches", "65"],
        ["--replays", "0"],
        ["--only", "nobody"],
        ["--json", "no/where"],
    ],
)
def test_bad_options_end_at_once(argv, capsys):
    with pytest.raises(SystemExit):
        race.parsed(argv)
    assert argv[0] in capsys.readouterr().err


def test_a_run_on_gpus_is_asked_for_what_the_issue_names():
    asked = race.parsed([])
    jobs = list(race.jobs(asked))
    assert {job["vocab"] for job in jobs} == {129280, 151936}
    assert {job["batch"] for job in jobs} == {1, 8, 32}
    assert {job["rank_dim"] for job in jobs} == {256}
    assert {(job["replays"], str(job["tile"])) for job in jobs} == {(2000, "{}")}
    assert len(jobs) == 2 * 2 * 3 * len(field.FIELD)
    alone = {job["contender"] for job in race.jobs(race.parsed(["--solo"]))}
    assert alone == {entry.name for entry in field.FIELD if entry.seats == field.SOLO}
    only = race.parsed(["--only", "empty", "--vocab", "64", "--batches", "4"])
    assert [(job["contender"], job["vocab"]) for job in race.jobs(only)] == [("empty", 64)] * 2


def timed(*medians):
    """Answers of ranks whose warm and cold medians are these."""
    return [
        {
            "state": "timed", "sets": 3,
            "warm": {"group": {"median_us": warm}}, "cold": {"group": {"median_us": cold}},
        }
        for warm, cold in medians
    ]  # fmt: skip


def test_of_a_pair_the_slower_rank_is_told():
    line = race.told(timed((5.0, 9.0), (6.0, 8.0)))
    assert (line["warm"]["group"]["median_us"], line["cold"]["group"]["median_us"]) == (6.0, 9.0)
    assert len(line["ranks"]) == 2


def test_of_a_pair_the_worst_state_is_told():
    good = timed((1.0, 1.0))[0]
    assert race.told([good, {"state": "red", "found": "x"}]) == {
        "state": "red",
        "found": "rank 1: x",
    }
    both = [{"state": "red", "found": "x"}, {"state": "failed", "found": "y"}]
    assert race.told(both)["state"] == "failed"


@pytest.mark.parametrize(
    ("contender", "state", "measuring", "checking"),
    [
        ("pp4_pair", "failed", 1, 1),
        ("torch_topk", "red", 1, 1),
        ("torch_compile", "failed", 0, 1),
        ("nccl_topk", "lost", 0, 1),
        ("flashinfer_topk", "absent", 0, 0),
        ("pp4_solo", "timed", 0, 0),
    ],
)
def test_exit_codes(contender, state, measuring, checking):
    lines = [{"contender": contender, "state": state}]
    for check_only, code in ((False, measuring), (True, checking)):
        assert race.status(SimpleNamespace(check_only=check_only), lines) == code
