"""A process is named by pid and start token, whatever it calls itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.hold.processes import (
    COOKIE,
    Owned,
    boot_id,
    hidden,
    marked,
    namespace,
    start_token,
    token_in,
)
from tests.unit.processes import halt

LONG = 60.0
names = st.binary(min_size=0, max_size=15)


def stat(name=b"python", state=b"S", token=b"4711"):
    before = b"4 (" + name + b") " + state + b" 1 4 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
    return before + token + b" 123456 789 18446744073709551615 1 1 0\n"


@given(names)
def test_a_name_may_hold_anything(name):
    assert token_in(stat(name)) == "4711"


@pytest.mark.parametrize("name", [b") S 1 (", b"a) Z 9 9", b")))", b"(((", b"\xff\xfe", b"\n"])
def test_a_name_that_looks_like_fields_is_still_a_name(name):
    assert token_in(stat(name)) == "4711"


@pytest.mark.parametrize("state", [b"Z", b"X", b"x"])
def test_a_process_that_only_waits_to_be_reaped_has_no_token(state):
    assert token_in(stat(state=state)) is None


@pytest.mark.parametrize("state", [b"R", b"S", b"D", b"T", b"t", b"I"])
def test_a_process_in_any_other_state_has_one(state):
    assert token_in(stat(state=state)) == "4711"


@given(st.binary(max_size=120))
def test_text_that_is_no_status_has_no_token_or_some_field(text):
    assert token_in(text) is None or len(text.split()) >= 20


def test_a_status_cut_short_has_no_token():
    whole = stat()
    short = whole[: whole.index(b"4711")]
    assert token_in(short) is None


@pytest.fixture
def child():
    """A process that renames itself to bytes of all kinds and waits."""
    script = r"""
import signal
open("/proc/self/comm", "wb").write(b"a) Z \xff\xfe (\n b")
print("ready", flush=True)
signal.pause()
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_running_process_with_an_odd_name_is_alive_until_it_is_not(child):
    token = start_token(child.pid)
    assert b"\xff" in Path(f"/proc/{child.pid}/stat").read_bytes()
    assert token is not None
    owned = Owned(child.pid, token, "odd")
    assert owned.alive()
    halt(child.pid)
    assert owned.alive()
    os.kill(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + LONG
    while owned.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    # not reaped: the entry is there, and it is a zombie
    assert Path(f"/proc/{child.pid}").exists()
    assert start_token(child.pid) is None
    assert not owned.alive()


def test_another_process_of_the_same_pid_is_not_the_one_that_was_started():
    mine = start_token(os.getpid())
    assert Owned(os.getpid(), mine, "me").alive()
    assert not Owned(os.getpid(), str(int(mine) - 1), "somebody before me").alive()
    assert not Owned(os.getpid(), "gone", "never seen").alive()


def test_there_is_no_token_where_there_is_no_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert start_token(process.pid) is None


def test_the_boot_has_an_id():
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# -- threads, marks, hidden ones ---------------------------------------------------------------

THREADS = """
import ctypes, threading, time, signal
def go_on():
    signal.sigwait([signal.SIGUSR1])
thread = threading.Thread(target=go_on)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
thread.start()
print("ready", flush=True)
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a system call")
def test_a_process_whose_first_thread_has_ended_is_alive_while_another_goes_on():
    with subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        status = Path(f"/proc/{process.pid}/stat")
        deadline = time.monotonic() + LONG
        while status.read_bytes().rpartition(b")")[2].split()[0] != b"Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert token_in(status.read_bytes()) is None
        token = start_token(process.pid)
        assert token == status.read_text().rpartition(")")[2].split()[19]
        owned = Owned(process.pid, token, "threads")
        assert owned.alive()
        owned.signal(signal.SIGKILL)
        while owned.alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_mark_is_found_whole_and_in_no_part(tmp_path):
    script = "import os; print(1, flush=True); os.read(0, 1)"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env={"A": "x", COOKIE: "deadbeef", "B": f"{COOKIE}=cafe"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"1\n"
        assert marked("deadbeef") == (Owned(process.pid, start_token(process.pid), "unregistered"),)
        for other in ("deadbee", "deadbeef0", "eadbeef", "", "cafe"):
            assert marked(other) == ()
        process.kill()
    assert marked("deadbeef") == ()


def test_a_process_that_shows_itself_or_is_not_there_is_not_hidden():
    assert not hidden(os.getpid())
    assert not hidden(1)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not hidden(process.pid)


def test_this_process_has_a_namespace():
    assert namespace() == os.readlink("/proc/self/ns/pid")
