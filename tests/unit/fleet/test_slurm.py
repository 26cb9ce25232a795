"""Batch scripts: what Slurm reads in them, and what the shell does with them, by running them."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.fleet import slurm
from pp4.fleet.slurm import emit, read_run
from tests.unit.fleet.fleets import plan

LONG_S = 60.0
# In the place of pp4: writes down what it was called with, and ends as a file beside it says.
PP4 = """\
#!/bin/bash
for word in "$@"; do last=$word; done
pair=${{last##*/}}
echo "$CUDA_VISIBLE_DEVICES|$PP4_STATE_DIR|$*" >{place}/called-$pair
if [[ -e {place}/waits-$pair ]]; then
    trap 'echo told >>{place}/told-$pair; exit 143' TERM
    touch {place}/ready-$pair
    while :; do sleep 0.05; done
fi
code=0
[[ ! -e {place}/code-$pair ]] || code=$(<{place}/code-$pair)
exit "$code"
"""
SCANCEL = '#!/bin/bash\necho "$*" >>{place}/cancelled\n'


class Node:
    """A node that runs a script: stand-ins for pp4 and scancel on its path."""

    def __init__(self, place, made, **how):
        self.place = place
        bin_ = place / "bin"
        bin_.mkdir()
        for name, text in (("pp4", PP4), ("scancel", SCANCEL)):
            (bin_ / name).write_text(text.format(place=shlex.quote(str(place))))
            (bin_ / name).chmod(0o755)
        self.out = place / "run"
        (self.script,) = emit(made, self.out, **how)

    def start(self, task=1):
        environment = {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_ARRAY_JOB_ID": "77",
            "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        }
        return subprocess.Popen(
            ["/bin/bash", str(self.script)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, task=1):
        started = self.start(task)
        started.communicate(timeout=LONG_S)
        return started.returncode

    def says(self, name):
        return (self.place / name).read_text().strip()

    def code(self, pair):
        return (self.out / "results/n1" / pair / "exit").read_text().strip()

    def cancelled(self):
        return (self.place / "cancelled").exists() and self.says("cancelled")

    def wait(self, name):
        end = time.monotonic() + LONG_S
        while not (self.place / name).exists():
            assert time.monotonic() < end, name
            time.sleep(0.01)


@pytest.fixture
def node(tmp_path):
    """A node of four GPUs, pair after pair: 0-1, 2-3, 0-3, ..."""
    return Node(tmp_path, plan(4))


def options(script):
    """What Slurm reads at the top of a script."""
    lines = script.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    top = lines[1 : next(n for n, line in enumerate(lines) if n and not line.startswith("#SBATCH"))]
    return [line.removeprefix("#SBATCH ") for line in top]


def test_one_node_alone_with_a_limit_and_never_again(node):
    found = options(node.script)
    assert {
        "--nodes=1",
        "--nodelist=n1",
        "--exclusive",
        "--mem=0",
        "--array=1-6%1",
        "--time=18",
        "--signal=B:TERM@120",
        "--no-requeue",
        f"--output={node.out}/logs/n1-%a.txt",
    } <= set(found)
    # Slurm reads no option below the first command, and makes no directory for its output
    assert node.script.read_text().count("#SBATCH") == len(found)
    assert (node.out / "logs").is_dir()


def test_a_pair_runs_the_ordinary_command_on_its_two_gpus(node):
    assert node.run() == 0
    seen, state, words = node.says("called-0-1").split("|")
    known = read_run(node.out).plan.nodes[0].uuids
    assert seen == f"{known[0]},{known[1]}"
    assert state == f"/var/tmp/pp4-fleet-{os.getuid()}"
    assert words == f"pair-qualify --hold local --out {node.out}/results/n1/0-1"
    assert node.code("0-1") == "0"
    assert node.cancelled() is False
    assert not (node.place / "called-2-3").exists()


def test_every_task_has_a_pair_of_its_own(node):
    assert [node.run(task) for task in range(1, 7)] == [0] * 6
    called = {path.name.removeprefix("called-") for path in node.place.glob("called-*")}
    assert called == {"0-1", "0-2", "0-3", "1-2", "1-3", "2-3"}
    assert node.run(7) == 2


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
def test_a_failed_pair_is_the_exit_code_and_the_next_one_runs(node, code):
    (node.place / "code-0-1").write_text(str(code))
    assert node.run(1) == code
    assert node.code("0-1") == str(code)
    assert node.cancelled() is False
    assert node.run(2) == 0


@pytest.mark.parametrize("code", [6, 7, 126, 137])
def test_a_bad_exit_ends_the_rounds_of_the_node(node, code):
    (node.place / "code-0-1").write_text(str(code))
    assert node.run(1) == code
    assert node.code("0-1") == str(code)
    # the tasks that wait, and whichever one had started by then
    assert node.cancelled() == "--state=PENDING 77"
    assert node.run(2) == 6
    assert not (node.place / "called-2-3").exists()


def test_after_a_pair_that_was_killed_none_is_run(node):
    (node.place / "waits-0-1").touch()
    job = node.start(1)
    node.wait("ready-0-1")
    os.killpg(job.pid, signal.SIGKILL)
    job.communicate(timeout=LONG_S)
    assert node.run(2) == 6
    assert not (node.place / "called-2-3").exists()


def test_an_end_is_passed_on_once_and_waited_for(node):
    (node.place / "waits-0-1").touch()
    job = node.start(1)
    node.wait("ready-0-1")
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LONG_S)
    assert job.returncode == 143
    assert node.says("told-0-1") == "told"
    assert node.code("0-1") == "143"
    # it ended as it should, so the node goes on
    assert node.cancelled() is False
    assert node.run(2) == 0


def test_a_pair_is_not_run_twice(node):
    assert node.run(1) == 0
    (node.place / "called-0-1").unlink()
    assert node.run(1) == 1
    assert not (node.place / "called-0-1").exists()
    assert node.code("0-1") == "0"


def test_together_a_round_runs_at_once_and_one_bad_exit_is_enough(tmp_path):
    node = Node(tmp_path, plan(4, together=True))
    assert "--array=1-3%1" in options(node.script)
    for pair in ("0-1", "2-3"):
        (node.place / f"waits-{pair}").touch()
    job = node.start(1)
    for pair in ("0-1", "2-3"):
        node.wait(f"ready-{pair}")
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LONG_S)
    assert (node.code("0-1"), node.code("2-3"), job.returncode) == ("143", "143", 143)
    (node.place / "code-0-3").write_text("6")
    (node.place / "code-1-2").write_text("1")
    assert node.run(2) == 6
    assert (node.code("0-3"), node.code("1-2")) == ("6", "1")
    assert node.cancelled() == "--state=PENDING 77"
    assert node.run(3) == 6


def test_a_rehearsal_touches_no_gpu(tmp_path):
    node = Node(tmp_path, plan(2, known=False), rehearse=True)
    assert node.run() == 0
    seen, _, words = node.says("called-0-1").split("|")
    assert seen == "0,1,2,3", "as the scheduler left it"
    assert words == f"pair-qualify --dry-run --out {node.out}/results/n1/0-1"
    assert read_run(node.out).body == "rehearsal"


def test_the_program_is_one_word_for_the_shell(tmp_path):
    odd = tmp_path / "it's;touch$IFS'hit'"
    node = Node(tmp_path, plan(2), program=str(odd))
    odd.write_text((tmp_path / "bin/pp4").read_text())
    odd.chmod(0o755)
    assert node.run() == 0
    assert node.says("called-0-1").endswith("/0-1")
    assert not list(Path.cwd().glob("hit"))


@pytest.mark.parametrize("program", ["", "-x", "pp4 --json", "a\nb", "a\x1b", "a\u2028b"])
def test_what_is_no_program_is_refused(program, tmp_path):
    with pytest.raises(BadInputError):
        emit(plan(2), tmp_path / "run", program=program)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "a%j", "a\nb", "a'b", "a$b", "a\\b", "\u00e9"])
def test_a_place_that_slurm_would_read_otherwise_is_refused(name, tmp_path):
    with pytest.raises(BadInputError):
        emit(plan(2), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_gpus_are_for_rehearsals_alone(tmp_path):
    with pytest.raises(BadInputError) as caught:
        emit(plan(2, known=False), tmp_path / "run")
    assert "UUIDs" in caught.value.refusal.expected
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_there_is_left_alone(tmp_path):
    emit(plan(2), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with pytest.raises(RefusedError) as caught:
        emit(plan(4), tmp_path / "run")
    assert caught.value.refusal.code is Code.EXISTS
    assert {path: path.read_bytes() for path in before} == before


def test_half_a_run_does_not_stay(tmp_path, monkeypatch):
    written = []

    def once(path, data):
        if written:
            raise RefusedError(Refusal(Code.UNWRITABLE, "a disk", "room", "none"))
        written.append(path)
        path.write_bytes(data)

    monkeypatch.setattr(slurm, "write_new", once)
    with pytest.raises(RefusedError):
        emit(plan(2, 2), tmp_path / "run")
    assert written
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_a_template_is_left(node):
    assert not re.search(r"@[A-Z_]+@", node.script.read_text())
