"""Processes of this machine, for a rehearsal and for a receiving host that is this one."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.wire import Decoder, Message, encode

_READ = 1 << 16


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

    @property
    def pid(self) -> int:
        """Process id of the child, which leads its group."""
        return self._process.pid

    def _wait(self, stream: object, event: int, deadline: Deadline, doing: str) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(stream, event)  # type: ignore[arg-type]
            if not selector.select(deadline.remaining_s()):
                deadline.require(
                    f"{self._label}: {doing}", left=f"process {self.pid}; {self._tail()}"
                )

    def send(self, message: Message, deadline: Deadline) -> None:
        """Write one frame; see the interface for what is raised."""
        rest = memoryview(encode(message))
        while rest:
            self._wait(self._stdin, selectors.EVENT_WRITE, deadline, "send")
            try:
                rest = rest[os.write(self._stdin.fileno(), rest) :]
            except BlockingIOError:
                continue
            except (BrokenPipeError, ValueError) as error:
                raise self._gone() from error

    def receive(self, deadline: Deadline) -> Message:
        """Read one frame; see the interface for what is raised."""
        while not self._ready:
            self._wait(self._stdout, selectors.EVENT_READ, deadline, "reply")
            try:
                data = os.read(self._stdout.fileno(), _READ)
            except BlockingIOError:
                continue
            if not data:
                raise self._gone()
            self._ready.extend(self._decoder.feed(data))
        return self._ready.popleft()

    def _gone(self) -> WrongError:
        status = self._process.poll()
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
        """End of input, TERM, KILL, each with its grace; -> exit status."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
                break
        # whatever the leader left in its group goes with it
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._stdout.close()
        return self._process.poll()


class LocalTransport:
    """Starts processes on this machine."""

    name = "local"

    def start(
        self, argv: Sequence[str], *, environment: Mapping[str, str], directory: Path, label: str
    ) -> LocalChannel:
        """See :class:`pp4.transport.interface.Transport`."""
        log = directory / f"{label}.stderr"
        try:
            with log.open("xb") as file:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    cwd=directory,
                    env=dict(environment),
                    start_new_session=True,
                )
        except OSError as error:
            raise RefusedError(
                Refusal(Code.UNREADABLE, argv[0], "a program that starts", str(error))
            ) from error
        return LocalChannel(process, label, log)
