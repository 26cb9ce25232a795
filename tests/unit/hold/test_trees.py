"""Whatever descends from a process is found, whatever it does to hide, and ended."""

import ctypes
import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.hold import process_table, trees
from pp4.hold.process_table import Status, below
from pp4.hold.processes import Owned
from pp4.hold.trees import Tree, become_subreaper, descendants, end_tree
from tests.unit.hold.families import finished, gathered
from tests.unit.processes import within

# Ends what lives below itself and says how that went; it is told when by a line.
ENDS_ALL = """
from pp4.hold.trees import become_subreaper, descendants, end_tree
import json, subprocess
become_subreaper()
{start}
print("ready", flush=True)
sys.stdin.readline()
found = [owned.pid for owned in descendants(os.getpid())]
left = end_tree(os.getpid(), grace_s={grace}, label="below")
try:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    children = True
except ChildProcessError:
    children = False
print(json.dumps([found, [str(one) for one in left], children]), flush=True)
"""


@pytest.fixture
def family(tmp_path):
    with gathered(tmp_path) as made:
        yield made


def ends_all(family, start, *names, grace=0.3):
    """Let a process end what it started; -> ids that it found, once all the named are born."""
    process = family.script(ENDS_ALL.format(start=start, grace=grace))
    assert process.stdout.readline() == b"ready\n"
    for name in names:
        family.named(name)
    status, output, errors = finished_after_line(process)
    assert (status, errors) == (0, b"")
    found, left, children = json.loads(output)
    assert left == []
    assert children is False
    assert family.alive() == ()
    return found


def finished_after_line(process):
    output, errors = process.communicate(b"\n", timeout=120)
    return process.returncode, output, errors


# -- one reading of the list -------------------------------------------------------------------

forests = st.dictionaries(st.integers(2, 30), st.integers(0, 30), max_size=29)


@given(forests, st.sets(st.integers(1, 30), max_size=3), st.sets(st.integers(2, 30), max_size=3))
def test_below_is_who_has_a_root_among_its_parents_and_nobody_to_keep_on_the_way(
    parents, roots, keep
):
    def belongs(pid):
        seen = set()
        while pid in parents and pid not in keep and pid not in seen:
            seen.add(pid)
            pid = parents[pid]
            if pid in roots and pid not in keep:
                return True
        return False

    table = {pid: Status(False, parent, 1, "1") for pid, parent in parents.items()}
    expected = {pid for pid in parents if pid not in roots and belongs(pid)}
    assert below(roots, table, frozenset(keep)) == expected


def test_this_process_is_in_the_list_with_its_parent_and_session():
    token = process_table.read_table()[os.getpid()].token
    assert process_table.read_table()[os.getpid()] == (False, os.getppid(), os.getsid(0), token)
    assert Owned(os.getpid(), token, "me").alive()


def test_without_a_list_of_processes_there_is_one_refusal(monkeypatch):
    def missing(path):
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(process_table.os, "listdir", missing)
    with pytest.raises(RefusedError) as caught:
        descendants(1)
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.where == "/proc"


# -- who is found --------------------------------------------------------------------------------

LINE_OF_THREE = """
born("child")
if os.fork() == 0:
    os.setsid()
    born("grandchild")
    if os.fork() == 0:
        open("/proc/self/comm", "wb").write(b"a) Z 1 (\\n b")
        born("great-grandchild")
        wait()
    wait()
wait()
"""
NAMES = ("child", "grandchild", "great-grandchild")


def test_all_generations_are_found_the_root_is_not(family):
    process = family.script(LINE_OF_THREE)
    line = [family.named(name) for name in NAMES]
    found = descendants(process.pid)
    assert {(one.pid, one.start_token) for one in found} == {
        (one.pid, one.start_token) for one in line[1:]
    }
    assert {one.label for one in found} == {"descendant"}
    below_me = {one.pid for one in descendants(os.getpid(), label="mine")}
    assert {one.pid for one in line} <= below_me
    assert os.getpid() not in below_me
    assert end_tree(process.pid, grace_s=0.0, label="below") == ()
    # the root is left alone
    assert family.end() == (line[0],)


def test_a_subtree_to_keep_is_not_found_and_not_ended(family):
    process = family.script(LINE_OF_THREE)
    child, grandchild, last = [family.named(name) for name in NAMES]
    assert descendants(process.pid, keep=[grandchild.pid]) == ()
    assert [one.pid for one in descendants(process.pid, keep=[last.pid])] == [grandchild.pid]
    assert end_tree(process.pid, grace_s=0.0, label="below", keep=[last.pid]) == ()
    assert family.end() == (child, last)


def test_a_zombie_is_not_found():
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process_table.read_table()[process.pid].zombie
        assert process.pid not in {one.pid for one in descendants(os.getpid())}


def test_nothing_is_below_a_process_that_is_not_there():
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL) as process:
        process.wait()
        assert descendants(process.pid) == ()
        assert end_tree(process.pid, grace_s=0.0, label="nothing") == ()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a system call")
def test_one_whose_first_thread_ended_is_found_and_ended(family):
    start = """
if os.fork() == 0:
    import ctypes, threading
    thread = threading.Thread(target=wait)
    thread.start()
    born("threads")
    ctypes.CDLL(None).syscall(60, 0)
"""
    process = family.script(ENDS_ALL.format(start=start, grace=0.1))
    assert process.stdout.readline() == b"ready\n"
    pid = family.named("threads").pid
    assert within(lambda: process_table.read_table()[pid].zombie)
    status, output, errors = finished_after_line(process)
    assert (status, errors) == (0, b"")
    assert json.loads(output) == [[pid], [], False]
    assert family.alive() == ()


def test_two_readings_have_to_agree(monkeypatch):
    # a parent that is read after it ended: its child seems to be nobody's, until the next reading
    status = process_table.read_table()[os.getpid()]
    readings = [
        {10: status._replace(parent=9)},
        {10: status._replace(parent=1000)},
        {10: status._replace(parent=1000)},
    ]
    monkeypatch.setattr(trees, "read_table", lambda: readings.pop(0))
    assert [one.pid for one in descendants(1000)] == [10]
    assert readings == []


def test_readings_that_never_agree_come_to_an_end(monkeypatch):
    status = process_table.read_table()[os.getpid()]._replace(parent=1000)
    pids = iter(range(2000, 10_000))
    monkeypatch.setattr(trees, "read_table", lambda: {next(pids): status})
    assert len(descendants(1000)) == 1
    assert next(pids) == 2020


# -- orphans ---------------------------------------------------------------------------------------

ORPHAN = """
from pp4.hold.trees import become_subreaper
if sys.argv[1] == "asks":
    become_subreaper()
read, write = os.pipe()
if os.fork() == 0:
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.01)
        os.write(write, str(os.getppid()).encode())
    os._exit(0)
os.wait()
print(int(os.read(read, 20)) == os.getpid(), flush=True)
"""


@pytest.mark.parametrize(("asks", "given"), [("asks", b"True\n"), ("does not", b"False\n")])
def test_orphans_are_given_to_who_asks_for_them(family, asks, given):
    assert finished(family.script(ORPHAN, asks)) == (0, given, b"")


class _Library:
    """The C library of a kernel without subreapers."""

    class _Call:
        argtypes = ()

        def __call__(self, *arguments):
            ctypes.set_errno(22)
            return -1

    def __init__(self, name, use_errno):
        assert use_errno
        self.prctl = self._Call()


def test_a_kernel_that_refuses_is_not_passed_over(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", _Library)
    with pytest.raises(RefusedError) as caught:
        become_subreaper()
    refusal = caught.value.refusal
    assert (refusal.code, refusal.found) == (Code.SURVIVOR, "Invalid argument")
    assert refusal.next


FOREIGN = """
from pp4.errors import RefusedError
from pp4.hold import trees
trees.os.readlink = lambda path: "4711"
try:
    trees.become_subreaper()
except RefusedError as error:
    print(error.refusal.code, error.refusal.found)
"""


def test_a_list_that_calls_this_process_something_else_is_not_used(family):
    process = family.script(FOREIGN)
    expected = f"SURVIVOR /proc calls process {process.pid} 4711: another namespace\n"
    assert finished(process) == (0, expected.encode(), b"")


# -- ending them -----------------------------------------------------------------------------------


def test_a_line_of_sessions_is_ended(family):
    found = ends_all(family, f"if os.fork() == 0:\n    {_nested(LINE_OF_THREE)}", *NAMES)
    assert sorted(found) == sorted(family.named(name).pid for name in NAMES)


def _nested(script):
    return script.strip().replace("\n", "\n    ")


def test_what_ends_when_it_is_asked_is_not_killed(family):
    start = """
if os.fork() == 0:
    def leave(*_):
        born("asked")
        os._exit(0)
    signal.signal(signal.SIGTERM, leave)
    born("polite")
    wait()
"""
    ends_all(family, start, "polite", grace=60)
    assert [one.label for one in family.all()] == ["polite", "asked"]


@pytest.mark.parametrize("asked", ["deaf()", "os.kill(os.getpid(), signal.SIGSTOP)"])
def test_what_does_not_end_when_it_is_asked_is_killed(family, asked):
    ends_all(family, f"if os.fork() == 0:\n    born('child')\n    {asked}\n    wait()", "child")


def test_what_waits_to_be_reaped_is_reaped(family):
    start = """
pids = []
for _ in range(20):
    pids.append(os.fork())
    if pids[-1] == 0:
        os._exit(3)
for pid in pids:
    # ended, and still there to be reaped: one that has not come so far is another case
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
"""
    assert ends_all(family, start) == []


KEEPS = """
from pp4.hold.trees import become_subreaper, end_tree
import subprocess
become_subreaper()
mine = subprocess.Popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
done = subprocess.Popen(["sh", "-c", "exit 5"])
os.waitid(os.P_PID, done.pid, os.WEXITED | os.WNOWAIT)
if os.fork() == 0:
    born("other")
    wait()
sys.stdin.readline()
left = end_tree(os.getpid(), grace_s=60, label="below", keep=[mine.pid, done.pid])
mine.communicate(b"on\\n")
print(left, mine.wait(), done.wait(), flush=True)
"""


def test_children_that_somebody_waits_for_keep_their_status(family):
    process = family.script(KEEPS)
    family.named("other")
    assert finished_after_line(process) == (0, b"() 7 5\n", b"")
    assert family.alive() == ()


STATUSES = """
from pp4.clock import Deadline, SystemClock
from pp4.hold.trees import Tree, become_subreaper
import subprocess
become_subreaper()
good = subprocess.Popen(["sh", "-c", "exit 4"])
bad = subprocess.Popen(["sh", "-c", "kill -9 $$"])
led = subprocess.Popen(["sh", "-c", "exit 6"], start_new_session=True)
for one in (good, bad, led):
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
tree = Tree(os.getpid(), "below", leader=led.pid)
tree.reap()
before = [tree.status(one.pid) for one in (good, bad, led)]
tree.ask(Deadline.after(SystemClock(), 60))
print(before, tree.status(led.pid), tree.status(1), flush=True)
os._exit(0)
"""


def test_statuses_are_kept_and_the_leader_is_reaped_last(family):
    assert finished(family.script(STATUSES)) == (0, b"[4, -9, None] 6 None\n", b"")


def test_one_that_was_seen_is_ended_also_after_it_was_handed_on(family):
    # no subreaper here: the daemon leaves the tree, but it was in it when it was looked at
    process = family.script("""
if os.fork() == 0:
    if os.fork() == 0:
        deaf()
        born("grandchild")
        wait()
    born("child")
    wait()
born("root")
os.wait()
wait()
""")
    grandchild, child = family.named("grandchild"), family.named("child")
    tree = Tree(process.pid, "below")
    assert {one.pid for one in tree.members()} == {grandchild.pid, child.pid}
    child.signal(signal.SIGKILL)
    assert within(lambda: not child.alive())
    assert grandchild.alive()
    assert descendants(process.pid) == ()
    assert [one.pid for one in tree.members()] == [grandchild.pid]
    assert tree.kill(trees.proof_deadline(60)) == ()
    assert [one.label for one in family.end()] == ["root"]


def test_everything_is_stopped_before_anything_is_killed(family, monkeypatch):
    process = family.script(LINE_OF_THREE)
    line = [family.named(name) for name in NAMES][1:]
    sent = []
    send = Owned.signal

    def record(owned, number):
        sent.append((number, owned.pid))
        send(owned, number)

    monkeypatch.setattr(Owned, "signal", record)
    assert Tree(process.pid, "below").kill(trees.proof_deadline(60)) == ()
    pids = {one.pid for one in line}
    assert {pid for number, pid in sent[:2] if number == signal.SIGSTOP} == pids
    assert {pid for number, pid in sent[2:] if number == signal.SIGKILL} == pids
    family.end()


# A leader that has ended or not, and one in its group; one way alone has to end what is there.
ONE_WAY = """
from pp4.clock import Deadline, SystemClock
from pp4.hold import trees
trees.become_subreaper()
leader = os.fork()
if leader == 0:
    os.setsid()
    deaf()
    if os.fork() == 0:
        born("member")
        wait()
    if sys.argv[1] == "ended":
        os._exit(8)
    born("leader")
    wait()
sys.stdin.readline()
tree = trees.Tree(os.getpid(), "below", leader=leader)
{only}
deadline = Deadline.after(SystemClock(), 60)
print({call}, tree.status(leader), flush=True)
"""
UNSEEN = "trees.read_table = lambda: {}"
BY_GROUP = "trees._CHASES = 0\ntrees.Owned.signal = lambda *arguments: None"


@pytest.mark.parametrize(
    ("leader", "only", "call", "said"),
    [
        ("ended", UNSEEN, "tree.ask(deadline)", b"True 8\n"),
        ("lives", UNSEEN, "tree.kill(deadline)", b"() -9\n"),
        ("lives", BY_GROUP, "tree.kill(deadline)", b"() -9\n"),
        ("ended", BY_GROUP, "tree.kill(deadline)", b"() 8\n"),
    ],
)
def test_what_no_reading_shows_and_no_signal_reaches_ends_with_the_leaders_group(
    family, leader, only, call, said
):
    process = family.script(ONE_WAY.format(only=only, call=call), leader)
    family.named("member")
    if leader == "lives":
        family.named("leader")
    else:
        assert within(lambda: _ended_children(process.pid))
    assert finished_after_line(process) == (0, said, b"")
    assert family.alive() == ()


def _ended_children(pid):
    return [one for one in process_table.read_table().values() if one.parent == pid and one.zombie]


# Its child is in no reading, and leads nothing.
NAMED_BY_THE_KERNEL = """
from pp4.hold import trees
trees.become_subreaper()
for _ in range(3):
    if os.fork() == 0:
        deaf()
        born("child")
        if os.fork() == 0:
            born("grandchild")
            wait()
        wait()
sys.stdin.readline()
trees.read_table = lambda: {}
print(trees.Tree(os.getpid(), "below").kill(trees.proof_deadline(60)), flush=True)
"""


@pytest.mark.skipif(
    not os.path.exists("/proc/thread-self/children"), reason="a kernel that names no children"
)
def test_what_no_reading_shows_is_killed_generation_by_generation(family):
    process = family.script(NAMED_BY_THE_KERNEL)
    assert within(lambda: len(family.all()) == 6)
    assert finished_after_line(process) == (0, b"()\n", b"")
    assert family.alive() == ()


def test_what_can_neither_be_seen_nor_killed_is_a_survivor_all_the_same(family):
    blind = "trees.read_table = lambda: {}\ntrees._CHASES = 0"
    script = NAMED_BY_THE_KERNEL.replace("trees.read_table = lambda: {}", blind)
    process = family.script(
        script.replace("proof_deadline(60)", "Deadline.after(trees.SystemClock(), 0)")
    )
    assert within(lambda: len(family.all()) == 6)
    process.stdin.write(b"\n")
    process.stdin.flush()
    # who survives has the output open
    survivor = b"(Owned(pid=0, start_token='unknown', label='below, id not known'),)\n"
    assert process.stdout.readline() == survivor
    assert process.wait(60) == 0
    assert len(family.end()) == 6


@pytest.mark.parametrize("grace_s", [-1.0, float("nan"), float("inf")])
def test_a_grace_without_meaning_is_a_mistake_of_the_caller(grace_s):
    with pytest.raises(ValueError, match="deadline"):
        end_tree(os.getpid(), grace_s=grace_s, label="nobody")
