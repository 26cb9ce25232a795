"""Completion: what a word becomes, in this process, in a real bash, and as scripts of shells."""

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pp4 import cli
from pp4.clock import Deadline, SystemClock
from pp4.errors import Code
from pp4.hold.deferred import CLOSES, Deferred
from pp4.receipts.models import KINDS
from tests.unit.hold.holds import GPUS, private
from tests.unit.hold.written import write_hold

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
LOST, OVER, KEPT = "a" * 16, "b" * 16, "c" * 16


@pytest.fixture
def offered(capsys, monkeypatch):
    """What bash is offered for the last word of a line."""

    def complete(line):
        words = line.split(" ")
        monkeypatch.setenv("_PP4_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        assert cli.main([]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return complete


def test_commands_and_options(offered):
    assert offered("pp4 ho") == ["hold", "host"]
    assert offered("pp4 hold re") == ["recover"]
    assert offered("pp4 worker serve --de") == ["--device", "--depths"]
    assert offered("pp4 fleet plan --mode ") == ["exhaustive", "quick"]


def test_codes_in_the_case_that_is_typed(offered):
    assert offered("pp4 explain NOT_J") == ["NOT_JSON"]
    assert offered("pp4 explain not_j") == ["not_json"]
    assert offered("pp4 explain ") == list(Code)


def test_kinds(offered):
    assert offered("pp4 verify-receipt --kind ") == list(KINDS)
    assert offered("pp4 verify-receipt a.json --kind=re") == ["rehearsal", "refusal"]


def test_a_held_out_file_or_the_word_that_makes_one(offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("made.safetensors").touch()
    Path("made.json").touch()
    assert offered("pp4 replay m") == ["make-heldout", "made.safetensors"]
    assert offered("pp4 replay make-heldout --do") == ["--documents"]


@pytest.mark.parametrize(
    "line",
    [
        *("pp4 verify-receipt ", "pp4 gate ", "pp4 status ", "pp4 fleet report "),
        *("pp4 fleet emit slurm ", "pp4 pair-qualify --solo ", "pp4 pair-qualify --whole-worker "),
        *("pp4 worker serve DIR --qualification ", "pp4 verify-receipt a.json "),
        *("pp4 report ", "pp4 receipts table ", "pp4 receipts tree ", "pp4 receipts export "),
        *("pp4 measure summary ", "pp4 measure summary a.json ", "pp4 measure A1B1 --budget "),
        *("pp4 measure B2A2 --first ", "pp4 measure budget --solo "),
    ],
)
def test_receipts_and_directories_on_the_way_to_them(offered, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    for name in ("a.json", "a.txt", "b/c.json", "b/d.json", ".hidden/e.json"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert offered(line) == ["a.json", "b/"]
    # a shell puts a blank behind the only word, so a directory alone is gone into
    assert offered(f"{line}b") == ["b/c.json", "b/d.json"]
    assert offered(f"{line}b/c") == ["b/c.json"]
    assert offered(f"{line}.h") == [".hidden/e.json"]
    assert offered(f"{line}nothing/") == []


def test_names_that_a_shell_has_to_quote_are_left_to_it(offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a b.json").touch()
    assert offered("pp4 gate ") == []


def test_a_directory_that_holds_itself_ends(offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("round").symlink_to(".")
    assert offered("pp4 gate ") == []


def test_hold_files_and_this_machine(offered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("hold.toml", "hold.json"):
        Path(name).touch()
    measured = ("measure budget", "measure A1B1", "measure B2A2")
    held = ("hold status", "hold close a", "hold recover a")
    for command in ("pair-qualify", "solo-qualify", *measured, *held):
        assert offered(f"pp4 {command} --hold ") == ["local", "hold.toml"]


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with a HOLD that is lost and one that is over; a close of a third is kept here."""
    monkeypatch.setenv("PP4_STATE_DIR", str(tmp_path / "state"))
    exclusion = private(tmp_path)
    write_hold(exclusion, LOST)
    write_hold(exclusion, OVER, fence=2, closed="2026-01-01T01:00:00Z")
    exclusion.quarantine([GPUS[1]], LOST, [])
    Deferred(tmp_path / "state" / CLOSES).store("gpu7", KEPT, 3, "cancelled")
    return tmp_path


def test_holds_that_are_not_closed(offered, host):
    assert offered("pp4 hold close ") == [LOST, KEPT]
    assert offered("pp4 hold recover ") == [LOST, KEPT]
    assert offered("pp4 hold recover a") == [LOST]


def test_gpus_in_quarantine(offered, host):
    assert offered("pp4 hold clear ") == [GPUS[1]]


def test_looking_makes_nothing(offered, tmp_path):
    assert offered("pp4 hold close ") == offered("pp4 hold clear ") == []
    assert list(tmp_path.iterdir()) == []


# -- shells


@pytest.fixture
def environment(tmp_path):
    """Of a shell whose pp4 is the one under test."""
    programs = tmp_path / "programs"
    programs.mkdir()
    pp4 = programs / "pp4"
    pp4.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m pp4 "$@"\n')
    pp4.chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COMP")}
    return {
        **kept,
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PS1": "$ ",
        "TERM": "dumb",
    }


def script_of(shell, environment):
    """The script that a shell reads."""
    done = subprocess.run(
        ["pp4"],
        env=environment | {"_PP4_COMPLETE": f"source_{shell}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class Terminal:
    """An interactive bash, as a person has it."""

    def __init__(self, environment, directory):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-i"],
            **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
            cwd=directory,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.seen = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def until(self, text):
        """Read until a text has come."""
        deadline = Deadline.after(SystemClock(), LIMIT_S)
        while text not in self.seen:
            left = deadline.remaining_s()
            assert left, self.seen
            if select.select([self.master], [], [], left)[0]:
                self.seen += os.read(self.master, 4096).decode()
        self.seen = self.seen.partition(text)[2]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash here")
def test_a_tab_in_bash_completes_what_show_completion_has_set_up(environment, tmp_path):
    (tmp_path / "rehearsal-0a.json").touch()
    terminal = Terminal(environment, tmp_path)
    try:
        # what is printed has the word that ends it in one piece, what is typed has not
        terminal.type('eval "$(pp4 --show-completion)"; echo rea""dy\n')
        terminal.until("ready")
        terminal.type("echo pp4 expl\t")
        terminal.type("\x15pp4 expl\t")
        terminal.until("explain ")
        terminal.type("NOT_CANO\t")
        terminal.until("NICAL ")
        terminal.type("\x15pp4 gate reh\t")
        terminal.until("earsal-0a.json ")
    finally:
        terminal.close()


def test_it_is_installed_for_the_shell_that_asks(environment, tmp_path):
    done = subprocess.run(
        ["bash", "--norc", "-c", "pp4 --install-completion; exit $?"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    installed = tmp_path / ".bash_completions" / "pp4.sh"
    assert f"source '{installed}'" in (tmp_path / ".bashrc").read_text().splitlines()
    assert installed.read_text().strip() == script_of("bash", environment).strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_one(shell, environment, tmp_path):
    script = script_of(shell, environment)
    assert "_PP4_COMPLETE=complete_" + shell in script
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here; its script was made")
    path = tmp_path / f"script.{shell}"
    path.write_text(script)
    subprocess.run([shell, "-n", path], check=True, timeout=LIMIT_S)
