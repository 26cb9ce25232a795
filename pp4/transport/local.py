"""Processes of this machine, for a rehearsal and for a receiving host that is this one."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError, WrongError, reason_of
from pp4.wire import Decoder, Message, Reply, encode, encode_reply

_READ = 1 << 16
_READINGS = 4
_POLL_S = 0.01
_UNKNOWN = 255
"""Status of a child whose end somebody else was told."""


class LocalChannel:
    """A child process, its pipes polled against deadlines, its standard error in a file.

    A file takes whatever the process writes: no pipe can fill up while nobody reads it.
    """

    def __init__(self, process: subprocess.Popen[bytes], label: str, log: Path) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a channel needs both pipes")
        self._process, self._label, self._log = process, label, log
        self._stdin, self._stdout = process.stdin, process.stdout
        os.set_blocking(self._stdin.fileno(), False)
        os.set_blocking(self._stdout.fileno(), False)
        self._decoder = Decoder()
        self._ready: deque[Message] = deque()
        self._unsent = bytearray()
        self._stopped = False
        self._left = False

    @property
    def pid(self) -> int:
        """Process id of the child, which leads its group."""
        return self._process.pid

    def _wait(self, stream: IO[bytes], event: int, deadline: Deadline, doing: str) -> None:
        if stream.closed:
            raise self.gone()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)
            selector.select(deadline.remaining_s())
        # asked even where there is something: a process that drips would never time out
        deadline.require(f"{self._label}: {doing}", left=f"process {self.pid}; {self._tail()}")

    def send(self, message: Message, deadline: Deadline) -> None:
        """Write one frame; see the interface for what is raised."""
        rest = memoryview(encode(message))
        while rest:
            self._wait(self._stdin, selectors.EVENT_WRITE, deadline, "send")
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self.gone() from error

    def post(self, message: Message) -> None:
        """Write as much of a frame as the child takes now; :meth:`flush` goes on with the rest."""
        self._unsent += encode_reply(message) if isinstance(message, Reply) else encode(message)
        self.flush()

    def flush(self) -> int:
        """Write what the child takes of what was posted, and never wait; -> bytes that are left.

        Raises:
            WrongError: ``RANK_DIED``, it reads no more.
        """
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin.fileno(), self._unsent)]
        except BlockingIOError:
            return len(self._unsent)
        except (OSError, ValueError) as error:
            raise self.gone() from error
        return 0

    @property
    def input(self) -> IO[bytes]:
        """The child's input, for whoever waits until it takes more."""
        return self._stdin

    def end_input(self) -> None:
        """Close the child's input, which asks it to end."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def receive(self, deadline: Deadline) -> Message:
        """Read one frame; see the interface for what is raised."""
        while not self._ready:
            self._wait(self._stdout, selectors.EVENT_READ, deadline, "reply")
            try:
                data = os.read(self._stdout.fileno(), _READ)
            except BlockingIOError:
                continue
            if not data:
                raise self.gone()
            self._ready.extend(self._decoder.feed(data))
        return self._ready.popleft()

    def fileno(self) -> int:
        """Descriptor of the child's output, for whoever waits for several."""
        return self._stdout.fileno()

    @property
    def exited(self) -> bool:
        """Whether the child has ended; what it started may hold its output open."""
        return self.status is not None

    @property
    def status(self) -> int | None:
        """Exit status of the child, negative for a signal; None while it runs."""
        return self._peek()

    def poll(self) -> list[Message]:
        """Return messages that have come, without waiting; a child that floods is cut off.

        Raises:
            WrongError: as :meth:`receive`; messages that came before are returned first.
        """
        for _ in range(_READINGS):
            try:
                data = os.read(self._stdout.fileno(), _READ)
            except BlockingIOError:
                break
            except ValueError:
                # closed by an earlier stop
                raise self.gone() from None
            if not data:
                if not self._ready:
                    raise self.gone()
                break
            self._ready.extend(self._decoder.feed(data))
        taken = list(self._ready)
        self._ready.clear()
        return taken

    def gone(self) -> WrongError:
        """The error that the child has ended or closed its output, with its last line."""
        status = self._peek()
        return WrongError(
            Refusal(
                Code.RANK_DIED,
                self._label,
                "a live process",
                f"its stream ended (status {status}); {self._tail()}",
            )
        )

    def _tail(self) -> str:
        return "last line: " + (self.last_lines(1) or ("none",))[-1]

    def last_lines(self, count: int = 10) -> tuple[str, ...]:
        """The last lines of the child's standard error that are not blank."""
        try:
            with self._log.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - (1 << 14)))
                text = file.read().decode(errors="replace")
        except OSError:
            return ()
        return tuple(line for line in text.splitlines() if line.strip())[-count:]

    def stop(self, grace_s: float) -> int | None:
        """End of input, TERM, KILL, each with its grace; -> exit status, None while any is left.

        A second call does nothing more: by then the group's id may be somebody else's.
        """
        if self._stopped:
            return None if self._left else self._process.returncode
        self.end_input()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._signal(number)
            if _within(grace_s, lambda: self._peek() is not None):
                break
        # whatever the leader left in its group goes with it
        self._signal(signal.SIGKILL)
        if self._peek() is None:
            return None
        self._process.wait()
        self._stdout.close()
        self._stopped = True
        self._left = not _within(grace_s, lambda: not _group_lives(self.pid))
        return None if self._left else self._process.returncode

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _peek(self) -> int | None:
        """Exit status of the leader, None while it runs; not reaped, its id stays its own."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:
            return _UNKNOWN
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _within(limit_s: float, condition: Callable[[], bool]) -> bool:
    """Ask until it holds or the time is over; -> whether it holds."""
    deadline = Deadline.after(SystemClock(), limit_s)
    while not condition():
        if deadline.expired():
            return False
        time.sleep(_POLL_S)
    return True


def _group_lives(group: int) -> bool:
    """Whether a group has a member that is no zombie."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    proc = Path("/proc")
    if not proc.is_dir():
        return True
    return any(_belongs(stat, group) for stat in proc.glob("[0-9]*/stat"))


def _belongs(stat: Path, group: int) -> bool:
    try:
        # the name in parentheses may hold any bytes; after it come state, parent and group
        state, _, found = stat.read_bytes().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(found) == group and state not in (b"Z", b"X")


class LocalTransport:
    """Starts processes on this machine.

    Args:
        name: how whoever asks for them has reached this machine.
    """

    def __init__(self, name: str = "local") -> None:
        self.name = name

    def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str], directory: Path, label: str
    ) -> LocalChannel:
        """See :class:`pp4.transport.interface.Transport`."""
        log = directory / f"{label}.stderr"
        try:
            file = log.open("xb")
        except OSError as error:
            code = Code.EXISTS if isinstance(error, FileExistsError) else Code.UNWRITABLE
            raise RefusedError(
                Refusal(code, str(log), "a new file for standard error", reason_of(error))
            ) from error
        with file:
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    cwd=directory,
                    env=dict(environment),
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                log.unlink()
                raise RefusedError(
                    Refusal(Code.UNREADABLE, argv[0], "a program that starts", reason_of(error))
                ) from error
        return LocalChannel(process, label, log)
