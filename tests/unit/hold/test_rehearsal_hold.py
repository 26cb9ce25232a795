"""A rehearsal's HOLD: what it started is dead when it is closed, or it says what is not."""

import json
import os
import signal
from contextlib import ExitStack

import pytest

from pp4.config import SWITCHES
from pp4.errors import Code, RefusedError, UncleanError
from pp4.hold import open as opening
from pp4.hold import rehearsal
from pp4.hold.interruption import undisturbed
from tests.unit.hold.holds import ROOT, opened, started, write_modules
from tests.unit.processes import printed, running, within


@pytest.fixture
def parent(tmp_path):
    directory = tmp_path / "parent"
    directory.mkdir()
    return directory


@pytest.fixture
def modules(tmp_path):
    return write_modules(tmp_path / "modules")


@pytest.fixture
def quick(monkeypatch):
    """Shorter graces: nothing here needs the time, and some wait them out."""
    monkeypatch.setattr(opening, "_GRACE_S", 0.3)


def entered(parent):
    """Open a HOLD; -> it, and what closes it."""
    stack = ExitStack()
    return stack.enter_context(opened(parent)), stack.close


def test_a_hold_has_what_a_receipt_needs(parent):
    with opened(parent) as first, opened(parent) as second:
        assert first.transport == "local"
        assert first.fence == 1
        assert first.hold_id != second.hold_id
        assert first.nonce != second.nonce
        assert first.directory != second.directory
        assert first.directory.parent == parent
        assert (first.directory / "journal.jsonl").is_file()
        assert first.directory.stat().st_mode & 0o077 == 0
    assert list(parent.iterdir()) == []


def test_closing_ends_what_was_started_and_removes_the_directory(parent, modules):
    with opened(parent) as hold:
        channel, _ = started(hold, "waits", modules)
        (owned,) = hold.running()
        assert (owned.pid, owned.label) == (channel.pid, "waits")
    assert not running(channel.pid)
    assert list(parent.iterdir()) == []


def test_every_process_is_in_the_journal(parent, modules):
    with opened(parent) as hold:
        channel, _ = started(hold, "waits", modules)
        hold.own(os.getppid(), "somebody")
        lines = [json.loads(x) for x in (hold.directory / "journal.jsonl").read_text().splitlines()]
        hold._owned.pop()
    noted = [(line["step"], line["event"], line["detail"]) for line in lines]
    assert noted == [
        ("waits", "process", {"pid": channel.pid}),
        ("somebody", "process", {"pid": os.getppid()}),
    ]


def test_a_process_that_ignores_everything_is_ended_too(parent, modules, quick):
    with opened(parent) as hold:
        channel, _ = started(hold, "ignores", modules)
    assert not running(channel.pid)
    assert list(parent.iterdir()) == []


def test_an_error_inside_closes_the_hold_and_is_the_one_that_is_seen(parent, modules):
    pids = []

    def fail():
        with opened(parent) as hold:
            pids.append(started(hold, "waits", modules)[0].pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not running(pids[0])
    assert list(parent.iterdir()) == []


def test_a_stopped_process_is_no_longer_running(parent, modules):
    with opened(parent) as hold:
        channel, _ = started(hold, "waits", modules)
        hold.stop(channel)
        assert hold.running() == ()
        assert not running(channel.pid)


def test_a_registered_process_that_outlives_its_starter_is_unclean(parent, modules, quick):
    """In a session of its own no group reaches it: only the books know of it."""
    hold, close = entered(parent)
    channel, said = started(hold, "escapes", modules)
    survivor = int(said)
    hold.own(survivor, "escaped")
    with pytest.raises(UncleanError) as caught:
        close()
    try:
        refusal = caught.value.refusal
        assert refusal.code is Code.SURVIVOR
        assert refusal.found == f"escaped (pid {survivor})"
        assert running(survivor)
        assert not running(channel.pid)
        # the directory is evidence, and the survivor may still write there
        assert refusal.left.endswith(str(hold.directory))
        assert (hold.directory / "journal.jsonl").is_file()
    finally:
        os.kill(survivor, signal.SIGKILL)
    assert within(lambda: not running(survivor))


def test_a_survivor_is_reported_in_place_of_the_error_that_led_there(parent, modules, quick):
    pids = []

    def fail():
        with opened(parent) as hold:
            pids.append(int(started(hold, "escapes", modules)[1]))
            hold.own(pids[0], "escaped")
            raise ZeroDivisionError

    with pytest.raises(UncleanError) as caught:
        fail()
    os.kill(pids[0], signal.SIGKILL)
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_process_that_dies_a_moment_later_is_not_a_survivor(parent, modules, monkeypatch):
    with opened(parent) as hold:
        _, said = started(hold, "escapes", modules)
        survivor = int(said)
        hold.own(survivor, "escaped")
        real = type(hold).running
        looks = []

        def running_once(self):
            found = real(self)
            looks.append(found)
            os.kill(survivor, signal.SIGKILL)
            return found

        monkeypatch.setattr(type(hold), "running", running_once)
    assert looks[0] != ()
    assert list(parent.iterdir()) == []


def test_a_channel_that_cannot_be_stopped_is_a_survivor(parent, modules, monkeypatch):
    hold, close = entered(parent)
    channel, _ = started(hold, "waits", modules)
    channel.stop(30)
    monkeypatch.setattr(channel, "stop", lambda grace_s: None)
    with pytest.raises(UncleanError) as caught:
        close()
    assert caught.value.refusal.found == f"the group of waits (pid {channel.pid})"


def test_a_label_is_used_once(parent, modules):
    with opened(parent) as hold:
        started(hold, "waits", modules)
        with pytest.raises(RefusedError) as caught:
            started(hold, "waits", modules)
        assert caught.value.refusal.code is Code.EXISTS
        assert len(hold.running()) == 1


@pytest.mark.parametrize("name", ["file", "none/below", "file/below"])
def test_a_parent_that_takes_no_directory_refuses(tmp_path, name):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RefusedError) as caught, opened(tmp_path / name):
        pytest.fail("opened")
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert caught.value.refusal.where == str(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_journal_that_cannot_be_made_leaves_no_directory(parent, monkeypatch):
    def fsync(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UncleanError), opened(parent):
        pytest.fail("opened")
    assert list(parent.iterdir()) == []


def test_a_directory_that_cannot_be_removed_is_said(parent, monkeypatch):
    def rmtree(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(rehearsal.shutil, "rmtree", rmtree)
    with pytest.raises(UncleanError) as caught, opened(parent) as hold:
        pass
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert caught.value.refusal.left == str(hold.directory)


def test_a_child_gets_neither_switch_nor_another_copy_of_pp4(parent, modules, monkeypatch):
    (modules / "tells.py").write_text(
        "import os, pp4\nfrom saying import say\n"
        f"say(repr([pp4.__file__] + [n for n in {SWITCHES!r} if n in os.environ]))\nos.read(0, 1)\n"
    )
    for name in SWITCHES:
        monkeypatch.setenv(name, "1")
    with opened(parent) as hold:
        _, said = started(hold, "tells", modules)
    assert said == repr([str(ROOT / "pp4/__init__.py")])


# -- signals --------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
sys.path[:0] = [{root!r}]
from pathlib import Path
from pp4.console.endings import Stopped, signals
from pp4.hold.open import OpenHold
from tests.unit.hold.holds import opened, started
parent, modules = Path(sys.argv[1]), Path(sys.argv[2])
{body}
"""


def run(parent, modules, body):
    return printed(SCRIPT.format(root=str(ROOT), body=body), parent, modules)


def test_a_signal_inside_closes_the_hold(parent, modules):
    body = """
try:
    with signals(), opened(parent) as hold:
        channel, _ = started(hold, "waits", modules)
        print(channel.pid)
        signal.raise_signal(signal.SIGTERM)
except Stopped as stopped:
    print(stopped.number, stopped.again)
"""
    pid, number, again = run(parent, modules, body)
    assert (int(number), again) == (signal.SIGTERM, "False")
    assert not running(int(pid))
    assert list(parent.iterdir()) == []


def test_a_first_signal_during_the_clean_up_is_obeyed_after_it(parent, modules):
    body = """
real = OpenHold.close
def close(self):
    if not seen:
        seen.append(True)
        signal.raise_signal(signal.SIGINT)
    real(self)
seen = []
OpenHold.close = close
try:
    with signals(), opened(parent) as hold:
        channel, _ = started(hold, "waits", modules)
        print(channel.pid)
except Stopped as stopped:
    print(stopped.number, stopped.again)
"""
    pid, number, again = run(parent, modules, body)
    assert (int(number), again) == (signal.SIGINT, "False")
    assert not running(int(pid))
    assert list(parent.iterdir()) == []


def test_a_second_signal_ends_the_clean_up_at_once(parent, modules):
    body = """
def close(self):
    signal.raise_signal(signal.SIGINT)
    print("went on")
OpenHold.close = close
try:
    with signals(), opened(parent) as hold:
        signal.raise_signal(signal.SIGINT)
except Stopped as stopped:
    print(stopped.again)
"""
    assert run(parent, modules, body) == ["True"]
    assert len(list(parent.iterdir())) == 1


def test_a_signal_while_a_process_starts_waits_until_it_is_in_the_books(parent, modules):
    body = """
from pp4.transport.local import LocalTransport
real = LocalTransport.start
def start(self, *given, **more):
    channel = real(self, *given, **more)
    signal.raise_signal(signal.SIGHUP)
    print(channel.pid)
    return channel
LocalTransport.start = start
try:
    with signals(), opened(parent) as hold:
        try:
            started(hold, "waits", modules)
        finally:
            print([owned.label for owned in hold.running()])
except Stopped as stopped:
    print(stopped.number)
"""
    pid, books, number = run(parent, modules, body)
    assert books == "['waits']"
    assert int(number) == signal.SIGHUP
    assert not running(int(pid))
    assert list(parent.iterdir()) == []


def test_undisturbed_leaves_handlers_as_they_were():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    mine = signal.getsignal(signal.SIGINT)
    try:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
