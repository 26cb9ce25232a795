"""The README's worker and its client, run as they stand there but for the places in /tmp."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Pp4Error
from pp4.transport.worker_socket import ask_status
from tests.pages import Shell, differs, steps

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "README.md").read_text().partition("### Draft a block, on a CPU")[2]
SHOWN = re.search(r"```python\n.*?```\n\n```text\n(.*?)```", SECTION, re.DOTALL).group(1)
PREPARE = (ROOT / "docs" / "prepare.md").read_text()
LIMIT_S = 120.0


def fenced(language, directory):
    """The first block of a language in that section, its places in another directory."""
    text = re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL).group(1)
    assert "/tmp/pp4" in text
    return text.replace("/tmp/pp4", f"{directory}/pp4")


def command(line):
    """A line of the shell as words; the interpreter and pp4 are those of this run."""
    program, *rest = shlex.split(line.removesuffix("&"))
    return [sys.executable, *({"python": [], "pp4": ["-m", "pp4"]}[program]), *rest]


@pytest.fixture
def served(tmp_path):
    """The directory of the README's worker, below one that everybody may write, as /tmp is."""
    tmp_path.chmod(0o1777)
    make, serve = fenced("sh", tmp_path).strip().splitlines()
    subprocess.run(command(make), cwd=ROOT, check=True, timeout=LIMIT_S)
    state = {"PP4_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen(command(serve), cwd=ROOT, env=os.environ | state)
    try:
        socket, deadline = tmp_path / "pp4" / "socket", Deadline.after(SystemClock(), LIMIT_S)
        while state_of(socket) != "serving":
            assert worker.poll() is None
            deadline.require("a worker that serves")
            time.sleep(0.05)
        yield tmp_path
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT_S) == 0
    finally:
        worker.kill()
        worker.wait(LIMIT_S)


def state_of(socket):
    try:
        return ask_status(socket).state
    except Pp4Error:
        return None


def staged(place):
    """The runner of docs/prepare.md, staged, decodes with that worker."""
    shell = Shell(place, ("launch",))
    prepared = "pp4 prepare launch/manifests/runner.toml --out staged"
    assert shell.run(prepared).exit == 0
    ((line, _),) = [one for one in steps(PREPARE) if "--socket" in one[0]]
    (line,) = [one for one in line.splitlines() if "--socket" in one]
    # the page is about a checkout, and this is a directory that has a part of one
    run = line.replace("$PWD", str(ROOT)).replace("/tmp/pp4", f"{place}/pp4")
    done = shell.run(run, PYTHON=sys.executable)
    assert done.exit == 0, done.said
    assert len(re.findall(r"^step:( \d+)+$", done.out, re.MULTILINE)) == 3


def test_the_worker_serves_and_the_client_of_the_readme_drafts_a_block(served):
    ((lines, shown),) = [one for one in steps(SECTION) if "worker status" in one[0]]
    argv = command(lines.replace("/tmp/pp4", f"{served}/pp4"))
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert differs(shown, done.stdout + done.stderr) == ""
    staged(served)
    script = fenced("python", served)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    mode, *tokens = re.findall(r"\w+", done.stdout)
    assert mode == "greedy"
    assert len(tokens) == 4
    assert all(0 <= int(token) < 4096 for token in tokens)
    # which tokens is the torch's and the machine's business
    alike = [re.sub(r"\s+", " ", re.sub(r"\d+", "0", one)) for one in (done.stdout, SHOWN)]
    assert alike[0] == alike[1]
