"""An open HOLD: what may run under it, which processes are in its books, and their end.

How it was granted is somebody else's business: a rehearsal grants itself one in a temporary
directory, :mod:`pp4.hold.local` one that rests on the locks of GPUs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import child_environment
from pp4.errors import Code, Refusal, TimedOutError, UncleanError
from pp4.hold.interruption import undisturbed
from pp4.hold.processes import Owned, start_token
from pp4.transport.interface import Channel, Transport

if TYPE_CHECKING:
    # every step loads this file, and few judge evidence
    from pp4.receipts.admission import Admission
    from pp4.wire.holds import Granted

_GRACE_S = 5.0
_POLL_S = 0.01
_SOURCE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Grant:
    """What the receiving host granted.

    Attributes:
        hold_id: names the HOLD.
        fence: highest that was ever granted on its GPUs.
        nonce: secret of this HOLD; start epochs follow from it.
        exclusion: ``host`` where every user of the host shares the locks, ``private`` otherwise.
        boot_id: boot of the receiving host, None in a rehearsal.
        gpus: UUIDs in the order in which they were asked for, empty in a rehearsal.
        opened_at: time of day in UTC, for people.
        deadline: after it nothing starts; None in a rehearsal.
    """

    hold_id: str
    fence: int
    nonce: str
    exclusion: Literal["host", "private"]
    boot_id: str | None
    gpus: tuple[str, ...]
    opened_at: datetime
    deadline: Deadline | None


class Chain(Protocol):
    """A chained journal, whoever writes it; see :class:`pp4.hold.journal.Journal`."""

    def add(
        self,
        step: str,
        event: str,
        *,
        found: str | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """Append one line and wait until it is durable."""

    @property
    def lines(self) -> tuple[dict[str, object], ...]:
        """Every line so far."""

    @property
    def head(self) -> str:
        """Hash of the last line."""

    def close(self) -> None:
        """No line may follow."""


class OpenHold:
    """An open HOLD; a rehearsal makes one, or :func:`pp4.hold.local.open_local`.

    Attributes:
        admission: the evidence that opened it.
        clock: where its deadlines come from.
        directory: everything that its processes may write.
        journal: its chained journal.
        granted: what its host granted, ready to be handed on; None where it granted itself.
    """

    granted: Granted | None = None

    def __init__(
        self,
        admission: Admission,
        transport: Transport,
        clock: Clock,
        grant: Grant,
        directory: Path,
        journal: Chain,
    ) -> None:
        self.admission, self.clock = admission, clock
        self.directory, self.journal = directory, journal
        self._grant, self._transport = grant, transport
        self._owned: list[tuple[Owned, Channel | None]] = []

    @property
    def hold_id(self) -> str:
        """Names it."""
        return self._grant.hold_id

    @property
    def fence(self) -> int:
        """The fence it was granted."""
        return self._grant.fence

    @property
    def nonce(self) -> str:
        """Secret of this HOLD; start epochs follow from it."""
        return self._grant.nonce

    @property
    def exclusion(self) -> Literal["host", "private"]:
        """Whom its locks keep out: everybody on the host, or this user's other runs."""
        return self._grant.exclusion

    @property
    def boot_id(self) -> str | None:
        """Boot of the receiving host, None in a rehearsal."""
        return self._grant.boot_id

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs of its GPUs in the order in which they were asked for; empty in a rehearsal."""
        return self._grant.gpus

    @property
    def opened_at(self) -> datetime:
        """Time of day in UTC at which it was granted; for people, never for a decision."""
        return self._grant.opened_at

    @property
    def deadline(self) -> Deadline | None:
        """After it nothing starts; None in a rehearsal."""
        return self._grant.deadline

    @property
    def transport(self) -> str:
        """Name of the way to the receiving host."""
        return self._transport.name

    def within(self, seconds: float) -> Deadline:
        """Return a deadline ``seconds`` from now that does not outlast the HOLD."""
        if self.deadline is None:
            return Deadline.after(self.clock, seconds)
        return self.deadline.within(seconds)

    def start(
        self, module: str, arguments: Sequence[str], *, environment: Mapping[str, str], label: str
    ) -> Channel:
        """Start ``python -m module`` under this HOLD.

        Args:
            module: the module to run.
            arguments: its arguments.
            environment: variables on top of the cleaned environment.
            label: names the process in the journal and its log; unique.

        Raises:
            RefusedError: it cannot be started.
            TimedOutError: ``DEADLINE``, the HOLD is over.
            UncleanError: it was started and could not be entered in the books.
        """
        self._require_time(label)
        with undisturbed():
            channel = self._transport.start(
                # -P and the path of this very package: no other copy may answer in its place
                [sys.executable, "-P", "-m", module, *arguments],
                environment=child_environment({"PYTHONPATH": str(_SOURCE), **environment}),
                directory=self.directory,
                label=label,
            )
            self.own(channel.pid, label, channel)
        return channel

    def _require_time(self, label: str) -> None:
        deadline = self.deadline
        if deadline is not None and deadline.expired():
            raise TimedOutError(
                Refusal(
                    Code.DEADLINE,
                    f"HOLD {self.hold_id}: start of {label}",
                    f"a start within {deadline.limit_ns / 1e9:g} s of its grant",
                    f"one after {deadline.elapsed_ns() / 1e9:g} s",
                    left=", ".join(owned.label for owned in self.running()) or "nothing",
                )
            )

    def own(self, pid: int, label: str, channel: Channel | None = None) -> None:
        """Register a process, so that closing the HOLD proves it dead."""
        owned = Owned(pid, start_token(pid) or "gone", label)
        # in the list first: whatever fails below, closing still ends it
        self._owned.append((owned, channel))
        self._enter(owned)
        self.journal.add(label, "process", detail={"pid": pid})

    def _enter(self, owned: Owned) -> None:
        """Make a process known to whoever comes after a coordinator that died."""

    def running(self) -> tuple[Owned, ...]:
        """Processes of this HOLD that are still alive."""
        return tuple(owned for owned, _ in self._owned if owned.alive())

    def stop(self, channel: Channel) -> None:
        """End one process and its group."""
        channel.stop(_GRACE_S)

    def _stop_all(self) -> list[str]:
        """End what has a channel; -> groups of which something is left."""
        for _, channel in self._owned:
            if channel is not None:
                # all of them at once: each takes its graces
                channel.end_input()
        return [
            f"the group of {owned.label} (pid {owned.pid})"
            for owned, channel in self._owned
            if channel is not None and _stopped(channel) is None
        ]

    def _await_end(self) -> tuple[Owned, ...]:
        """Wait a grace for the rest; -> what is still alive."""
        # the kernel ends orphans right after their parent, not in the same moment
        deadline = Deadline.after(SystemClock(), _GRACE_S)
        while self.running() and not deadline.expired():
            time.sleep(_POLL_S)
        return self.running()

    def close(self) -> None:
        """End every process and prove it.

        A process that is registered without a channel ends with the process that started it; one
        that does not is not ended here: that it was left alone is what has to be reported.

        Raises:
            UncleanError: ``SURVIVOR``, one is still there.
        """
        left = self._stop_all()
        self.journal.close()
        left += [f"{owned.label} (pid {owned.pid})" for owned in self._await_end()]
        if left:
            raise self._survivors(left)

    def _survivors(self, left: Sequence[str]) -> UncleanError:
        names = ", ".join(left)
        return UncleanError(
            Refusal(
                Code.SURVIVOR,
                f"HOLD {self.hold_id}",
                "no process alive",
                names,
                left=f"{names}; {self.directory}",
            )
        )


def _stopped(channel: Channel) -> int | None:
    """Stop one; what cannot even be tried counts as left, and keeps nobody from the next."""
    try:
        return channel.stop(_GRACE_S)
    except OSError:
        return None
