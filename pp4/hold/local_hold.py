"""The HOLD of GPUs while it is open, and its end: proof first, then the tombstone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, UncleanError, reason_of
from pp4.hold import durable, processes
from pp4.hold.exclusion import Exclusion
from pp4.hold.journal import Journal
from pp4.hold.open import Grant, OpenHold
from pp4.hold.processes import Owned
from pp4.hold.records import Tombstone, write
from pp4.hold.sweep import moment
from pp4.receipts.admission import Admission
from pp4.transport.interface import Channel, Transport

_GRACE_S = 5.0
_POLL_S = 0.02


class LocalHold(OpenHold):
    """An open HOLD whose processes are on the disk before anybody uses them.

    Args:
        admission: the evidence that opened it.
        transport: the way to this machine.
        clock: where deadlines come from.
        grant: what was granted.
        directory: what its processes may write; removed at the end.
        journal: its journal.
        books: the journal of its processes, for whoever comes after a coordinator that died.
        exclusion: where it is registered.

    Attributes:
        public: directory of its registration and its tombstone.
        on_end: run once everything was ended; its texts stand in the tombstone.
        elsewhere: proves what was started on other hosts over, once everything here was ended; its
            texts name what is not proven.
        orphans: finds what was started under this HOLD and whose parents have ended; a supervisor
            inherits it.
    """

    def __init__(
        self,
        admission: Admission,
        transport: Transport,
        clock: Clock,
        grant: Grant,
        directory: Path,
        journal: Journal,
        books: Journal,
        exclusion: Exclusion,
    ) -> None:
        super().__init__(admission, transport, clock, grant, directory, journal)
        self._books, self._exclusion = books, exclusion
        self.public = exclusion.holds / grant.hold_id
        self.on_end: Callable[[], tuple[str, ...]] = tuple
        self.elsewhere: Callable[[], tuple[str, ...]] = tuple
        self.orphans: Callable[[], tuple[Owned, ...]] = tuple
        self._restored: tuple[str, ...] | None = None
        self._unproven: tuple[str, ...] | None = None
        self._ending = False
        self._why = ""
        self._over = False

    def start(
        self, module: str, arguments: Sequence[str], *, environment: Mapping[str, str], label: str
    ) -> Channel:
        """Start a module under this HOLD; see :meth:`OpenHold.start`.

        Raises:
            RefusedError: ``STALE_FENCE``: the HOLD has ended or is ending.
        """
        if self._ending:
            where = f"start of {label}"
            found = f"HOLD {self.hold_id}, fence {self.fence}, which is closed"
            raise RefusedError(Refusal(Code.STALE_FENCE, where, "an open HOLD", found))
        marked = {**environment, processes.COOKIE: self.hold_id}
        return super().start(module, arguments, environment=marked, label=label)

    def _enter(self, owned: Owned) -> None:
        try:
            group = os.getpgid(owned.pid)
        except OSError:
            group = owned.pid
        detail = {
            "pid": owned.pid,
            "pgid": group,
            "start_token": owned.start_token,
            "boot_id": self.boot_id or "unknown",
        }
        self._books.add(owned.label, "process", detail=detail)

    def close(self, why: str = "done") -> None:
        """End every process, prove it, write the tombstone and remove the work.

        A second call changes nothing.  The locks are not let go here but by whoever took them.

        Args:
            why: what the tombstone says: ``done``, ``failed`` or ``cancelled``.

        Raises:
            UncleanError: ``SURVIVOR``: something is alive; there is no tombstone, and the GPUs are
                in quarantine.  ``UNWRITABLE``: everything is proven dead, but the tombstone or
                the removal of the work failed.
        """
        if self._over:
            return
        self._ending = True
        if self.deadline is not None and self.deadline.expired():
            why = "deadline"
        # of two ends that are begun, the first is the reason
        why = self._why = self._why or why
        self._say_closing(why, ())
        left = self._stop_all() + [str(owned) for owned in self._end_rest()]
        left += self._far_ends()
        self._restore()
        self.journal.close()
        self._books.close()
        if left:
            self._keep_back(why, left)
            raise self._survivors(left)
        self._bury(why)
        self._over = True

    def _far_ends(self) -> tuple[str, ...]:
        """What is not proven over on other hosts, asked once: each that is silent takes long."""
        if self._unproven is None:
            self._unproven = self.elsewhere()
        return self._unproven

    def _restore(self) -> None:
        """Put the host back, once: also where something is left that could not be ended."""
        if self._restored is None:
            try:
                self._restored = self.on_end()
            except Pp4Error as error:
                self._restored = (str(error),)
            for text in self._restored:
                # the tombstone says it too, and a torn journal must not keep the rest from its end
                with contextlib.suppress(UncleanError):
                    self.journal.add("restore", "end", found=text)

    def _say_closing(self, why: str, left: Sequence[str]) -> None:
        tree = {"hold": self.hold_id, "fence": str(self.fence), "why": why, "survivors": list(left)}
        try:
            durable.replace_object(self.public / "closing.json", tree)
        except RefusedError:
            # processes have to end on a full disk too; without a tombstone the next one looks
            return

    def _rest(self) -> tuple[Owned, ...]:
        """Processes of this HOLD that are alive, in the books or not."""
        known = {owned.pid: owned for owned in self.running()}
        others = {owned.pid: owned for owned in processes.marked(self.hold_id)}
        inherited = {owned.pid: owned for owned in self.orphans()}
        return tuple({**inherited, **others, **known}.values())

    def _end_rest(self) -> tuple[Owned, ...]:
        """End what has no channel: wait, TERM, KILL, each with its grace; -> what is left."""
        rest: tuple[Owned, ...] = ()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            deadline = Deadline.after(SystemClock(), _GRACE_S)
            while rest := self._rest():
                if number is not None:
                    for owned in rest:
                        owned.signal(number)
                    # asked once; killed for as long as anything is found
                    number = number if number == signal.SIGKILL else None
                if deadline.expired():
                    break
                time.sleep(_POLL_S)
            if not rest:
                break
        return rest

    def _keep_back(self, why: str, left: Sequence[str]) -> None:
        try:
            self._exclusion.quarantine(self.gpus, self.hold_id, left)
        except RefusedError:
            # no tombstone: the next HOLD looks for the same processes and keeps the GPUs back
            return
        # only now: survivors without a quarantine mean that an operator has ended it
        self._say_closing(why, left)

    def _bury(self, why: str) -> None:
        tombstone = Tombstone(
            hold=self.hold_id,
            fence=str(self.fence),
            gpus=self.gpus,
            why=why,
            journal_head=self.journal.head,
            survivors=(),
            restored=self._restored or (),
            boot_id=self.boot_id or "unknown",
            closed_at=moment(self.clock.wall()),
            closed_by=os.getpid(),
        )
        path = self.public / "closed.json"
        try:
            write(path, tombstone)
        except Pp4Error:
            # what was worked with may be what fills the disk
            shutil.rmtree(self.directory, ignore_errors=True)
            try:
                write(path, tombstone)
            except Pp4Error as error:
                raise self._unwritable(error.refusal.where, error.refusal.found) from error
        try:
            shutil.rmtree(self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unwritable(str(self.directory), reason_of(error)) from error

    def _unwritable(self, where: str, found: str) -> UncleanError:
        left = f"no process of HOLD {self.hold_id}; its records in {self.public}; {self.directory}"
        expected = "the end of a HOLD, recorded and tidied"
        return UncleanError(Refusal(Code.UNWRITABLE, where, expected, found, left=left))
