"""The journal: what add() returned from is on the disk, in a chain, and nothing follows a tear."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, UncleanError
from pp4.hold.journal import Journal
from pp4.receipts.journal import GENESIS, first_break

ROOT = Path(__file__).parents[3]
words = st.from_regex(r"[a-z]{1,8}(/[a-z-]{1,8})?", fullmatch=True)


def read(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    yield journal
    journal.close()


def test_every_line_is_on_disk_when_add_returns(journal, tmp_path):
    for number in range(4):
        journal.add(f"step-{number}", "note", detail={"number": number})
        found = read(tmp_path / "journal.jsonl")
        assert len(found) == number + 1
        assert tuple(found) == journal.lines
    assert first_break(found) is None


@given(steps=st.lists(st.tuples(words, words), max_size=6))
def test_any_steps_make_a_chain(steps, tmp_path_factory):
    path = tmp_path_factory.mktemp("chain") / "j"
    journal = Journal(path)
    assert journal.head == GENESIS
    for step, event in steps:
        journal.add(step, event, found="pass")
    journal.close()
    lines = read(path)
    assert first_break(lines) is None
    assert [(line["step"], line["event"]) for line in lines] == steps
    if len(lines) > 1:
        del lines[-2]
        assert first_break(lines) is not None


def test_each_line_is_flushed_before_the_next_is_written(tmp_path, monkeypatch):
    calls = []
    real = os.fsync

    def fsync(descriptor):
        calls.append(os.fstat(descriptor).st_size)
        real(descriptor)

    journal = Journal(tmp_path / "j")
    monkeypatch.setattr(os, "fsync", fsync)
    for number in range(3):
        journal.add("s", "note")
        assert len(calls) == number + 1
        assert calls[-1] == (tmp_path / "j").stat().st_size
    journal.close()


def test_the_name_of_the_file_is_made_durable_with_it(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_ino))
    Journal(tmp_path / "j").close()
    assert flushed == [tmp_path.stat().st_ino]


@pytest.mark.parametrize("name", ["there", "none/j", "file/j"])
def test_a_place_that_takes_no_file_is_unclean(tmp_path, name):
    (tmp_path / "there").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UncleanError) as caught:
        Journal(tmp_path / name)
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert caught.value.refusal.where == str(tmp_path / name)
    assert (tmp_path / "there").read_text() == "mine"


# Runs until the disk is full in the eyes of the kernel, then says what it believes to be durable.
FULL = """
import json, resource, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pp4.errors import UncleanError
from pp4.hold.journal import Journal
journal = Journal(Path({path!r}))
{limit}
codes = []
for number in range(100):
    try:
        journal.add("step", "note", detail={{"text": "x" * 100}})
    except UncleanError as error:
        codes.append(str(error.refusal.code))
{relief}
try:
    journal.add("late", "note")
except UncleanError as error:
    codes.append("late " + str(error.refusal.code) + " " + error.refusal.left)
print(json.dumps([len(journal.lines), codes]))
"""


def run_full(path, limit="", relief=""):
    script = FULL.format(root=str(ROOT), path=str(path), limit=limit, relief=relief)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_full(path, durable, codes):
    """Every line that was called durable is whole on the disk; every later one was refused."""
    assert 0 < durable < 100
    assert codes[:-1] == ["UNWRITABLE"] * (100 - durable)
    assert codes[-1] == f"late UNWRITABLE {durable} lines"
    whole = path.read_bytes().split(b"\n")
    assert first_break([json.loads(line) for line in whole[:durable]]) is None
    # at most one torn line behind them, and nothing after it
    assert len(whole) == durable + 1


def test_a_file_that_may_not_grow_stops_the_journal_for_good(tmp_path):
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))"
    relief = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)"
    path = tmp_path / "j"
    durable, codes = run_full(path, limit, relief)
    check_full(path, durable, codes)
    # the last write was taken in part: exactly what a careless writer would have called durable
    assert path.stat().st_size == 3000
    assert not path.read_bytes().endswith(b"\n")


def test_a_full_file_system_stops_the_journal_for_good(tmp_path):
    argv = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(argv, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    try:
        path = tmp_path / "j"
        durable, codes = run_full(path)
        check_full(path, durable, codes)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_flush_that_fails_is_not_forgotten(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j")
    journal.add("first", "note")

    def fsync(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UncleanError) as caught:
        journal.add("second", "note")
    assert caught.value.refusal.left == "1 lines"
    monkeypatch.undo()
    # a later flush that works says nothing about the line before
    with pytest.raises(UncleanError):
        journal.add("third", "note")
    assert [line["step"] for line in journal.lines] == ["first"]
    journal.close()


def test_the_limits_used_above_exist_here():
    assert hasattr(resource, "RLIMIT_FSIZE")
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
