"""What only this machine as a host can show; what every host does is in ``tests/ssh``."""

import gc
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.transport.local_host import LocalHost
from tests.ssh.hosts import (
    LONG,
    SHORT,
    after,
    everything,
    lost,
    python,
    read_exactly,
    timed_out,
    within,
)
from tests.unit.processes import halt


@pytest.fixture
def host():
    made = LocalHost()
    yield made
    made.close()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("local:")]


def zombies():
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state == b"Z" and int(parent) == os.getpid():
            found.append(stat)
    return found


def test_it_has_no_key(host):
    assert (host.name, host.address, host.fingerprint) == ("local", "local", None)


def test_a_program_has_the_environment_of_this_process(host, monkeypatch):
    monkeypatch.setenv("PP4_OF_A_TEST", "seen")
    stream = host.run(python("import os; print(os.environ['PP4_OF_A_TEST'])"), after(LONG))
    assert stream.finish(after(LONG)) == 0
    assert everything(stream) == b"seen\n"


def test_a_signal_for_our_group_does_not_reach_a_program(host):
    stream = host.run(
        python("import os; print(os.getpgid(0), os.getsid(0), os.getpid())"), after(LONG)
    )
    assert stream.finish(after(LONG)) == 0
    group, session, pid = everything(stream).split()
    assert group == session == pid
    assert int(group) != os.getpgid(0)


@pytest.mark.parametrize("content", [None, b"", b"#!/nowhere/interpreter\n"])
def test_a_program_that_cannot_be_started_is_refused(host, tmp_path, content):
    program = tmp_path / "program"
    if content is not None:
        program.write_bytes(content)
        program.chmod(0o755)
        if content == b"":
            program.chmod(0o644)
    before = descriptors()
    with pytest.raises(RefusedError) as caught:
        host.run([str(program)], after(LONG))
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.where == str(program)
    assert descriptors() == before


def test_nothing_is_left_of_programs_that_ended(host):
    before = descriptors()
    for _ in range(20):
        stream = host.run(["echo", "x"], after(LONG))
        assert stream.finish(after(LONG)) == 0
    assert within(lambda: not threads())
    assert within(lambda: not zombies())
    assert descriptors() == before
    assert not host._streams


def test_nothing_is_left_of_a_program_that_was_let_go(host):
    before = descriptors()
    stream = host.run(["cat"], after(LONG))
    stream.close()
    del stream
    gc.collect()
    assert within(lambda: not threads())
    assert within(lambda: not zombies())
    assert descriptors() == before


def test_a_program_that_is_let_go_may_go_on_and_is_collected_when_it_ends(host):
    text = "import os, signal; os.write(1, b'%d\\n' % os.getpid()); signal.pause()"
    stream = host.run(python(text), after(LONG))
    said = b""
    while not said.endswith(b"\n"):
        said += read_exactly(stream, 1)
    host.close()
    os.kill(int(said), 0)
    os.kill(int(said), signal.SIGKILL)
    assert within(lambda: not zombies())
    assert within(lambda: not threads())


def test_a_stopped_program_ends_every_wait(host):
    text = "import os; os.write(1, b'%d\\n' % os.getpid()); os.read(0, 1)"
    stream = host.run(python(text), after(LONG))
    said = b""
    while not said.endswith(b"\n"):
        said += read_exactly(stream, 1)
    halt(int(said))
    timed_out(stream.read, after(SHORT))
    timed_out(stream.write, b"x" * (1 << 20), after(SHORT))
    timed_out(stream.finish, after(SHORT))
    os.kill(int(said), signal.SIGKILL)
    assert within(lambda: not zombies())


def test_a_grandchild_that_keeps_the_output_open_is_still_part_of_the_end(host):
    """The same as over SSH: the output has not ended, whoever holds it."""
    text = """
import os, signal
if os.fork():
    os._exit(0)
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""
    stream = host.run(python(text), after(LONG))
    said = b""
    while not said.endswith(b"\n"):
        said += read_exactly(stream, 1)
    timed_out(stream.finish, after(SHORT))
    os.kill(int(said), signal.SIGKILL)


def test_a_program_that_closes_its_input_is_said_to_have(host):
    text = "import os, signal; os.close(0); os.write(1, b'%d\\n' % os.getpid()); signal.pause()"
    stream = host.run(python(text), after(LONG))
    said = b""
    while not said.endswith(b"\n"):
        said += read_exactly(stream, 1)
    assert "its input is closed" in lost(stream.write, b"x", after(LONG)).found
    os.kill(int(said), signal.SIGKILL)
    # its output is as good as before
    assert everything(stream) == b""
    assert stream.finish(after(LONG)) == 137


def test_a_write_that_a_close_interrupts_ends(host):
    stream = host.run(["sleep", "60"], after(LONG))
    found = []

    def write():
        found.append(lost(stream.write, b"x" * (1 << 20), after(LONG)).found)

    writer = threading.Thread(target=write)
    writer.start()
    assert within(lambda: stream._ends._pending)
    stream.close()
    writer.join(LONG / 4)
    assert found == ["closed here"]


def test_a_full_disk_is_refused_and_leaves_the_old_file(host, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    # a limit of the kernel stands in for the disk; its signal has to be ignored
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(RefusedError) as caught:
            host.put(os.urandom(1 << 20), str(path), after(LONG))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert path.read_bytes() == b"old"
    # the part is a beginning, so that the next attempt has less to do
    assert Path(f"{path}.part").stat().st_size <= 100_000
