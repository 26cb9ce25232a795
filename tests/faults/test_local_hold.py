"""Coordinators that race, and coordinators that are killed: one holder, and no GPU given out twice.

Every holder here is a process of its own, and every kill is the kernel's.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pp4.clock import SystemClock
from pp4.errors import Code, RefusedError
from pp4.hold import sweep
from pp4.hold.clearing import clear as end_quarantine
from tests.unit.hold.holds import (
    GPUS,
    ROOT,
    fence_on_disk,
    files,
    forked,
    held,
    private,
    tombstone,
    write_modules,
)
from tests.unit.processes import halt, running, within

A, B = GPUS

# Obeys one word a line: opens a HOLD and says so, starts a module, closes, or says why it may not.
COORDINATOR = """
import json, os, signal, sys
sys.path[:0] = [{root!r}]
from contextlib import ExitStack
from pathlib import Path
from pp4.errors import Pp4Error
from pp4.hold import local_hold
from tests.unit.hold.holds import held, private, started
root, modules = Path(sys.argv[1]), Path(sys.argv[2])
{before}
def answer(**facts):
    print(json.dumps(facts), flush=True)
answer(ready=True)
for line in sys.stdin:
    word, *more = line.split()
    try:
        if word == "open":
            stack = ExitStack()
            hold = stack.enter_context(held(root, more))
            answer(hold=hold.hold_id, fence=hold.fence)
        elif word == "start":
            channel, said = started(hold, more[0], modules, more[-1])
            answer(pid=channel.pid, said=said)
        elif word == "close":
            stack.close()
            answer(closed=True)
    except Pp4Error as error:
        answer(**error.refusal.as_dict())
"""


class Coordinator:
    """A process that opens HOLDs when it is told to."""

    def __init__(self, root, modules, before=""):
        script = COORDINATOR.format(root=str(ROOT), before=before)
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(root), str(modules)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.read()

    def send(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def read(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def end(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()


@pytest.fixture
def coordinators(tmp_path):
    """Starts coordinators, and ends whatever they leave."""
    modules = write_modules(tmp_path / "modules")
    made = []

    def make(before="", root=tmp_path):
        made.append(Coordinator(root, modules, before))
        return made[-1]

    yield make
    for one in made:
        one.end()
    mark = os.fsencode(modules)
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found = mark in (entry / "environ").read_bytes()
        except OSError:
            continue
        if found and int(entry.name) != os.getpid():
            os.kill(int(entry.name), signal.SIGKILL)


@pytest.fixture
def quick(monkeypatch):
    """A sweep that does not wait for what will not end."""
    monkeypatch.setattr(sweep, "_SETTLE_S", 0.3)


def refused(root, gpus=GPUS, **more):
    """Open a HOLD that must not open; -> the refusal."""
    with pytest.raises(RefusedError) as caught, held(root, gpus, **more):
        pytest.fail("opened")
    return caught.value.refusal


def snapshot(root):
    """Everything below the state directory, with its bytes."""
    state = root / "state"
    return {path: path.read_bytes() for path in sorted(state.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    "wanted", [((A, B), (A, B)), ((A, B), (B, A)), ((A,), (A, B)), ((B, A), (B,))]
)
def test_of_two_that_race_exactly_one_wins(tmp_path, coordinators, wanted):
    racers = [coordinators(), coordinators()]
    for turn in range(1, 9):
        for racer, gpus in zip(racers, wanted, strict=True):
            racer.send("open", *gpus)
        said = [racer.read() for racer in racers]
        (winner,) = (index for index, one in enumerate(said) if "hold" in one)
        loser = said[1 - winner]
        won = said[winner]
        assert loser["code"] == "HELD_BY"
        assert loser["found"].startswith(f"HOLD {won['hold']}, fence {turn}, since ")
        assert f"pid {racers[winner].process.pid} " in loser["found"]
        assert won["fence"] == turn
        # the loser stored nothing: no HOLD, and no fence above the winner's
        exclusion = private(tmp_path)
        assert len(list(exclusion.holds.iterdir())) == turn
        assert {fence_on_disk(exclusion, gpu) for gpu in wanted[winner]} == {turn}
        assert racers[winner].ask("close") == {"closed": True}


def test_a_refused_one_changes_no_byte(tmp_path, coordinators):
    coordinators().ask("open", *GPUS)
    before = snapshot(tmp_path)
    assert refused(tmp_path).code is Code.HELD_BY
    assert refused(tmp_path, [B]).code is Code.HELD_BY
    assert snapshot(tmp_path) == before


def test_a_stopped_holder_holds_on(tmp_path, coordinators):
    holder = coordinators()
    holder.ask("open", *GPUS)
    halt(holder.process.pid)
    assert refused(tmp_path).code is Code.HELD_BY
    holder.process.send_signal(signal.SIGCONT)
    assert holder.ask("close") == {"closed": True}


def test_the_hold_of_a_killed_coordinator_is_buried_by_the_next(tmp_path, coordinators):
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    child = holder.ask("start", "waits")["pid"]
    journal = files(tmp_path, dead["hold"]) / "journal.jsonl"
    lines = journal.read_bytes()
    holder.kill()
    assert tombstone(tmp_path, dead["hold"]) is None
    with held(tmp_path) as hold:
        assert hold.fence == 2
        assert not running(child)
        found = tombstone(tmp_path, dead["hold"])
        assert (found["why"], found["fence"], found["survivors"]) == ("abandoned", "1", [])
        assert found["closed_by"] == os.getpid()
        assert found["journal_head"] != "0" * 64
    assert journal.read_bytes() == lines
    assert tombstone(tmp_path, dead["hold"]) == found


def test_a_torn_last_line_of_the_journal_is_dropped(tmp_path, coordinators):
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    holder.ask("start", "waits")
    holder.kill()
    for name in ("journal.jsonl", "procs.jsonl"):
        path = files(tmp_path, dead["hold"]) / name
        path.write_bytes(path.read_bytes() + b'{"sequence":1,"st')
    with held(tmp_path):
        found = tombstone(tmp_path, dead["hold"])
    assert (found["why"], len(found["journal_head"])) == ("abandoned", 64)


def test_books_that_were_changed_prove_nothing(tmp_path, coordinators, quick):
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    holder.ask("start", "waits")
    holder.kill()
    path = files(tmp_path, dead["hold"]) / "procs.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pid":', b'"pid":1'))
    path.write_bytes(path.read_bytes() + b'{"sequence":7}\n')
    refusal = refused(tmp_path)
    assert refusal.code is Code.QUARANTINED
    assert str(path) in refusal.found


def test_a_stopped_survivor_keeps_its_gpus_back(tmp_path, coordinators, quick):
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    child = holder.ask("start", "waits")["pid"]
    halt(child)
    holder.kill()
    for gpus in (GPUS, [B], [A]):
        refusal = refused(tmp_path, gpus)
        assert refusal.code is Code.QUARANTINED
        assert f"pid {child}" in refusal.found
        assert dead["hold"] in refusal.found
    assert running(child)
    assert tombstone(tmp_path, dead["hold"]) is None
    assert fence_on_disk(private(tmp_path), A) == 1
    closing = json.loads((files(tmp_path, dead["hold"]) / "closing.json").read_text())
    assert closing["survivors"] == [f"waits (pid {child}, start {_token(child)})"]

    # an operator's word does not make it dead, and neither does taking the files away
    with pytest.raises(RefusedError, match=f"pid {child}"):
        clear(tmp_path)
    for gpu in GPUS:
        private(tmp_path).quarantine_path(gpu).unlink()
    assert refused(tmp_path).code is Code.QUARANTINED
    os.kill(child, signal.SIGKILL)
    assert within(lambda: not running(child))
    assert refused(tmp_path).code is Code.QUARANTINED
    clear(tmp_path)
    with held(tmp_path) as hold:
        assert hold.fence == 2
    assert tombstone(tmp_path, dead["hold"])["why"] == "abandoned"


def _token(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def clear(root):
    """What the refusal asks an operator to do, for both GPUs."""
    for gpu in GPUS:
        assert refused(root, [gpu]).next == f"pp4 hold clear --operator NAME --why TEXT {gpu}"
        end_quarantine(private(root), gpu, "somebody", "looked for it", SystemClock())


def test_a_survivor_of_the_machine_before_it_restarted_is_none(tmp_path, coordinators, quick):
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    child = holder.ask("start", "waits")["pid"]
    halt(child)
    holder.kill()
    assert refused(tmp_path).code is Code.QUARANTINED
    with held(tmp_path, exclusion=private(tmp_path, "another boot")) as hold:
        assert hold.fence == 2
        assert hold.boot_id == "another boot"
    found = tombstone(tmp_path, dead["hold"])
    assert (found["why"], found["boot_id"]) == ("host_reboot", "another boot")
    assert not any(private(tmp_path).quarantine_path(gpu).exists() for gpu in GPUS)


def test_a_child_that_never_got_into_the_books_is_found(tmp_path, coordinators, quick):
    """Killed between the start of a process and its registration."""
    holder = coordinators(
        "def enter(*_): os.kill(os.getpid(), signal.SIGKILL)\nlocal_hold.LocalHold._enter = enter"
    )
    dead = holder.ask("open", *GPUS)
    assert holder.ask("start", "silent") is None
    assert (files(tmp_path, dead["hold"]) / "procs.jsonl").read_bytes() == b""
    refusal = refused(tmp_path)
    assert refusal.code is Code.QUARANTINED
    assert "unregistered (pid " in refusal.found


def test_a_grandchild_that_left_its_group_is_found(tmp_path, coordinators, quick):
    holder = coordinators()
    holder.ask("open", *GPUS)
    survivor = int(holder.ask("start", "escapes")["said"])
    holder.kill()
    refusal = refused(tmp_path)
    assert refusal.code is Code.QUARANTINED
    assert f"pid {survivor}," in refusal.found


def test_another_namespace_of_processes_proves_nothing(tmp_path, coordinators, quick):
    """There a pid is absent, or somebody else's: neither says that the process is dead."""
    holder = coordinators()
    dead = holder.ask("open", *GPUS)
    holder.kill()
    path = files(tmp_path, dead["hold"]) / "registration.json"
    tree = json.loads(path.read_text())
    tree["coordinator"]["pid_namespace"] = "pid:[1]"
    path.write_text(json.dumps(tree))
    refusal = refused(tmp_path)
    assert refusal.code is Code.QUARANTINED
    assert "another pid namespace" in refusal.found
    # here an operator's word is all that there can be
    clear(tmp_path)
    with held(tmp_path) as hold:
        assert hold.fence == 2
    assert tombstone(tmp_path, dead["hold"])["why"] == "abandoned"


def test_a_coordinator_killed_in_its_end_leaves_no_word_for_an_operator(
    tmp_path, coordinators, quick
):
    holder = coordinators(
        "def end(*_): os.kill(os.getpid(), signal.SIGKILL)\nlocal_hold.LocalHold._end_rest = end"
    )
    dead = holder.ask("open", *GPUS)
    assert holder.ask("close") is None
    path = files(tmp_path, dead["hold"]) / "registration.json"
    assert json.loads((path.parent / "closing.json").read_text())["survivors"] == []
    tree = json.loads(path.read_text())
    tree["coordinator"]["pid_namespace"] = "pid:[1]"
    path.write_text(json.dumps(tree))
    assert refused(tmp_path).code is Code.QUARANTINED


def killed_at(root, point):
    """Hold in a process that is killed at its n-th flush; -> whether it got that far."""

    def action():
        real, calls = os.fsync, []

        def fsync(descriptor):
            calls.append(descriptor)
            if len(calls) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            real(descriptor)

        os.fsync = fsync
        with held(root) as hold:
            hold.journal.add("step", "note")
            return hold.fence

    return forked(action) == -signal.SIGKILL


def test_a_kill_at_any_durable_step_leaves_the_gpus_to_the_next(tmp_path):
    highest, point = 0, 1
    while killed_at(tmp_path, point):
        with held(tmp_path) as hold:
            assert hold.fence > highest
            highest = hold.fence
        point += 1
    assert point > 15
    exclusion = private(tmp_path)
    registered = [p.parent for p in exclusion.holds.glob("*/registration.json")]
    assert all((directory / "closed.json").exists() for directory in registered)
    fences = sorted(
        int(json.loads((directory / "registration.json").read_text())["fence"])
        for directory in registered
    )
    # no fence was ever granted twice
    assert len(set(fences)) == len(fences)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=20m,mode=700", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(argv, capture_output=True).returncode:
        pytest.skip("may not mount a file system here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(path):
    """Leave no free page on a file system."""
    with path.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_a_disk_that_fills_up_ends_what_runs_and_leaves_the_locks(
    tmp_path, coordinators, small_disk
):
    holder = coordinators(root=small_disk)
    dead = holder.ask("open", *GPUS)
    pids, answer = [holder.ask("start", "waits")["pid"]], {}
    fill(small_disk / "ballast")
    # the books go on to the end of the page that they have
    while "code" not in answer:
        answer = holder.ask("start", "waits", f"w{len(pids)}")
        pids.append(answer.get("pid"))
    assert answer["code"] == "UNWRITABLE"
    assert len(pids) > 1
    assert all(map(running, pids[:-1]))
    said = holder.ask("close")
    assert said["code"] == "UNWRITABLE"
    assert said["left"].startswith(f"no process of HOLD {dead['hold']}; its records in ")
    assert not any(map(running, pids[:-1]))
    assert tombstone(small_disk, dead["hold"]) is None
    # the locks are free, and nothing new starts on a full disk
    with private(small_disk).locked(GPUS):
        pass
    refusal = refused(small_disk)
    assert (refusal.code, refusal.left) == (Code.UNWRITABLE, "nothing")
    holder.end()
    (small_disk / "ballast").unlink()
    with held(small_disk) as hold:
        assert hold.fence == 2
    assert tombstone(small_disk, dead["hold"])["why"] == "abandoned"
