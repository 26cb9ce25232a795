"""``pp4 replay``: what it starts and how, what it prints, and how it ends."""

import json
import subprocess
import sys

import pytest
import torch

from pp4 import cli
from pp4.cli.replay import replay as group
from pp4.config import INTERPRETED, ON_GPUS
from pp4.console import replays
from pp4.engine.replay import program
from pp4.engine.replay.reading import read_heldout
from pp4.engine.replay.replaying import replay
from pp4.errors import BadInputError, Code, Exit, Refusal, UsageError, WrongError
from pp4.kernels import interpreting
from pp4.kernels.reference_block import ReferenceBlock
from pp4.run import machine
from tests.unit.engine.replay.cases import closed, opened

CPU = torch.device("cpu")


def call(capsys, *arguments):
    code = cli.main(["replay", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def refusal(err):
    return dict(line.split(maxsplit=1) for line in err.splitlines())


def as_reference(path, part):
    """What the exact reference says, in place of the kernel."""
    held = read_heldout(path)
    return replay(held, part=part, rows=4, device=CPU, make_block=ReferenceBlock)


def test_a_replay_by_the_kernel(capsys, heldout):
    code, out, err = call(capsys, heldout, "--json", "--part", "1")
    assert (code, err) == (Exit.DONE, "")
    found = json.loads(out)
    assert found.pop("file") == str(heldout)
    producer = found.pop("producer")
    assert (producer["device"], producer["torch"]) == ("interpreter", torch.__version__)
    assert found == json.loads(json.dumps(as_reference(heldout, 1)))


@pytest.fixture
def here(capsys, monkeypatch):
    """Runs what would be started in this process, and gives back its answer as it would be read."""

    def ask(argv, *, kinds, where, **_):
        code = program.main(argv[4:])
        raw = capsys.readouterr().out.encode()
        return machine._answer(subprocess.CompletedProcess(argv, code, raw, b""), kinds, where)

    monkeypatch.setattr(machine, "ask_machine", ask)
    # other tests of this process keep the interpreter's checks
    monkeypatch.setattr(interpreting, "quicken", lambda: None)


def test_a_file_is_made(capsys, here, heldout, pair, tmp_path):
    out = tmp_path / "made"
    options = {"target": pair / "target", "drafter": pair / "drafter", "out": out}
    options |= {"tokens": pair / "tokens.json", "documents": 2, "blocks": 2, "length": 12}
    given = [text for name, value in options.items() for text in (f"--{name}", value)]
    code, text, err = call(capsys, "make-heldout", *given)
    assert (code, err) == (Exit.DONE, "")
    assert out.read_bytes() == heldout.read_bytes()
    assert f"sha256: {read_heldout(out).sha256}" in text.splitlines()
    assert "blocks: 4" in text.splitlines()
    fewer = [*given, "--documents", 1, "--blocks", 3, "--length", 10, "--out", tmp_path / "fewer"]
    _, text, _ = call(capsys, "make-heldout", *fewer)
    assert {"documents: 1", "blocks: 3", "tokens: 10"} <= set(text.splitlines())


def test_frozen_tokens_that_the_kernel_does_not_draw_end_with_1(capsys, here, short, tmp_path):
    header, tensors = opened(short.read_bytes())
    tensors["sampled.tokens"][0, 1] = (tensors["sampled.tokens"][0, 1] + 1) % 150
    (tmp_path / "h").write_bytes(closed(header, tensors))
    code, out, err = call(capsys, tmp_path / "h", "--part", "1")
    assert (code, out) == (Exit.WRONG, "")
    found = refusal(err)
    assert (found["code"], found["where"]) == (
        Code.OUTPUT_MISMATCH,
        "block 0, position 1: sampled token",
    )


@pytest.fixture
def asked(monkeypatch, heldout):
    """What another process is asked, which then gives a report of the exact reference."""
    seen = []

    def ask(argv, **how):
        seen.append((argv, how))
        producer = {"device": "interpreter", "name": "a name"}
        return {"file": str(heldout), "producer": producer, **as_reference(heldout, 4)}

    monkeypatch.setattr(machine, "ask_machine", ask)
    return seen


def test_what_is_started(capsys, asked):
    assert call(capsys, "h")[0] == Exit.DONE
    assert (
        call(capsys, "--device", "cuda", "--part", "7", "--limit-s", "9", "./run")[0] == Exit.DONE
    )
    assert call(capsys, "run", "make-heldout")[0] == Exit.DONE
    program = [sys.executable, "-P", "-m", "pp4.engine.replay.program", "replay"]
    assert [argv[:-1] for argv, _ in asked] == [program] * 3
    assert [json.loads(argv[-1]) for argv, _ in asked] == [
        {"heldout": "h", "device": "interpreter", "part": None},
        {"heldout": "run", "device": "cuda", "part": 7},
        {"heldout": "make-heldout", "device": "interpreter", "part": None},
    ]
    first, second, _ = (how for _, how in asked)
    assert (first["environment"], first["limit_s"]) == (INTERPRETED, 600)
    assert (second["environment"], second["limit_s"]) == (ON_GPUS, 9)
    assert first["kinds"] == {Exit.WRONG: WrongError, Exit.USAGE: UsageError}


def test_tables_for_people(capsys, asked, heldout):
    code, out, err = call(capsys, heldout)
    assert (code, err, len(asked)) == (Exit.DONE, "", 1)
    lines = out.splitlines()
    found = as_reference(heldout, 4)
    for arm in found["arms"]:
        counts = " ".join(map(str, arm["histogram"]))
        wanted = [
            arm["temperature"],
            arm["switch"],
            f"{arm['accepted_length']:.3f}",
            f"{arm['tokens_per_step']:.3f}",
            f"{arm['expected_length']:.3f}",
            *counts.split(),
        ]
        assert wanted in [line.split() for line in lines]
        for place, one in enumerate(arm["positions"], start=1):
            reached = one["reached"]
            wanted = [arm["temperature"], arm["switch"], str(place), str(reached)]
            wanted += [str(one["accepted"])]
            wanted += [f"{one['accepted'] / reached:.3f}"] if reached else ["none", "reached"]
            rate = one["expected_rate"]
            wanted += ["none", "reached"] if rate is None else [f"{rate:.3f}"]
            assert [*wanted, f"{one['shared']:.3f}"] in [line.split() for line in lines]
    for place, one in enumerate(found["truncation"], start=1):
        shared = one["shared"]
        assert (
            f"truncation at position {place}: total variation {one['mean']:.4f} on average, "
            f"{one['largest']:.4f} at most; min(P, Q) without it "
            f"{shared['0.7']:.3f} at T = 0.7, {shared['1.0']:.3f} at T = 1.0"
        ) in lines
    assert "replayed: 4 of 4 blocks, documents: 2, by the exact verifier as well: 4" in lines
    assert "producer: interpreter, a name" in lines
    for name, digest in found["digests"].items():
        assert f"sha256 of {name}: {digest}" in lines
    assert sum("no interval: too few documents (2; 30 are needed)" in line for line in lines) == 4


def test_rates_are_of_the_blocks_that_reach_a_position():
    first = {"reached": 4, "accepted": 3, "expected_rate": 0.5, "shared": 0.25}
    second = {"reached": 3, "accepted": 1, "expected_rate": 0.125, "shared": 0.75}
    arm = {"temperature": "1.0", "switch": "on", "blocks": 4, "positions": [first, second]}
    assert replays.positions({"arms": [arm]}) == [
        ("1.0", "on", 1, 4, 3, "0.750", "0.500", "0.250"),
        ("1.0", "on", 2, 3, 1, "0.333", "0.125", "0.750"),
    ]


def test_an_interval_is_printed(capsys, asked, heldout, monkeypatch):
    found = as_reference(heldout, 1)
    found["producer"] = {"device": "cuda", "name": "a GPU"}
    found["differences"][0]["decided"] = {"mean": -0.25, "interval": [-0.5, 0.125]}
    monkeypatch.setattr(machine, "ask_machine", lambda *_, **__: found)
    _, out, _ = call(capsys, heldout)
    assert (
        "accepted length on minus off at T = 0.7, by the words: -0.250, "
        "95% interval -0.500 to +0.125"
    ) in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "HELDOUT"),
        (("h", "--limit-s", "0"), "--limit-s"),
        (("h", "--limit-s", "1e9"), "--limit-s"),
        (("h", "--part", "x"), "--part"),
        (("h", "other"), "other"),
        (("make-heldout",), "--target"),
        (("run",), "HELDOUT"),
    ],
)
def test_bad_options_start_nothing(capsys, asked, arguments, word):
    code, out, err = call(capsys, *arguments)
    assert (code, out, asked) == (Exit.USAGE, "", [])
    assert word in err


def test_help_names_both(capsys):
    assert group.info.help
    code, out, _ = call(capsys, "--help")
    assert code == Exit.DONE
    assert "HELDOUT | make-heldout" in out
    assert "pp4 replay HELDOUT" in out
    code, out, _ = call(capsys, "make-heldout", "--help")
    assert code == Exit.DONE
    assert "--documents" in out


def test_a_refusal_keeps_its_kind_by_the_exit_code():
    said = Refusal(Code.OUTPUT_MISMATCH, "block 0", "1", "2")
    for code, kind in ((1, WrongError), (2, UsageError)):
        text = f"print({json.dumps({'refusal': said.as_dict()})!r}); raise SystemExit({code})"
        kinds = {1: WrongError, 2: UsageError}
        with pytest.raises(kind) as caught:
            machine.ask_machine([sys.executable, "-c", text], kinds=kinds)
        assert caught.value.refusal.where == "block 0"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], "0 words"),
        (["replay"], "1 words"),
        (["other", "{}"], "other"),
        (["replay", "no"], "Invalid JSON"),
        (["replay", '{"heldout": "h", "device": "cpu", "part": 1}'], "device"),
        (["make", "{}"], "target"),
    ],
)
def test_a_program_that_is_started_otherwise(capsys, words, found):
    assert program.main(words) == Exit.USAGE
    said = json.loads(capsys.readouterr().out)["refusal"]
    assert said["code"] == Code.USAGE
    assert found in said["found"]


@pytest.mark.parametrize(("part", "limit", "replayed"), [(None, 3, 3), (None, 16, 4), (4, 3, 4)])
def test_an_interpreter_replays_a_few_blocks_where_nobody_says_how_many(
    monkeypatch, here, heldout, part, limit, replayed
):
    seen = []
    monkeypatch.setattr(program, "replay", lambda held, **how: seen.append(how) or {})
    monkeypatch.setattr(program, "INTERPRETED_PART", limit)
    asked = program.ReplayFile(heldout=str(heldout), device="interpreter", part=part)
    assert program.run_replay(asked)["producer"]["device"] == "interpreter"
    assert [(how["part"], how["device"]) for how in seen] == [(replayed, CPU)]


def test_a_kernel_of_another_kind_than_was_asked_for(monkeypatch, here, heldout):
    monkeypatch.setattr(program.sampled_fused, "interpreted", lambda _: False)
    asked = program.ReplayFile(heldout=str(heldout), device="interpreter", part=1)
    with pytest.raises(BadInputError) as caught:
        program.run_replay(asked)
    refusal = caught.value.refusal
    assert (refusal.where, refusal.expected) == (
        "environment",
        "TRITON_INTERPRET=1 for device interpreter",
    )


def test_a_fault_of_ours_is_not_blamed_on_the_arguments(monkeypatch):
    def broken(_):
        raise ValueError("ours")

    monkeypatch.setattr(program, "run_replay", broken)
    with pytest.raises(ValueError, match="ours"):
        program.main(["replay", '{"heldout": "h", "device": "cuda", "part": null}'])


@pytest.mark.gpu
def test_a_gpu_gives_the_same(capsys, heldout):
    code, out, _ = call(capsys, heldout, "--device", "cuda", "--json")
    found = json.loads(out)
    assert code == Exit.DONE
    assert found["producer"]["device"] == "cuda"
    wanted = json.loads(json.dumps(as_reference(heldout, 4)))
    assert {name: found[name] for name in wanted} == wanted
