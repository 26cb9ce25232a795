"""Trees of processes: all that descends from one, whatever session or group it went to.

A process whose parent ends is handed to the nearest subreaper above it, so whoever is a subreaper
finds double forks and `setsid` children among its own descendants.  Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.process_table import Status, below, read_table
from pp4.hold.processes import Owned, start_token

_SET_CHILD_SUBREAPER = 36
_GET_CHILD_SUBREAPER = 37
_SCANS = 20
_POLL_S = 0.02
_SHORTEST_POLL_S = 0.0005
_LEAST_PROOF_S = 2.0
"""A killed process takes a moment to be gone, also where no grace is given."""
_REAPED_AT_ONCE = 4096
_CHASES = 2000


def become_subreaper() -> None:
    """Have the kernel hand orphans below this process to it, and not to init.

    Raises:
        RefusedError: ``SURVIVOR``: the kernel does not, or ``/proc`` is missing or that of other
            processes; what escapes could not be found again.
    """
    reason = _ask_for_orphans() or _foreign_list()
    if reason:
        raise RefusedError(
            Refusal(
                Code.SURVIVOR,
                "ownership of processes",
                "Linux, which hands orphans to the process that asks for them and lists its own",
                reason,
                next="run the step on a Linux host, with the /proc of its own namespace",
            )
        )


@contextlib.contextmanager
def orphans_let_go() -> Iterator[None]:
    """While the block runs, what is left without a parent does not fall to this process.

    For programs that start what is to go on after this process: it must not be found among the
    descendants, and be ended with them.
    """
    was = _adopts()
    if was:
        _adopt(False)
    try:
        yield
    finally:
        if was:
            _adopt(True)


def _ask_for_orphans() -> str:
    """Become a subreaper; -> why not, empty where it worked."""
    try:
        _adopt(True)
        adopts = _adopts()
    except OSError as error:
        return error.strerror or str(error)
    except AttributeError as error:
        return str(error)
    return "" if adopts else "it was asked and did not keep it"


def _adopt(on: bool) -> None:
    """Ask the kernel for orphans, or not to have them any more.

    Raises:
        OSError: it refuses; ``AttributeError`` where the C library does not know the call.
    """
    _prctl(_SET_CHILD_SUBREAPER, int(on))


def _adopts() -> bool:
    found = ctypes.c_int(0)
    _prctl(_GET_CHILD_SUBREAPER, ctypes.addressof(found))
    return bool(found.value)


def _prctl(option: int, argument: int) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    # the kernel reads whole registers; a plain int would leave half of one undefined
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 4]
    if prctl(option, argument, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _foreign_list() -> str:
    """Return why ``/proc`` does not list this process, empty where it does."""
    try:
        listed = os.readlink("/proc/self")
    except OSError as error:
        return str(error)
    same = listed == str(os.getpid())
    return "" if same else f"/proc calls process {os.getpid()} {listed}: another namespace"


def descendants(
    pid: int, *, label: str = "descendant", keep: Collection[int] = ()
) -> tuple[Owned, ...]:
    """Return the processes below one, zombies left out, in the order of their ids.

    The list is read until two readings agree, a bounded number of times: what forks all the time
    is never listed whole.

    Args:
        pid: the root, itself left out.
        label: what the processes are called.
        keep: roots of subtrees that are left out.
    """
    return Tree(pid, label, keep=keep).members()


def end_tree(
    root_pid: int, *, grace_s: float, label: str, keep: Collection[int] = ()
) -> tuple[Owned, ...]:
    """End everything below a process: TERM, a grace, then KILL until nothing is left.

    Where the root is this process, what has ended is reaped on the way, but for ``keep``; no other
    thread may wait for other children meanwhile.

    Args:
        root_pid: the root, itself left alone.
        grace_s: seconds after TERM, and again after the first KILL (then 2 s at least).
        label: what survivors are called.
        keep: roots of subtrees that are left alone, such as children that somebody waits for.

    Returns:
        What could not be ended; nothing at all is proof where this process is the root and a
        subreaper.

    Raises:
        ValueError: for a grace that is negative or not finite.
    """
    tree = Tree(root_pid, label, keep=keep)
    if tree.ask(Deadline.after(SystemClock(), grace_s)):
        return ()
    return tree.kill(proof_deadline(grace_s))


def proof_deadline(grace_s: float) -> Deadline:
    """Return by when what was killed has to be gone: a grace from now, 2 s at least."""
    return Deadline.after(SystemClock(), max(grace_s, _LEAST_PROOF_S))


class Tree:
    """Everything below one process, remembered by pid and start token once it was seen.

    Args:
        root: the process above; never ended itself.
        label: what the others are called.
        keep: roots of subtrees that do not count, and are neither ended nor reaped.
        leader: own child that leads a session; reaped last, so that no other process can get its
            id while its group is still to be killed.  Not together with ``keep``.
    """

    def __init__(
        self, root: int, label: str, *, keep: Collection[int] = (), leader: int | None = None
    ) -> None:
        self._own = root == os.getpid()
        self._root, self._label, self._leader = root, label, leader
        self._keep = frozenset(keep) if self._own else frozenset({*keep, os.getpid()})
        self._seen: frozenset[Owned] = frozenset()
        self._statuses: dict[int, int] = {}

    def status(self, pid: int) -> int | None:
        """Exit status of a child that was reaped here, negative for a signal; None for others."""
        return self._statuses.get(pid)

    def members(self) -> tuple[Owned, ...]:
        """Everything below the root that lives; read until two readings agree, or 20 times."""
        return self._settled(read_table)

    def _settled(self, reading: Callable[[], Mapping[int, Status]]) -> tuple[Owned, ...]:
        found = self._look(reading())
        for _ in range(_SCANS - 1):
            before, found = found, self._look(reading())
            if found == before:
                break
        return found

    def _reading(self) -> Mapping[int, Status]:
        """Read the list without what has ended: zombies by the thousand would take all the time."""
        self.reap()
        return read_table()

    def ask(self, deadline: Deadline) -> bool:
        """Send TERM to everything once and wait; -> whether all of it is gone."""
        for owned in self._settled(self._reading):
            owned.signal(signal.SIGTERM)
        while not self.gone():
            if deadline.expired():
                return False
            time.sleep(min(_POLL_S, deadline.remaining_s()))
        return True

    def kill(self, deadline: Deadline) -> tuple[Owned, ...]:
        """Send KILL to everything, again and again; -> what is left at the deadline."""
        pause_s = _SHORTEST_POLL_S
        while True:
            # what is stopped cannot fork while the others are being killed
            self._stop(deadline)
            for owned in self._look(self._reading()):
                owned.signal(signal.SIGKILL)
            self._kill_groups()
            self._chase(deadline)
            if self.gone():
                return ()
            if deadline.expired():
                return self.members() or (Owned(0, "unknown", f"{self._label}, id not known"),)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_S)

    def gone(self) -> bool:
        """Whether nothing below the root lives; reaps what has ended.

        The kernel's own word is asked for where the root is this process: a tree that forks and
        ends all the time can slip through every reading of the list.
        """
        if self._look(self._reading()) or self._look(self._reading()):
            return False
        return not self._own or bool(self._keep) or self._childless()

    def reap(self) -> None:
        """Take the exit status of every child of this process that ended, but for the leader."""
        if self._own:
            for pid in self._children():
                if pid != self._leader:
                    self._take(os.P_PID, pid)

    def _children(self) -> list[int]:
        """Return own children, the youngest first, as the kernel names them, or as they are listed.

        Ids of children that are not reaped are nobody else's.
        """
        named: list[int] = []
        try:
            for thread in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{thread}/children", "rb", buffering=0) as file:
                    named += map(int, file.read().split())
        except OSError:
            # a kernel built without it
            named = [pid for pid, one in read_table().items() if one.parent == self._root]
        return [pid for pid in reversed(named) if pid not in self._keep]

    def _take(self, kind: int, pid: int) -> bool:
        """Reap one child, if one has ended; -> whether there was one."""
        try:
            ended = os.waitid(kind, pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        if ended is None:
            return False
        exited = ended.si_code == os.CLD_EXITED
        self._statuses[ended.si_pid] = ended.si_status if exited else -ended.si_status
        return True

    def _childless(self) -> bool:
        """Reap what is left; -> whether the kernel knows of no child at all.

        Only asked when nothing was seen alive: whoever is in the leader's group now was not in
        two readings of the list, so it is forking to stay out of them.
        """
        if self._leader is not None and self._leader not in self._statuses:
            _kill_group(self._leader)
        for _ in range(_REAPED_AT_ONCE):
            if not self._take(os.P_ALL, 0):
                break
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _stop(self, deadline: Deadline) -> None:
        """Send STOP until no reading shows a process that was not stopped before."""
        stopped: set[Owned] = set()
        for _ in range(_SCANS):
            fresh = set(self._look(self._reading())) - stopped
            if not fresh or deadline.expired():
                return
            for owned in fresh:
                owned.signal(signal.SIGSTOP)
            stopped |= fresh

    def _kill_groups(self) -> None:
        """Kill the groups of own children that lead a session.

        The kernel kills a group at once, what is being forked included.  The id of a child that is
        not reaped is nobody else's, so here, and only here, the id of a group says enough.
        """
        if not self._own:
            return
        for pid, status in read_table().items():
            leads = status.parent == self._root and status.session == pid
            if leads and pid not in self._keep:
                _kill_group(pid)

    def _chase(self, deadline: Deadline) -> None:
        """Kill own children as fast as the kernel names them.

        What forks, goes to a session of its own and ends, all the time, is gone from the long list
        before it is read to its end.
        """
        if not self._own:
            return
        for _ in range(_CHASES):
            own = self._children()
            # all are killed before any is reaped: the older ones have ended already
            for pid in own:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if not set(own) - {self._leader} or deadline.expired():
                return

    def _look(self, table: Mapping[int, Status]) -> tuple[Owned, ...]:
        """Find the tree in one reading, together with what was in it before and was handed on."""
        known = {one.pid for one in self._seen if _is(one, table)}
        pids = below({self._root, *known}, table, self._keep) | known
        found = [self._owned(pid, table[pid]) for pid in sorted(pids)]
        alive = tuple(owned for owned in found if owned is not None)
        self._seen = frozenset(alive)
        return alive

    def _owned(self, pid: int, status: Status) -> Owned | None:
        # the first thread may have ended while others go on: that looks like a zombie
        if status.zombie and start_token(pid) != status.token:
            return None
        return Owned(pid, status.token, self._label)


def _is(owned: Owned, table: Mapping[int, Status]) -> bool:
    status = table.get(owned.pid)
    return status is not None and status.token == owned.start_token


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
