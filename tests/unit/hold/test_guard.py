"""A guard passes on what it is given, answers with the status of its child, and stops when told."""

import contextlib
import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.clock import SystemClock
from pp4.errors import Code, UsageError
from pp4.hold.feed import Feed
from pp4.hold.guard import NOT_STARTED, SURVIVED, Order, parse
from pp4.hold.process_table import read_table
from pp4.transport.local import LocalTransport
from tests.unit.hold.families import FAR_NS, HOLD, ended, finished, gathered, owned
from tests.unit.processes import LONG, printed, within

MIB = 1 << 20


@pytest.fixture
def family(tmp_path):
    with gathered(tmp_path) as made:
        yield made


# -- the command line ------------------------------------------------------------------------------


def test_an_order_is_read():
    order = parse(["feed", "gate-3", "2.5", "77", "--", "python", "--", "-c", ""])
    assert order == Order("feed", "gate-3", 2.5, 77, ("python", "--", "-c", ""))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "HOLD LABEL"),
        (["h"], "HOLD LABEL"),
        (["h", "l", "1"], "HOLD LABEL"),
        (["h", "l", "1", "7", "--"], "HOLD LABEL"),
        (["h", "l", "1", "7", "-", "true"], "HOLD LABEL"),
        (["h", "l", "1", "--", "true"], "HOLD LABEL"),
        (["", "l", "1", "7", "--", "true"], "HOLD LABEL"),
        (["h", "", "1", "7", "--", "true"], "HOLD LABEL"),
        (["h", "l", "1", "7", "--", ""], "HOLD LABEL"),
        (["h", "l", "soon", "7", "--", "true"], "0 to 3600 seconds of grace"),
        (["h", "l", "-1", "7", "--", "true"], "0 to 3600 seconds of grace"),
        (["h", "l", "nan", "7", "--", "true"], "0 to 3600 seconds of grace"),
        (["h", "l", "3601", "7", "--", "true"], "0 to 3600 seconds of grace"),
        (["h", "l", "inf", "7", "--", "true"], "0 to 3600 seconds of grace"),
        (["h", "l", "1", "soon", "--", "true"], "a boot time in nanoseconds"),
        (["h", "l", "1", "-1", "--", "true"], "a boot time in nanoseconds"),
        (["h", "l", "1", "7.5", "--", "true"], "a boot time in nanoseconds"),
        (["h", "l", "1", "1" * 20, "--", "true"], "a boot time in nanoseconds"),
    ],
)
def test_any_other_command_line_is_refused(words, expected):
    with pytest.raises(UsageError) as caught:
        parse(words)
    assert caught.value.refusal.code is Code.USAGE
    assert caught.value.refusal.expected.startswith(expected)


@given(st.lists(st.text(max_size=8), max_size=8))
def test_any_words_are_an_order_or_one_refusal(words):
    try:
        order = parse(words)
    except UsageError:
        return
    assert [order.hold, order.label, "--", *order.argv] == [*words[:2], *words[4:]]


def test_a_wrong_command_line_is_said_in_one_line_and_nothing_starts(family):
    process = family.guard(sys.executable, "-c", "from family import *; born('x')", grace="never")
    status, output, errors = finished(process)
    assert (status, output) == (2, b"")
    assert errors.splitlines() == [
        b"USAGE: guard: expected 0 to 3600 seconds of grace, found 'never'"
    ]
    assert family.all() == ()


def test_without_an_input_nothing_starts(family):
    argv = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-P", "-m", "pp4.hold.guard"]
    process = family.start(*argv, HOLD, "step", "1", "7", "--", "true")
    status, _, errors = finished(process)
    assert status == 2
    assert b"a standard input whose end means stop" in errors


def test_a_program_that_is_not_there(family):
    status, output, errors = finished(family.guard(str(family.directory / "no such program")))
    assert (status, output) == (NOT_STARTED, b"")
    assert errors.startswith(b"UNREADABLE: ")
    assert len(errors.splitlines()) == 1


def test_what_it_loads_is_light():
    heavy = {
        "pydantic",
        "paramiko",
        "typer",
        "rich",
        "torch",
        "asyncio",
        "pp4.wire",
        "pp4.receipts",
    }
    loaded = printed("import sys, pp4.hold.guard\nprint(*sys.modules)")
    assert "pp4.hold.trees" in loaded
    assert heavy & set(loaded) == set()


# -- the end of the child --------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 3, 70, 127, 255])
def test_the_status_is_that_of_the_child(family, status):
    assert ended(family.guard("sh", "-c", f"exit {status}")) == (status, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGHUP])
def test_the_status_names_the_signal_that_ended_the_child(family, number):
    process = family.guard("sh", "-c", f"ulimit -c 0; kill -{int(number)} $$")
    assert ended(process)[0] == 128 + number


def test_a_child_whose_output_is_closed_ends_as_it_would_without_a_guard(family):
    process = family.guard("sh", "-c", "while :; do echo line; done")
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(LONG) == 128 + signal.SIGPIPE


def test_the_status_is_kept_also_where_a_parent_had_children_ignored(family):
    def ignore():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    assert ended(family.guard("sh", "-c", "exit 9", preexec_fn=ignore))[0] == 9


# -- what the child gets ---------------------------------------------------------------------------

SAYS = """
import json
pids = {"me": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "group": os.getpgrp()}
pids["guard's group"] = os.getpgid(os.getppid())
signals = [int(signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)]
signals += list(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
print(json.dumps([pids, signals, descriptors, os.environ.get("PP4_HOLD")]), flush=True)
os.write(2, b"an error\\n")
"""


def test_the_child_leads_a_session_and_has_three_streams_and_the_cookie(family):
    def odd():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD])

    process = family.guarded(SAYS, preexec_fn=odd)
    status, output, errors = ended(process)
    pids, signals, descriptors, cookie = json.loads(output)
    assert (status, errors) == (0, b"an error\n")
    assert pids == {
        "me": pids["me"],
        "parent": process.pid,
        "session": pids["me"],
        "group": pids["me"],
        "guard's group": process.pid,
    }
    assert signals == [signal.SIG_DFL] * 3
    assert descriptors == [0, 1, 2]
    assert cookie == HOLD


def test_arguments_arrive_as_they_are(family):
    words = ["a b", "", "$(id)", "'", "\n", "é", "--"]
    script = "import sys, json; print(json.dumps(sys.argv[1:]))"
    _, output, _ = ended(family.guard(sys.executable, "-c", script, *words))
    assert json.loads(output) == words


# -- input -----------------------------------------------------------------------------------------

# Reads nothing before it is told to by a signal, then everything, a little at a time.
READS_LATE = """
import hashlib
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
born("child")
signal.sigwait([signal.SIGUSR1])
digest, count = hashlib.sha256(), 0
while data := os.read(0, 3001):
    digest.update(data)
    count += len(data)
print(count, digest.hexdigest(), flush=True)
"""


def fill(process, data, enough):
    """Write without waiting until nothing more is taken for a while; -> how much was."""
    os.set_blocking(process.stdin.fileno(), False)
    poll = select.poll()
    poll.register(process.stdin, select.POLLOUT)
    written = 0
    while written < len(data):
        # enough is waited for; after that, silence means that no more is taken
        if not poll.poll(1000 if written >= enough else LONG * 1000):
            break
        written += os.write(process.stdin.fileno(), data[written : written + 65536])
    return written


def test_four_mebibytes_arrive_intact_and_little_of_it_waits_in_between(family):
    data = os.urandom(4 * MIB)
    process = family.guarded(READS_LATE, grace="60")
    child = family.named("child")
    taken = fill(process, data, MIB)
    # one in the guard, and whatever two pipes hold
    assert MIB <= taken < 2 * MIB
    child.signal(signal.SIGUSR1)
    os.set_blocking(process.stdin.fileno(), True)
    process.stdin.write(data[taken:])
    status, output, _ = finished(process)
    assert output.split() == [str(len(data)).encode(), hashlib.sha256(data).hexdigest().encode()]
    assert status == 0


def test_what_was_written_before_the_end_of_input_still_arrives(family):
    data = os.urandom(MIB + 300_000)
    process = family.guarded(READS_LATE, grace="60")
    child = family.named("child")
    taken = fill(process, data, MIB)
    process.stdin.close()
    child.signal(signal.SIGUSR1)
    _, output, _ = ended(process)
    digest = hashlib.sha256(data[:taken]).hexdigest()
    assert output.split() == [str(taken).encode(), digest.encode()]


def test_the_end_of_a_full_input_is_seen_although_nobody_reads(family):
    process = family.guarded("born('child'); wait()")
    family.named("child")
    fill(process, bytes(4 * MIB), MIB)
    process.stdin.close()
    assert ended(process)[0] == 128 + signal.SIGTERM


def test_a_child_that_closes_its_input_does_not_stop_the_guard_from_reading_it(family):
    process = family.guarded("os.close(0); born('child'); wait()")
    child = family.named("child")
    process.stdin.write(bytes(4 * MIB))
    assert child.alive()
    assert finished(process)[0] == 128 + signal.SIGTERM


@pytest.mark.parametrize("kind", ["file", "null"])
def test_an_input_that_has_an_end_is_passed_on_up_to_it(family, kind):
    path = family.directory / "input" if kind == "file" else Path(os.devnull)
    if kind == "file":
        path.write_bytes(b"x" * (MIB + 7))
    with path.open("rb") as file:
        process = family.guard("wc", "-c", stdin=file, grace="60")
    expected = MIB + 7 if kind == "file" else 0
    assert ended(process) == (0, f"{expected}\n".encode(), b"")


def test_a_socket_is_an_input_too(family):
    near, far = socket.socketpair()
    with near:
        with far:
            process = family.guard("cat", stdin=far, grace="60")
        near.sendall(b"abc")
        assert process.stdout.read(3) == b"abc"
    assert ended(process) == (0, b"", b"")


class _Pipe:
    """A pipe in place of standard input, and one to write to."""

    def __init__(self, monkeypatch):
        self.read, self.write = os.pipe()
        self.child, target = os.pipe()
        monkeypatch.setattr("pp4.hold.feed._INPUT", self.read)
        self.feed = Feed(target)
        self.target = target

    def step(self, wait_ms=0):
        poll = select.poll()
        for descriptor, events in self.feed.interest().items():
            poll.register(descriptor, events)
        self.feed.move(dict(poll.poll(wait_ms)))


def test_more_than_a_read_at_the_end_of_input_needs_no_second_wake_up(monkeypatch):
    pipe = _Pipe(monkeypatch)
    # less than a pipe holds, more than is read at once
    for descriptor in (pipe.write, pipe.target):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(pipe.write, bytes(300_000))
    os.close(pipe.write)
    pipe.step()
    assert pipe.feed.ended
    got = b""
    while data := os.read(pipe.child, 1 << 16):
        got += data
    assert len(got) == 300_000
    os.close(pipe.read)
    os.close(pipe.child)


def test_an_input_that_is_not_read_is_not_waited_for_but_for_its_end(monkeypatch):
    pipe = _Pipe(monkeypatch)
    os.set_blocking(pipe.write, False)
    for _ in range(100):
        with contextlib.suppress(BlockingIOError):
            os.write(pipe.write, bytes(1 << 16))
        pipe.step()
    assert pipe.feed.interest()[pipe.read] == 0
    pipe.step(wait_ms=0)
    assert not pipe.feed.ended
    os.close(pipe.write)
    pipe.step()
    assert pipe.feed.ended
    pipe.feed.close()
    os.close(pipe.read)
    os.close(pipe.child)


# -- stopping --------------------------------------------------------------------------------------


def test_the_end_of_input_ends_a_child_that_reads_it(family):
    process = family.guarded("born('child'); os.read(0, 1); born('read'); sys.exit(4)", grace="60")
    family.named("child")
    assert finished(process) == (4, b"", b"")
    assert [one.label for one in family.all()] == ["child", "read"]


ASKED = """
def leave(*_):
    born("asked")
    os._exit(5)
signal.signal(signal.SIGTERM, leave)
born("child")
wait()
"""


def test_a_child_that_does_not_is_asked_after_the_grace(family):
    process = family.guarded(ASKED)
    family.named("child")
    assert finished(process)[0] == 5
    assert [one.label for one in family.all()] == ["child", "asked"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_asks_at_once_also_where_it_was_blocked_or_ignored(family, number):
    def odd():
        signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])

    process = family.guarded(ASKED, grace="100", preexec_fn=odd)
    family.named("child")
    process.send_signal(number)
    # the input stays open; and nobody waits for a grace of 100 s
    assert ended(process, 60)[0] == 5
    assert [one.label for one in family.all()] == ["child", "asked"]


def test_a_signal_cuts_the_grace_after_the_end_of_input_short(family):
    process = family.guarded(ASKED + "\n", grace="100")
    family.named("child")
    process.stdin.close()
    process.send_signal(signal.SIGTERM)
    assert ended(process, 60)[0] == 5


def test_at_its_boot_time_it_stops_although_nobody_asks(family):
    until = SystemClock().boottime_ns() + 3 * 10**9
    process = family.guarded(
        "deaf()\nif detach():\n    born('daemon')\n    wait()\nborn('child')\nwait()", until=until
    )
    family.named("daemon")
    # its input stays open: whoever has the other end hangs
    assert process.wait(60) == 128 + signal.SIGKILL
    assert SystemClock().boottime_ns() >= until
    assert family.alive() == ()


def test_a_boot_time_that_has_passed_stops_it_at_once(family):
    process = family.guarded("born('child'); wait()", until=0)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert family.alive() == ()


def test_a_transport_stops_a_guard_with_what_it_guards(family):
    argv = [sys.executable, "-P", "-m", "pp4.hold.guard", HOLD, "step", "0.2", str(FAR_NS), "--"]
    script = "from family import *\ndeaf()\nif detach():\n    born('daemon')\n    wait()\n"
    script += "born('child')\nwait()"
    channel = LocalTransport().start(
        [*argv, sys.executable, "-c", script],
        environment=family.environment,
        directory=family.directory,
        label="guard",
    )
    family.named("daemon")
    family.named("child")
    assert channel.stop(60.0) == 128 + signal.SIGKILL
    assert family.alive() == ()


# A kernel that does not kill, as with a process that sleeps uninterruptibly.
CANNOT_KILL = """
import os, signal, sys
signal.pidfd_send_signal = os.kill = os.killpg = lambda *arguments: None
from pp4.hold import guard
guard.make_leaf = lambda *arguments: None
sys.exit(guard.main(sys.argv[1:]))
"""


def test_what_survives_is_named_and_the_status_says_so(family):
    process = family.guarded(
        "deaf(); born('child'); wait()", grace="0", label="step\n7", program=("-c", CANNOT_KILL)
    )
    child = family.named("child")
    process.stdin.close()
    assert process.wait(LONG) == SURVIVED
    named = f"survivors: step 7 (pid {child.pid}, start {child.start_token})\n"
    assert process.stderr.readline().decode() == named
    assert family.end() == (child,)


def test_a_reader_sees_the_end_of_output_only_when_nothing_lives(family):
    # the child is gone and the daemon has closed its output: only the guard holds it
    process = family.guarded("""
read, write = os.pipe()
if detach():
    deaf()
    os.close(1)
    os.close(2)
    born("daemon")
    os.close(write)
    wait()
os.close(write)
os.read(read, 1)
""")
    daemon = family.named("daemon")
    guard = owned(process.pid)
    assert process.stdout.read() == b""
    assert not daemon.alive()
    assert process.wait(LONG) == 0
    assert not guard.alive()


def test_orphans_that_end_are_reaped_while_the_child_goes_on(family):
    process = family.guarded(
        """
for _ in range(30):
    if os.fork() == 0:
        if os.fork() == 0:
            born("orphan")
            os._exit(0)
        os._exit(0)
    os.wait()
born("child")
os.read(0, 1)
""",
        grace="60",
    )
    family.named("child")
    assert within(lambda: len([one for one in family.all() if one.label == "orphan"]) == 30)
    orphans = {(one.pid, one.start_token) for one in family.all() if one.label == "orphan"}

    def listed():
        return orphans & {(pid, found.token) for pid, found in read_table().items()}

    assert within(lambda: not listed())
    assert finished(process)[0] == 0
