"""One contract for every host: this machine, one behind SSH, and one behind a double."""

import hashlib
import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from pp4.errors import BadInputError, Code, RefusedError, WrongError
from pp4.transport.faulty import FaultyHost, Schedule
from pp4.transport.local_host import LocalHost
from pp4.transport.output import MAX_UNREAD
from tests.ssh.hosts import (
    LONG,
    SHORT,
    after,
    connect,
    everything,
    lost,
    past,
    python,
    read_exactly,
    timed_out,
    within,
)

MIB = 1 << 20
# It says its process id first, so that a test can wait for it and end it.
LIVES = """
import os, signal, sys
os.write(1, b"%d\\n" % os.getpid())
"""


@pytest.fixture(params=["local", "ssh", "faulty"])
def host(request):
    """A host; the programs of a test run on this machine, whatever leads to it."""
    if request.param == "ssh":
        made = connect(request.getfixturevalue("sshd"))
    elif request.param == "faulty":
        made = FaultyHost(LocalHost(), Schedule())
    else:
        made = LocalHost()
    yield made
    made.close()


@pytest.fixture
def lives(host):
    """Start a program that says its process id; it is killed at the end of the test."""
    pids = []

    def start(text):
        stream = host.run(python(LIVES + text), after(LONG))
        said = b""
        while not said.endswith(b"\n"):
            said += read_exactly(stream, 1)
        pids.append(int(said))
        return stream, pids[-1]

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


ARGUMENTS = [
    "",
    " ",
    "two words",
    "'",
    '"',
    'it\'s "both"',
    "$(id)",
    "`id`",
    "$HOME",
    "~",
    "*",
    "a\\b\\\\c",
    "!!",
    "#",
    ";",
    "&&",
    "| cat",
    "> file",
    "new\nline\n",
    "\ttab\r",
    "--",
    "-c",
    "A=1",
    "naïve ☃ 🙂",
    "",
]


def test_arguments_arrive_exactly(host):
    say = "import json, sys; json.dump([sys.argv[1:], sys.orig_argv], sys.stdout)"
    stream = host.run(python(say, *ARGUMENTS), after(LONG))
    assert stream.finish(after(LONG)) == 0
    arguments, words = json.loads(everything(stream))
    assert arguments == ARGUMENTS
    assert words == python(say, *ARGUMENTS)


def test_arguments_that_are_not_utf_8_arrive_as_they_are(host):
    say = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))"
    odd = os.fsdecode(b"\xff\xfe caf\xe9")
    stream = host.run(python(say, odd), after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert everything(stream) == b"\xff\xfe caf\xe9"


def test_the_program_itself_may_have_a_strange_name(host, tmp_path):
    program = tmp_path / "a $(b) 'c'=d"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    stream = host.run([str(program)], after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert everything(stream) == b"mine\n"


def test_a_name_that_a_shell_would_take_for_itself_is_a_program(host):
    # a built-in `printf` of a shell knows no --version
    stream = host.run(["printf", "--version"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert b"coreutils" in everything(stream)


@pytest.mark.parametrize(
    "argv", [[], [""], ["-x"], ["echo", "a\0b"], ["echo", "\ud800"]], ids=ascii
)
def test_an_argv_that_is_none_is_refused(host, argv):
    with pytest.raises(BadInputError) as caught:
        host.run(argv, after(LONG))
    assert caught.value.refusal.where == "argv"


def test_a_program_has_no_terminal_and_leads_its_own_session(host):
    say = "import os; print(os.isatty(0), os.isatty(1), os.isatty(2), os.getsid(0))"
    stream = host.run(python(say), after(LONG))
    assert stream.finish(after(LONG)) == 0
    words = everything(stream).split()
    assert words[:3] == [b"False"] * 3
    assert int(words[3]) != os.getsid(0)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit(255)", 255),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_exit_statuses(host, text, status):
    stream = host.run(python(text), after(LONG))
    assert stream.finish(after(LONG)) == status
    # asked again, it says the same
    assert stream.finish(after(LONG)) == status


def test_a_program_that_is_not_there(host):
    if host.name == "local":
        with pytest.raises(RefusedError) as caught:
            host.run(["/nowhere/to/be/found"], after(LONG))
        assert caught.value.refusal.code is Code.UNREADABLE
        assert caught.value.refusal.where == "/nowhere/to/be/found"
    else:
        stream = host.run(["/nowhere/to/be/found"], after(LONG))
        assert stream.finish(after(LONG)) == 127
        assert "/nowhere/to/be/found" in stream.last_lines()[-1]


def test_what_is_written_comes_back_in_order(host):
    stream = host.run(["cat"], after(LONG))
    for number in range(50):
        line = b"%d\n" % number
        stream.write(line, after(LONG))
        assert read_exactly(stream, len(line)) == line
    stream.write(b"", after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert stream.read(after(LONG)) == b""
    assert stream.read(after(LONG)) == b""


def test_writes_of_two_threads_do_not_mix(host):
    stream = host.run(["cat"], after(LONG))
    size, times = 100_000, 20

    def write(sign):
        for _ in range(times):
            stream.write(sign * size, after(LONG))

    writers = [threading.Thread(target=write, args=(sign,)) for sign in (b"a", b"b")]
    for writer in writers:
        writer.start()
    data = read_exactly(stream, 2 * size * times)
    for writer in writers:
        writer.join(LONG)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert sorted(pieces) == [b"a" * size] * times + [b"b" * size] * times
    assert stream.finish(after(LONG)) == 0


def test_megabytes_pass_through_intact(host):
    data = os.urandom(3 * MIB)
    stream = host.run(["cat"], after(LONG))
    writer = threading.Thread(target=stream.write, args=(data, after(LONG)))
    writer.start()
    assert read_exactly(stream, len(data)) == data
    writer.join(LONG)
    assert not writer.is_alive()
    assert stream.finish(after(LONG)) == 0


def test_output_that_nobody_has_read_is_there_after_the_end(host):
    stream = host.run(["echo", "kept"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert stream.read(after(LONG)) == b"kept\n"


def test_a_program_that_has_ended_takes_no_more_input(host):
    stream = host.run(["true"], after(LONG))
    assert everything(stream) == b""

    def refused():
        try:
            stream.write(b"x", after(LONG))
        except WrongError as error:
            return error.refusal.code is Code.CONNECTION_LOST
        return False

    # its output ends a moment before the rest of it
    assert within(refused)
    assert stream.finish(after(LONG)) == 0


def test_both_outputs_at_once_do_not_stop_each_other(host):
    # in turns, and all of one before the other: whoever drains one first is stuck in the other
    text = """
import os
for _ in range(128):
    os.write(1, b"o" * 65536)
    os.write(2, b"e" * 65535 + b"\\n")
os.write(2, b"x" * (8 << 20) + b"\\nlast words\\n\\n")
"""
    stream = host.run(python(text), after(LONG))
    assert stream.finish(after(LONG)) == 0
    data = everything(stream)
    assert len(data) == 8 * MIB
    assert data == b"o" * (8 * MIB)
    assert stream.last_lines(1) == ("last words",)


def test_standard_error_is_kept_as_its_end_its_length_and_its_digest(host):
    text = "import os\nfor n in range(200000): os.write(2, b'line %d\\n' % n)"
    stream = host.run(python(text), after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert stream.last_lines(3) == ("line 199997", "line 199998", "line 199999")
    assert stream.last_lines(0) == ()
    inner = stream if not isinstance(host, FaultyHost) else stream._inner
    whole = b"".join(b"line %d\n" % number for number in range(200000))
    assert inner.errors.count == len(whole)
    assert inner.errors.sha256 == hashlib.sha256(whole).hexdigest()


def test_a_program_that_outruns_its_reader_has_to_wait(host, tmp_path):
    progress = tmp_path / "progress"
    total = 2 * MAX_UNREAD
    text = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for number in range(int(sys.argv[2]) >> 16):
    os.write(1, b"o" * 65536)
    os.pwrite(file, b"%020d" % ((number + 1) << 16), 0)
"""
    stream = host.run(python(text, str(progress), str(total)), after(LONG))

    def written():
        return int(progress.read_text() or 0) if progress.exists() else 0

    assert within(lambda: written() >= MAX_UNREAD)
    # what lies on the way may fill as well, but not with everything
    assert written() < total
    assert len(everything(stream)) == total
    assert written() == total


def test_output_that_nobody_reads_does_not_hold_the_input(host, tmp_path):
    took = tmp_path / "took"
    text = """
import os, sys
reader = os.fork()
if reader == 0:
    os.close(1)
    line = sys.stdin.readline()
    open(sys.argv[1] + ".new", "w").write(line)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    os._exit(0)
for _ in range(int(sys.argv[2]) >> 16):
    os.write(1, b"o" * 65536)
os.waitpid(reader, 0)
"""
    stream = host.run(python(text, str(took), str(2 * MAX_UNREAD)), after(LONG))
    inner = stream if not isinstance(host, FaultyHost) else stream._inner
    assert within(lambda: not inner._output.room())
    stream.write(b"through\n", after(LONG))
    assert within(took.exists)
    assert took.read_text() == "through\n"
    assert len(everything(stream)) == 2 * MAX_UNREAD


def test_finish_drops_what_is_over_the_cap_and_a_later_read_says_so(host):
    text = f"import os\nfor _ in range({2 * MAX_UNREAD >> 16}): os.write(1, b'o' * 65536)"
    stream = host.run(python(text), after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert MAX_UNREAD <= len(stream.read(after(LONG))) < 2 * MAX_UNREAD
    with pytest.raises(WrongError) as caught:
        stream.read(after(LONG))
    assert caught.value.refusal.code is Code.TOO_LARGE


def test_a_silent_program_ends_the_read_at_its_deadline_and_goes_on(host):
    stream = host.run(["cat"], after(LONG))
    refusal = timed_out(stream.read, after(SHORT))
    assert "cat" in refusal.where
    stream.write(b"still here", after(LONG))
    assert read_exactly(stream, 10) == b"still here"


def test_a_program_that_never_reads_ends_the_write_at_its_deadline(host, lives):
    stream, _ = lives("signal.pause()")
    timed_out(stream.write, b"x" * (32 * MIB), after(SHORT))
    # half of a message may be on its way: nothing can follow it
    assert "cut by its deadline" in lost(stream.write, b"y", after(LONG)).found


def test_a_program_that_closes_its_output_and_lives_on(host, lives):
    stream, pid = lives("os.close(1); os.close(2); signal.pause()")
    assert stream.read(after(LONG)) == b""
    timed_out(stream.finish, after(SHORT))
    os.kill(pid, 0)
    # it was let go
    lost(stream.read, after(LONG))


def test_a_program_that_ignores_the_end_of_its_input_ends_the_finish(host, lives):
    stream, pid = lives("signal.pause()")
    timed_out(stream.finish, after(SHORT))
    os.kill(pid, 0)


def test_a_deadline_in_the_past_does_nothing(host, tmp_path):
    timed_out(host.run, ["touch", str(tmp_path / "ran")], past())
    timed_out(host.put, b"x", str(tmp_path / "put"), past())
    stream = host.run(["cat"], after(LONG))
    timed_out(stream.write, b"lost", past())
    timed_out(stream.read, past())
    # nothing of it was sent, so that the stream is still good
    stream.write(b"whole", after(LONG))
    assert read_exactly(stream, 5) == b"whole"
    assert list(tmp_path.glob("ran*")) == list(tmp_path.glob("put*")) == []


def test_a_read_does_not_outlast_its_deadline_though_there_is_something(host):
    stream = host.run(["echo", "x"], after(LONG))
    assert stream.finish(after(LONG)) == 0
    timed_out(stream.read, past())
    assert stream.read(after(LONG)) == b"x\n"


def test_after_close_everything_refuses_at_once(host, tmp_path):
    stream = host.run(["cat"], after(LONG))
    stream.close()
    stream.close()
    for call in (lambda: stream.write(b"x", after(LONG)), lambda: stream.read(after(LONG))):
        lost(call)
    lost(stream.finish, after(LONG))
    assert stream.last_lines() == ()
    other = host.run(["cat"], after(LONG))
    host.close()
    host.close()
    lost(other.read, after(LONG))
    lost(host.run, ["cat"], after(LONG))
    lost(host.put, b"x", str(tmp_path / "x"), after(LONG))
    assert not list(tmp_path.glob("x*"))


def test_close_wakes_whoever_reads(host):
    stream = host.run(["cat"], after(LONG))
    found = []

    def read():
        try:
            stream.read(after(LONG))
        except WrongError as error:
            found.append(error.refusal.code)

    reader = threading.Thread(target=read)
    reader.start()
    stream.close()
    reader.join(LONG / 4)
    assert found == [Code.CONNECTION_LOST]


def test_a_program_that_is_let_go_sees_the_end_of_its_input(host, lives):
    stream, pid = lives("sys.stdin.read()")
    stream.close()
    assert within(lambda: not Path(f"/proc/{pid}").exists())


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("size", [0, 1, 1 << 15, (1 << 15) + 1, 3 * MIB])
def test_put_makes_a_file_with_these_bytes(host, tmp_path, size):
    data = os.urandom(size)
    path = tmp_path / "a file"
    host.put(data, str(path), after(LONG))
    assert path.read_bytes() == data
    assert mode_of(path) == 0o600
    assert not Path(f"{path}.part").exists()


def test_put_replaces_a_file_and_leaves_it_whole_for_who_has_it_open(host, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as old:
        host.put(b"new and longer", str(path), after(LONG))
        assert old.read() == b"old"
    assert path.read_bytes() == b"new and longer"
    assert mode_of(path) == 0o600


PART = os.urandom(200_000)


@pytest.mark.parametrize(
    "part",
    [
        b"",
        PART[:1],
        PART[:100_000],
        PART,
        PART + b"more",
        PART[:70_000] + b"!" + PART[70_001:],
        b"!" + PART[1:],
        b"something else",
    ],
    ids=["empty", "one", "half", "whole", "longer", "differs", "differs at once", "other"],
)
def test_put_goes_on_from_any_part_and_ends_with_the_data(host, tmp_path, part):
    path, left = tmp_path / "file", tmp_path / "file.part"
    left.write_bytes(part)
    left.chmod(0o666)
    host.put(PART, str(path), after(LONG))
    assert path.read_bytes() == PART
    assert mode_of(path) == 0o600
    assert not left.exists()


def unwritable(host, path):
    with pytest.raises(RefusedError) as caught:
        host.put(b"x" * 100_000, str(path), after(LONG))
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert str(path) in caught.value.refusal.where


def test_put_refuses_what_cannot_be_written(host, tmp_path):
    directory, link, pipe = tmp_path / "directory", tmp_path / "link", tmp_path / "pipe"
    directory.mkdir()
    unwritable(host, tmp_path / "missing" / "file")
    unwritable(host, directory)
    target = tmp_path / "target"
    target.write_bytes(b"not ours")
    Path(f"{link}.part").symlink_to(target)
    unwritable(host, link)
    assert target.read_bytes() == b"not ours"
    os.mkfifo(f"{pipe}.part")
    unwritable(host, pipe)
    # what was refused leaves the host as good as it was
    host.put(b"fine", str(tmp_path / "fine"), after(LONG))
    assert (tmp_path / "fine").read_bytes() == b"fine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory closed to root")
def test_put_refuses_a_directory_that_nobody_may_write(host):
    unwritable(host, Path("/proc/pp4-file"))


@pytest.mark.parametrize("path", ["", "directory/", "a\0b", "\ud800"], ids=ascii)
def test_put_refuses_what_is_no_path_of_a_file(host, path):
    with pytest.raises(BadInputError):
        host.put(b"x", path, after(LONG))
