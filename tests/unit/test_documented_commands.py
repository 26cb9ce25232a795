"""Every command of the pages for people: which of them run, where, and why the others do not."""

import re
import shutil

import pytest

from pp4.errors import Exit
from tests.lines import joined, wrong_with
from tests.pages import ROOT, Shell, blocks, section, steps

README = (ROOT / "README.md").read_text()
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("examples/mini/README.md", "receipts/README.md")),
    ROOT / "benchmarks" / "RESULTS.md",
]
"""The operator's page has a test of its own, which runs all of it."""


def bare(line):
    """A command without the comment behind it, its blanks single."""
    return re.sub(r"\s+", " ", re.sub(r"\s+# .*$|^# .*$", "", line)).strip()


DOCUMENTED = {
    command: path.relative_to(ROOT).as_posix()
    for path in reversed(PAGES)
    for language, body in blocks(path.read_text("utf-8"))
    if language == "sh"
    for command in map(bare, joined(body))
    if command
}

# -- run here, in a directory that has what the words in capitals stand for

TOGETHER = {
    "codes": {"pp4 explain NOT_CANONICAL": Exit.DONE},
    "fleet": {
        "pp4 fleet plan node1=8 node2=8": Exit.DONE,
        "pp4 fleet plan --nodes nodes.txt --out plan.json": Exit.DONE,
        "pp4 fleet emit slurm plan.json --out RUN": Exit.DONE,
        "pp4 fleet report RUN": Exit.INCONCLUSIVE,
    },
    "checkpoints": {
        "pp4 drafter inspect DIR": Exit.DONE,
        "pp4 drafter inspect DIR --target TARGET": Exit.DONE,
        "pp4 drafter inspect DIR --json": Exit.DONE,
    },
    "trees": {
        "pp4 prepare MANIFEST --source TREE --out staged": Exit.DONE,
        "sh launch/runner/start.sh": Exit.DONE,
    },
    "hosts": {
        "pp4 hold status --hold hold.toml": Exit.DONE,
        "pp4 worker status": Exit.REFUSED,
        "pp4 gate RECEIPT": Exit.REFUSED,
    },
    "receipts": {
        "pp4 receipts table": Exit.DONE,
        "pp4 verify-receipt --history receipts/*.json": Exit.DONE,
        "python -m pp4.receipts.archive receipts": Exit.DONE,
    },
}
"""Commands that are run one after another in one directory, and how each ends."""
QUICK = {command for some in TOGETHER.values() for command in some}
AS = {
    "pp4 fleet emit slurm plan.json --out /shared/fleet-1 --pp4 /opt/pp4/bin/pp4": (
        "pp4 fleet emit slurm plan.json --out RUN"
    ),
    "pp4 fleet emit slurm plan.json --out DIR": "pp4 fleet emit slurm plan.json --out RUN",
    "pp4 fleet report /shared/fleet-1": "pp4 fleet report RUN",
    "pp4 fleet report DIR": "pp4 fleet report RUN",
}
"""Commands with a place that is not this machine's, or a word that means another thing above."""

# -- run by other tests, and by .ci/run

ELSEWHERE = {
    "make rehearse": ".ci/run",
    "make rehearse-ssh": ".ci/run",
    "make test": ".ci/run",
    "make test-triton36": ".ci/run",
    ".ci/run": ".ci/run",
    "pip install .": ".ci/run, as a wheel",
    "pip install '.[gpu]'": ".ci/run, by make",
    "pip install '.[gpu,mini]'": ".ci/run, by make",
    "pip install -c constraints.txt -e '.[gpu,mini]'": ".ci/run, by make",
    "pp4 replay examples/mini/heldout.safetensors": "test_readme_walk.py, two of its blocks",
    "pp4 verify-receipt --history receipts/solo-6a416c013ce0a3d7.json "
    "receipts/whole_worker-6a416c013ce0a3d7.json": "test_readme_walk.py",
    "DSPARK_SAMPLED_TOP32=1 pp4 worker serve examples/mini/drafter --device reference --depths 5 "
    "--context 512 --socket /tmp/pp4/mini --log text &": "trained_pair.py",
    "VLLM_DSPARK_SAMPLED_TOP32=1 python -m examples.mini.generate --socket /tmp/pp4/mini "
    "--temperature 0.7 --prompt 'class Reader:'": "trained_pair.py",
    "python -m pp4.drafter.checkpoint.synthetic /tmp/pp4/drafter": "test_readme_worker.py",
    "pp4 worker serve /tmp/pp4/drafter --device reference --socket /tmp/pp4/socket --log text &": (
        "test_readme_worker.py"
    ),
    "pp4 worker serve DIR": "test_readme_worker.py, without GPUs",
    "pp4 worker status /tmp/pp4/socket": "test_readme_worker.py",
    'PYTHONPATH="$PWD" sh staged/start.sh --socket /tmp/pp4/socket': "test_readme_worker.py",
    "pp4 prepare launch/manifests/runner.toml --out DIR": "test_readme_walk.py",
    "pp4 pair-qualify --hold hold.toml": "test_operators_page.py",
    "pp4 measure A1B1 --dry-run": "test_measure_rehearsal.py",
    "pp4 report A1B1.json B2A2.json --html page.html": "report/test_console.py, of other receipts",
    "pp4 replay FILE": "test_readme_walk.py, of the mini pair",
    "pp4 replay heldout.safetensors": "replay/test_command.py, of a smaller file",
    "pp4 replay heldout.safetensors --part 4 --json": "replay/test_command.py",
    "pp4 replay make-heldout --target DIR --drafter DIR --tokens documents.json "
    "--out heldout.safetensors": "replay/test_command.py",
    "pp4 replay make-heldout --target examples/mini/target --drafter examples/mini/drafter "
    "--tokens documents.json --out heldout.safetensors": "replay/test_command.py, a smaller pair",
    "python -m examples.mini.documents --text /usr/lib/python3.11 --out documents.json": (
        "test_mini_documents.py"
    ),
    "python -m examples.mini.prompts --text /usr/lib/python3.11 --out prompts.jsonl": (
        "test_mini_prompts.py"
    ),
    "python -m examples.mini.train --out build/smoke --smoke": "test_mini_training.py",
    "pp4 --install-completion": "test_completion.py",
    "_PP4_COMPLETE=source_bash pp4": "test_completion.py",
    "_PP4_COMPLETE=source_zsh pp4": "test_completion.py",
    "_PP4_COMPLETE=source_fish pp4": "test_completion.py",
}
"""Where a command is run."""

SRUN = (
    "srun --nodes=2 --ntasks-per-node=1 --exclusive --output=nodes.txt bash -c 'echo "
    '"$SLURMD_NODENAME=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | paste -sd,)"\''
)
NEEDS = {
    "pp4 solo-qualify": "a GPU; refused without one in test_cli.py",
    "pp4 solo-qualify --checkpoint mini": "a GPU; test_readme_walk.py, against its receipt",
    "pp4 solo-qualify --hold FILE --checkpoint mini": "a GPU; refused in test_operators_page.py",
    "pp4 pair-qualify --hold local": "two GPUs; refused without them in test_cli.py",
    "pp4 pair-qualify --hold local --soak 10": "two GPUs",
    "pp4 pair-qualify --hold local --solo RECEIPT --soak 4": "two GPUs",
    "pp4 replay heldout.safetensors --device cuda": "a GPU",
    "python -m examples.mini.train --out build/mini": "a GPU, for minutes",
    "python -m benchmarks.whole_block": "two GPUs",
    "python -m benchmarks.whole_block --solo": "a GPU",
    "python -m benchmarks.hold_overhead": "minutes",
    "PYTHONPATH=. python benchmarks/peer_probe.py --replays 500": "two GPUs",
    "PYTHONPATH=. python -m pytest tests/pair": "two GPUs",
    SRUN: "a cluster with GPUs; make slurm emulates one",
    'for one in /shared/fleet-1/*.sbatch; do sbatch --partition=gpu "$one"; done': "the same",
}
"""Why a command is not run."""

WALK = {
    bare(line)
    for body, _ in steps(section(README, "## A first walk, without a GPU"))
    for line in joined(body)
}


def test_every_documented_command_runs_or_says_why_not():
    known = QUICK | AS.keys() | ELSEWHERE.keys() | NEEDS.keys() | WALK
    new = {command: page for command, page in DOCUMENTED.items() if command not in known}
    assert new == {}, "run these, or write down in this file where they are run or what they need"
    stood_in = set(AS.values())
    assert [one for one in known - stood_in if one not in DOCUMENTED] == []


@pytest.mark.parametrize("command", [one for one in DOCUMENTED if re.search(r"\bpp4 ", one)])
def test_every_command_of_pp4_is_one(command):
    if command.startswith(("PYTHONPATH", "python", "VLLM")):
        return
    assert wrong_with(command.removesuffix("&")) == ""


def test_what_names_a_test_names_one():
    files = [path.as_posix() for path in (ROOT / "tests").rglob("*.py")] + [f"{ROOT}/.ci/run"]
    for where in ELSEWHERE.values():
        name = where.partition(",")[0]
        assert [one for one in files if one.endswith(f"/{name}")], where


UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(2)]


@pytest.fixture
def place(tmp_path):
    """What the words of the commands stand for."""
    shell = Shell(tmp_path, ("launch", "examples"))
    shutil.copytree(ROOT / "receipts", tmp_path / "receipts")
    for name, of in {
        "DIR": ROOT / "examples/mini/drafter",
        "TARGET": ROOT / "examples/mini/target",
        "RECEIPT": ROOT / "receipts/qualification-0a1c8bc1a229da2d.json",
        "TREE": ROOT / "launch/runner",
        "MANIFEST": ROOT / "launch/manifests/runner.toml",
        "remote_dspark": ROOT / "launch/manifests/remote_dspark",
    }.items():
        (tmp_path / name).symlink_to(of)
    (tmp_path / "nodes.txt").write_text(f"node1={','.join(UUIDS)}\n")
    (tmp_path / "hold.toml").write_text(
        '[hold]\nname = "here"\n[receiving_host]\ntransport = "local"\ngpus = "auto"\n'
        f'state_dir = "{tmp_path}/state"\n'
    )
    return shell


@pytest.mark.parametrize("name", TOGETHER)
def test_they_run_as_they_stand_there(place, name):
    for command, end in TOGETHER[name].items():
        done = place.run(command, PYTHON="python")
        assert done.exit == end, done.said
        assert "Traceback" not in done.said
