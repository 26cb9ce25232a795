"""Steps that do all they can to outlive their guard, and guards that are killed: nothing is left.

Every process is real, every kill is the kernel's.  Who is left is asked by pid and start token.
"""

import json
import signal
import sys

import pytest

from tests.unit.hold.families import FAR_NS, HOLD, ended, finished, gathered, owned
from tests.unit.processes import within

# With a cgroup of its own the kernel ends a step; without one the guard has to.
WITHOUT_CGROUP = """
import sys
from pp4.hold import guard
guard.make_leaf = lambda *arguments: None
sys.exit(guard.main(sys.argv[1:]))
"""


@pytest.fixture
def family(tmp_path):
    with gathered(tmp_path) as made:
        yield made


@pytest.fixture(params=["as it is", "without a cgroup"])
def program(request):
    """Run a guard as this machine lets it, and without help of the kernel."""
    return ("-m", "pp4.hold.guard") if request.param == "as it is" else ("-c", WITHOUT_CGROUP)


DAEMON = """
if detach():
    {deaf}
    born("daemon")
    wait()
"""
SESSION = """
if os.fork() == 0:
    os.setsid()
    {deaf}
    born("daemon")
    wait()
"""
BARE = """
if detach():
    born("daemon")
    os.closerange(0, 256)
    # the start of a program again, without anything that could mark it
    os.execve(sys.executable, ["x", "-c", "import signal; signal.pause()"], {{}})
"""
TREE = """
if os.fork() == 0:
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            for _ in range(3):
                if os.fork() == 0:
                    {deaf}
                    born("daemon")
                    wait()
            wait()
    wait()
"""
ENDS = {"daemon": DAEMON, "session": SESSION, "bare": BARE, "tree": TREE}


@pytest.mark.parametrize("way", ["ends", "waits", "deaf", "killed"])
@pytest.mark.parametrize("kind", ENDS)
def test_whatever_a_child_leaves_behind_ends_with_it(family, program, kind, way):
    script = ENDS[kind].format(deaf="deaf()" if way == "deaf" else "pass")
    script += {
        "ends": "born('child')\nos.read(0, 1)\nsys.exit(6)",
        "waits": "born('child')\nwait()",
        "deaf": "deaf()\nborn('child')\nwait()",
        "killed": "born('child')\nwait()",
    }[way]
    process = family.guarded(script, program=program)
    family.named("child")
    count = 9 if kind == "tree" else 1
    assert within(lambda: sum(one.label == "daemon" for one in family.all()) == count)
    if way == "killed":
        family.named("child").signal(signal.SIGKILL)
        status, _, errors = ended(process)
    else:
        status, _, errors = finished(process)
    expected = {"ends": 6, "waits": 128 + 15, "deaf": 128 + 9, "killed": 128 + 9}
    assert (status, errors) == (expected[way], b"")
    assert family.alive() == ()


def test_a_child_that_ends_at_once_takes_its_daemon_along(family, program):
    script = DAEMON.format(deaf="deaf()") + "while True:\n    time.sleep(0.01)\n    "
    script += "if os.path.exists(sys.argv[1]):\n        sys.exit(0)"
    ready = family.directory / "ready"
    process = family.guard(
        sys.executable, "-c", f"from family import *\n{script}", str(ready), program=program
    )
    daemon = family.named("daemon")
    ready.touch()
    # its input never ends
    assert ended(process)[0] == 0
    assert not daemon.alive()


def test_a_stopped_child_does_not_hear_that_it_is_asked_and_is_killed(family, program):
    script = "signal.signal(signal.SIGTERM, lambda *_: born('heard'))\n"
    script += "born('child')\nos.kill(os.getpid(), signal.SIGSTOP)\nwait()"
    process = family.guarded(script, program=program)
    child = family.named("child")
    assert finished(process)[0] == 128 + signal.SIGKILL
    assert not child.alive()
    assert [one.label for one in family.all()] == ["child"]


# Each forks its successor and ends at once, so that no list of processes shows it for long.
CHAIN = """
deaf()
for _ in range({count} - 1):
    if os.fork() == 0:
        break
os.write(1, b"!")
while time.monotonic() < TOO_LATE:
    # as fast as a chain may be and still leave ids of processes to everybody else
    time.sleep(0.001)
    if os.fork() != 0:
        os._exit(0)
    {session}
"""
# Two that bring each other back, and children of theirs.
PAIR = """
deaf()
def watch():
    while time.monotonic() < TOO_LATE:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(0.05)
                os._exit(0)
            time.sleep(0.01)
            os._exit(0)
        os.waitpid(pid, 0)
for _ in range(2):
    if os.fork() == 0:
        watch()
os.write(1, b"!")
wait()
"""
# Each of them forks as long as there are tokens, 40 in all, and gives its own back when it ends.
BOMB = """
deaf()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
read, write = os.pipe()
os.set_blocking(read, False)
os.write(write, b"." * 40)
os.write(1, b"!")
rounds = 1000000
while rounds and time.monotonic() < TOO_LATE:
    rounds -= 1
    try:
        os.read(read, 1)
    except BlockingIOError:
        time.sleep(0.002)
        continue
    if os.fork() == 0:
        rounds = 10
os.write(write, b".")
"""
FORKING = {
    "chain": CHAIN.format(count=1, session="pass"),
    "chains": CHAIN.format(count=3, session="pass"),
    "chain of sessions": CHAIN.format(count=1, session="os.setsid()"),
    "chains of sessions": CHAIN.format(count=4, session="os.setsid()"),
    "pair": PAIR,
    "bomb": BOMB,
}


@pytest.mark.parametrize("kind", FORKING)
def test_a_tree_that_keeps_forking_is_ended(family, program, kind):
    process = family.guarded(FORKING[kind], program=program)
    assert process.stdout.read(1) == b"!"
    status, output, errors = finished(process)
    # all of them have the output open: its end says that the last one is gone
    assert errors == b""
    assert status in (0, 128 + signal.SIGKILL)
    assert set(output) <= set(b"!")


# -- kill -9 ---------------------------------------------------------------------------------------

# Starts a guard, says its id, and does as it is told.
PARENT = """
from pp4.hold.trees import become_subreaper, descendants, end_tree
import json, subprocess
become_subreaper()
guard = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(guard.pid, flush=True)
for line in sys.stdin:
    if line == "kill\\n":
        guard.kill()
        print(guard.wait(), flush=True)
    elif line == "look\\n":
        print(json.dumps(sorted(one.pid for one in descendants(os.getpid()))), flush=True)
    elif line == "end\\n":
        left = end_tree(os.getpid(), grace_s=0.3, label="orphan")
        print(json.dumps([str(one) for one in left]), flush=True)
guard.stdin.close()
"""


def parent_of_guard(family, program, script, grace="0.3"):
    """Start a process that starts a guard; -> the process, the id of the guard."""
    order = ("-P", *program, HOLD, "step", grace, str(FAR_NS), "--")
    child = (sys.executable, "-c", f"from family import *\n{script}")
    process = family.script(PARENT, sys.executable, *order, *child)
    return process, int(process.stdout.readline())


def ask(process, word):
    process.stdin.write(word.encode() + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_a_guard_whose_parent_is_killed_stops(family, program):
    script = DAEMON.format(deaf="deaf()") + "deaf()\nborn('child')\nwait()"
    process, guard_pid = parent_of_guard(family, program, script)
    child, daemon = family.named("child"), family.named("daemon")
    guard = owned(guard_pid)
    process.kill()
    process.wait()
    assert within(lambda: not guard.alive())
    # the guard is the last of them
    assert not child.alive()
    assert not daemon.alive()


def test_children_of_a_guard_that_is_killed_are_found_and_ended_by_who_started_it(family, program):
    script = DAEMON.format(deaf="deaf()") + "deaf()\nborn('child')\nwait()"
    process, guard_pid = parent_of_guard(family, program, script)
    child, daemon = family.named("child"), family.named("daemon")
    assert ask(process, "look") == sorted([guard_pid, child.pid, daemon.pid])
    assert ask(process, "kill") == -signal.SIGKILL
    assert child.alive()
    assert daemon.alive()
    assert ask(process, "look") == sorted([child.pid, daemon.pid])
    assert ask(process, "end") == []
    assert not child.alive()
    assert not daemon.alive()
    assert finished(process)[0] == 0


def test_a_child_of_a_guard_that_is_killed_sees_the_end_of_its_input(family, program):
    process, _ = parent_of_guard(family, program, "born('child'); os.read(0, 1); born('read')")
    child = family.named("child")
    assert ask(process, "kill") == -signal.SIGKILL
    family.named("read")
    assert within(lambda: not child.alive())
    assert ask(process, "end") == []
    assert finished(process)[0] == 0


def test_a_guard_that_is_stopped_and_goes_on_does_what_it_was_to_do(family, program):
    process = family.guarded("born('child')\nwait()", program=program)
    child, guard = family.named("child"), owned(process.pid)
    guard.signal(signal.SIGSTOP)
    process.stdin.close()
    process.send_signal(signal.SIGTERM)
    assert child.alive()
    guard.signal(signal.SIGCONT)
    assert ended(process)[0] == 128 + signal.SIGTERM
    assert not child.alive()
