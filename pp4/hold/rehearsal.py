"""A receiving host for a rehearsal: a temporary directory of this machine, one fence, no GPUs.

It has the shape of a real HOLD, so that what runs inside cannot tell: an id, a fence, a nonce, a
journal, processes that it owns and proves dead.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import child_environment
from pp4.errors import Code, Refusal, RefusedError, UncleanError
from pp4.hold.interruption import undisturbed
from pp4.hold.journal import Journal
from pp4.hold.processes import Owned, start_token
from pp4.receipts.admission import Admission
from pp4.transport.interface import Channel, Transport

_GRACE_S = 5.0
_POLL_S = 0.01
_SOURCE = Path(__file__).resolve().parents[2]


class OpenHold:
    """An open HOLD; only :func:`open_rehearsal` makes one here.

    Attributes:
        admission: the evidence that opened it.
        hold_id: names it.
        fence: the fence it was granted.
        nonce: secret of this HOLD; start epochs follow from it.
        directory: everything it may write.
        journal: its chained journal.
        clock: where its deadlines come from.
    """

    def __init__(
        self, admission: Admission, transport: Transport, clock: Clock, directory: Path
    ) -> None:
        self.admission, self.clock, self.directory = admission, clock, directory
        self.hold_id = secrets.token_hex(8)
        self.fence = 1
        self.nonce = secrets.token_hex(16)
        self.journal = Journal(directory / "journal.jsonl")
        self._transport = transport
        self._owned: list[tuple[Owned, Channel | None]] = []

    @property
    def transport(self) -> str:
        """Name of the way to the receiving host."""
        return self._transport.name

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
        """
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

    def own(self, pid: int, label: str, channel: Channel | None = None) -> None:
        """Register a process, so that closing the HOLD proves it dead."""
        self._owned.append((Owned(pid, start_token(pid) or "gone", label), channel))
        self.journal.add(label, "process", detail={"pid": pid})

    def running(self) -> tuple[Owned, ...]:
        """Processes of this HOLD that are still alive."""
        return tuple(owned for owned, _ in self._owned if owned.alive())

    def stop(self, channel: Channel) -> None:
        """End one process and its group."""
        channel.stop(_GRACE_S)

    def close(self) -> None:
        """End every process and prove it.

        A process that is registered without a channel ends with the process that started it; one
        that does not is not ended here: that it was left alone is what has to be reported.

        Raises:
            UncleanError: ``SURVIVOR``, one is still there.
        """
        left = [
            f"the group of {owned.label} (pid {owned.pid})"
            for owned, channel in self._owned
            if channel is not None and channel.stop(_GRACE_S) is None
        ]
        self.journal.close()
        # the kernel ends orphans right after their parent, not in the same moment
        deadline = Deadline.after(SystemClock(), _GRACE_S)
        while self.running() and not deadline.expired():
            time.sleep(_POLL_S)
        left += [f"{owned.label} (pid {owned.pid})" for owned in self.running()]
        if left:
            names = ", ".join(left)
            raise UncleanError(
                Refusal(
                    Code.SURVIVOR,
                    f"HOLD {self.hold_id}",
                    "no process alive",
                    names,
                    left=f"{names}; {self.directory}",
                )
            )


@contextlib.contextmanager
def open_rehearsal(
    admission: Admission, transport: Transport, clock: Clock, parent: Path
) -> Iterator[OpenHold]:
    """Open a HOLD in a new temporary directory, close it and remove the directory.

    Args:
        admission: the admission of the rehearsal.
        transport: the way to this machine.
        clock: where deadlines come from.
        parent: where the directory goes.

    Raises:
        RefusedError: the directory cannot be made.
        UncleanError: something that was started is still alive; the directory stays.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix="pp4-rehearsal-", dir=parent))
    except OSError as error:
        raise RefusedError(
            Refusal(Code.UNWRITABLE, str(parent), "a new directory", str(error))
        ) from error
    try:
        hold = OpenHold(admission, transport, clock, directory)
    except BaseException:
        _remove(directory)
        raise
    by_signal = True
    try:
        yield hold
        by_signal = False
    except Exception:
        by_signal = False
        raise
    finally:
        _put_away(hold, again=not by_signal)


def _put_away(hold: OpenHold, *, again: bool) -> None:
    """Close a HOLD and remove its directory.

    Args:
        hold: what to close.
        again: whether a signal that comes meanwhile is the first one: it is obeyed afterwards.
            Whoever asks a second time wants an end at once.
    """
    try:
        hold.close()
        _remove(hold.directory)
    except Exception:
        raise
    except BaseException:
        if again:
            _put_away(hold, again=False)
        raise


def _remove(directory: Path) -> None:
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UncleanError(
            Refusal(
                Code.UNWRITABLE,
                str(directory),
                "a directory that can be removed",
                str(error),
                left=str(directory),
            )
        ) from error
