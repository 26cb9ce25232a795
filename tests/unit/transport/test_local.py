"""Local processes: every wait has an end, and what is stopped is gone with all its group."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, RefusedError, TimedOutError, WrongError
from pp4.transport.local import LocalTransport
from pp4.wire import MAX_FRAME, Event, Reply, Request
from tests.unit.processes import halt

ROOT = Path(__file__).parents[3]
SHORT, LONG = 0.3, 60.0
REQUEST = Request(sequence=1, verb="x")

# Every script says its first frame once it is ready, so that nobody has to sleep.
PREFIX = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from pp4.wire import Decoder, Event, Reply, encode
def say(name):
    os.write(1, encode(Event(sequence=0, name=name)))
def wait():
    while True:
        signal.pause()
"""


def after(seconds):
    return Deadline.after(SystemClock(), seconds)


class Started:
    """Channels that a test started; whatever is left of them goes at its end."""

    def __init__(self, directory):
        self.directory, self.channels = directory, []

    def __call__(self, script, label="child"):
        argv = [sys.executable, "-c", PREFIX.format(root=str(ROOT)) + script]
        channel = LocalTransport().start(
            argv, environment=dict(os.environ), directory=self.directory, label=label
        )
        self.channels.append(channel)
        return channel


@pytest.fixture
def start(tmp_path):
    started = Started(tmp_path)
    yield started
    for channel in started.channels:
        channel.stop(0.2)


def ready(channel, name="ready"):
    assert channel.receive(after(LONG)) == Event(sequence=0, name=name)
    return channel


def gone(pid):
    """Whether a process ends in time."""
    deadline = time.monotonic() + LONG
    while running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def running(pid):
    """Whether the kernel lists a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    except OSError:
        return False


def timed_out(call, *arguments):
    began = time.monotonic()
    with pytest.raises(TimedOutError) as caught:
        call(*arguments)
    # far from the limit of a hang, near enough to show that the deadline ended it
    assert time.monotonic() - began < LONG
    refusal = caught.value.refusal
    assert refusal.code is Code.STEP_TIMEOUT
    return refusal


ECHO = """
decoder = Decoder()
while data := os.read(0, 1 << 16):
    for message in decoder.feed(data):
        os.write(1, encode(Reply(sequence=message.sequence, facts=message.arguments)))
"""


def test_frames_go_there_and_back(start):
    channel = start(ECHO)
    for sequence in range(3):
        big = {"text": "x" * 200_000}
        channel.send(Request(sequence=sequence, verb="echo", arguments=big), after(LONG))
        assert channel.receive(after(LONG)) == Reply(sequence=sequence, facts=big)


def test_a_send_to_a_process_that_does_not_read_ends_at_its_deadline(start):
    channel = ready(start('say("ready"); wait()'))
    big = Request(sequence=1, verb="x", arguments={"text": "x" * (1 << 20)})
    refusal = timed_out(channel.send, big, after(SHORT))
    assert refusal.where == "child: send"
    assert f"process {channel.pid}" in refusal.left


def test_a_silent_process_ends_the_wait_at_its_deadline_and_is_named(start):
    channel = ready(start('sys.stderr.write("one\\nlast words\\n\\n"); say("ready"); wait()'))
    refusal = timed_out(channel.receive, after(SHORT))
    assert refusal.where == "child: reply"
    assert refusal.left == f"process {channel.pid}; last line: last words"


def test_a_stopped_process_ends_the_wait_and_can_still_be_killed(start):
    channel = ready(start('say("ready"); wait()'))
    halt(channel.pid)
    timed_out(channel.receive, after(SHORT))
    assert channel.stop(0.1) == -signal.SIGKILL
    assert gone(channel.pid)


def test_a_process_that_drips_bytes_does_not_outlast_the_deadline(start):
    drip = """
say("ready")
os.write(1, (1 << 20).to_bytes(4, "big"))
while True:
    os.write(1, b" ")
"""
    channel = ready(start(drip))
    timed_out(channel.receive, after(SHORT))


def test_a_process_that_reads_slowly_does_not_outlast_the_deadline(start):
    slow = """
say("ready")
while os.read(0, 1):
    pass
"""
    channel = ready(start(slow))
    big = Request(sequence=1, verb="x", arguments={"text": "x" * (MAX_FRAME - 1000)})
    timed_out(channel.send, big, after(SHORT))


def test_an_expired_deadline_is_over_even_where_a_frame_lies_ready(start):
    channel = start('say("one"); wait()')
    with pytest.raises(TimedOutError):
        channel.receive(after(0))


@pytest.mark.parametrize(
    ("end", "status"),
    [("os._exit(7)", "status 7"), ("os.kill(os.getpid(), 9)", "status -9")],
)
def test_a_process_that_dies_is_reported_with_its_last_line(start, end, status):
    channel = start(f'sys.stderr.write("boom\\n"); sys.stderr.flush(); {end}')
    assert gone(channel.pid)
    with pytest.raises(WrongError) as caught:
        channel.receive(after(LONG))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.RANK_DIED, "child")
    assert status in refusal.found
    assert "last line: boom" in refusal.found
    # dead and not reaped: until it is stopped, its id and its group's are nobody else's
    assert Path(f"/proc/{channel.pid}").exists()
    assert channel.stop(LONG) == int(status.split()[1])


def test_a_send_to_a_dead_process_says_that_it_died(start):
    channel = start("")
    assert gone(channel.pid)
    with pytest.raises(WrongError) as caught:
        channel.send(REQUEST, after(LONG))
    assert caught.value.refusal.code is Code.RANK_DIED
    assert "status 0" in caught.value.refusal.found


@pytest.mark.parametrize(
    "garbage",
    [
        "b'Traceback (most recent call last)'",
        "(4).to_bytes(4, 'big') + b'null'",
        "bytes([255] * 9)",
    ],
)
def test_garbage_is_a_bad_frame_and_stays_one(start, garbage):
    channel = start(
        f"os.write(1, {garbage}); os.read(0, 1); os.write(1, encode(Event(sequence=0, name='x')))"
    )
    first = bad_frame(channel)
    # whatever comes later is not believed either
    channel.send(REQUEST, after(LONG))
    assert bad_frame(channel) == first


def bad_frame(channel):
    with pytest.raises(WrongError) as caught:
        channel.receive(after(LONG))
    assert caught.value.refusal.code is Code.BAD_FRAME
    return caught.value.refusal


def test_the_end_of_a_frame_cut_short_is_a_death(start):
    channel = start("os.write(1, encode(Event(sequence=0, name='half'))[:-3])")
    with pytest.raises(WrongError) as caught:
        channel.receive(after(LONG))
    assert caught.value.refusal.code is Code.RANK_DIED


def test_a_flood_of_standard_error_blocks_nobody(start):
    flood = """
for _ in range(128):
    os.write(2, b"x" * 65535 + b"\\n")
os.write(2, b"the end\\n")
say("flooded")
wait()
"""
    channel = ready(start(flood), "flooded")
    assert channel.last_lines(1) == ("the end",)
    assert [line[:2] for line in channel.last_lines(2)] == ["xx", "th"]


def test_last_lines_are_text_whatever_was_written(start, tmp_path):
    channel = ready(
        start('os.write(2, b"\\xff\\xfe first\\n\\n  \\nsecond"); say("ready"); wait()')
    )
    assert channel.last_lines() == ("�� first", "second")
    (tmp_path / "child.stderr").unlink()
    assert channel.last_lines() == ()


# -- stopping -------------------------------------------------------------------------------


def test_the_end_of_input_is_enough_for_a_process_that_listens(start):
    channel = ready(start('say("ready"); os.read(0, 1); os._exit(3)'))
    assert channel.stop(LONG) == 3


def test_a_process_that_ignores_its_input_gets_a_term(start):
    script = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
say("ready")
while True:
    signal.pause()
"""
    assert ready(start(script)).stop(0.2) == 5


def test_a_process_that_ignores_term_is_killed(start):
    script = 'signal.signal(signal.SIGTERM, signal.SIG_IGN); say("ready"); wait()'
    channel = ready(start(script))
    assert channel.stop(0.1) == -signal.SIGKILL
    assert gone(channel.pid)


CHILD = """
pid = os.fork()
if pid == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1)
    wait()
say(str(pid))
"""


@pytest.mark.parametrize("leader", ["os._exit(0)", "os.read(0, 1)", "wait()"])
def test_a_child_left_in_the_group_goes_with_its_leader(start, leader):
    channel = start(CHILD + leader)
    child = int(channel.receive(after(LONG)).name)
    assert channel.stop(0.2) is not None
    # no waiting here: stop promises it
    assert not running(child)
    assert not running(channel.pid)


def test_a_dead_leader_that_was_already_reported_still_takes_its_group_along(start):
    channel = start(CHILD + "os._exit(4)")
    child = int(channel.receive(after(LONG)).name)
    with pytest.raises(WrongError):
        channel.receive(after(LONG))
    assert channel.stop(1.0) == 4
    assert gone(child)


def test_a_second_stop_signals_nobody(start, monkeypatch):
    channel = ready(start('say("ready"); os.read(0, 1); os._exit(3)'))
    assert channel.stop(LONG) == 3
    sent = []
    monkeypatch.setattr(os, "killpg", lambda *given: sent.append(given))
    assert channel.stop(LONG) == 3
    assert sent == []


def test_a_stopped_channel_refuses_like_a_dead_process(start):
    channel = ready(start('say("ready"); os.read(0, 1)'))
    channel.stop(LONG)
    for call in (lambda: channel.send(REQUEST, after(LONG)), lambda: channel.receive(after(LONG))):
        with pytest.raises(WrongError) as caught:
            call()
        assert caught.value.refusal.code is Code.RANK_DIED


# -- starting -------------------------------------------------------------------------------


def test_a_process_leads_a_group_and_session_of_its_own_and_runs_in_its_directory(start, tmp_path):
    channel = start('say(f"{os.getpgid(0)} {os.getsid(0)} {os.getcwd()}"); wait()')
    said = channel.receive(after(LONG)).name.split(maxsplit=2)
    assert said == [str(channel.pid), str(channel.pid), str(tmp_path)]


def test_the_environment_is_exactly_what_was_given(tmp_path):
    channel = LocalTransport().start(
        ["/usr/bin/env"], environment={"ONLY": "this"}, directory=tmp_path, label="env"
    )
    with pytest.raises(WrongError) as caught:
        channel.receive(after(LONG))
    # what env prints is no frame: its first four bytes are a length out of range
    assert caught.value.refusal.code is Code.BAD_FRAME
    assert caught.value.refusal.found == f"a length of {int.from_bytes(b'ONLY', 'big')}"
    channel.stop(LONG)


def test_a_label_is_used_once(start, tmp_path):
    ready(start('os.write(2, b"mine\\n"); say("ready"); wait()'))
    with pytest.raises(RefusedError) as caught:
        start('say("ready"); wait()')
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.EXISTS, str(tmp_path / "child.stderr"))
    assert (tmp_path / "child.stderr").read_text() == "mine\n"


@pytest.mark.parametrize("program", ["/no/such/program", "a\0b", "/etc/passwd"])
def test_a_program_that_cannot_start_is_named_and_leaves_no_file(tmp_path, program):
    for _ in range(2):  # the label is free again
        with pytest.raises(RefusedError) as caught:
            LocalTransport().start([program], environment={}, directory=tmp_path, label="x")
        refusal = caught.value.refusal
        assert (refusal.code, refusal.where) == (Code.UNREADABLE, program)
        assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RefusedError) as caught:
        LocalTransport().start(
            [sys.executable], environment={}, directory=tmp_path / "none", label="x"
        )
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.UNWRITABLE, str(tmp_path / "none/x.stderr"))
