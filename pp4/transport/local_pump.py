"""One thread that owns the pipes of a local program, so that nobody else can be stuck in them."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import subprocess
import threading
from typing import IO

from pp4.clock import Deadline
from pp4.transport.attempt import SLICE_S
from pp4.transport.output import Errors, Output, lost

_READ = 1 << 16


class LocalPump:
    """Feeds the input of a program and drains its outputs, until it is let go.

    Only the thread touches the pipes: a file descriptor that one thread closes while another
    selects on it may by then be somebody else's.  The thread ends with the program and collects
    its status, so that no zombie stays behind.

    Args:
        process: a program with three pipes.
        label: names it in refusals.
        errors: where its standard error goes.

    Attributes:
        output: its standard output.
    """

    def __init__(self, process: subprocess.Popen[bytes], label: str, errors: Errors) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a pump needs three pipes")
        self._process, self._label, self._errors = process, label, errors
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self.output = Output(label, freed=self._wake)
        self._changed = threading.Condition()
        self._pending = memoryview(b"")
        self._ending = False
        self._gone: str | None = None
        self._let_go = False
        self._ended = False
        self._status: int | None = None
        self._waking = threading.Lock()
        self._woken, self._waker = socket.socketpair()
        for pipe in (self._stdin, self._stdout, self._stderr, self._woken, self._waker):
            os.set_blocking(pipe.fileno(), False)
        threading.Thread(target=self._run, name=label, daemon=True).start()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """See :class:`pp4.transport.drained.Ends`."""
        where = f"{self._label}: input"
        with self._changed:
            self._pending = memoryview(data)
        self._wake()
        with self._changed:
            try:
                while self._pending and self._gone is None:
                    deadline.require(where, left="a part of it may have been taken")
                    self._changed.wait(min(SLICE_S, deadline.remaining_s()))
            finally:
                self._pending = memoryview(b"")
            if self._gone is not None:
                raise lost(where, self._gone)

    def end_input(self, deadline: Deadline) -> None:
        """See :class:`pp4.transport.drained.Ends`; never waits."""
        with self._changed:
            self._ending = True
        self._wake()

    def exit_status(self, deadline: Deadline) -> int | None:
        """See :class:`pp4.transport.drained.Ends`."""
        with self._changed:
            while not self._ended:
                deadline.require(f"{self._label}: end", left="the program may still run")
                self._changed.wait(min(SLICE_S, deadline.remaining_s()))
            return self._status

    def let_go(self) -> None:
        """See :class:`pp4.transport.drained.Ends`."""
        with self._changed:
            self._let_go = True
            self._say_gone("closed here")
        self._wake()

    def _wake(self) -> None:
        # full: it is going to wake anyway; closed: nobody is left to be woken
        with self._waking, contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _say_gone(self, found: str) -> None:
        self._gone = self._gone or found
        self._changed.notify_all()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._stderr, selectors.EVENT_READ)
            while self._arrange(selector):
                for key, _ in selector.select():
                    self._move(selector, key.fileobj)
        self._finish()

    def _arrange(self, selector: selectors.BaseSelector) -> bool:
        """Choose what to wait for; -> whether there is anything left to do."""
        with self._changed:
            if self._let_go:
                return False
            _want(selector, self._stdin, selectors.EVENT_WRITE, bool(self._pending))
            if self._ending and not self._stdin.closed:
                _want(selector, self._stdin, selectors.EVENT_WRITE, False)
                self._stdin.close()
                self._say_gone("its input was ended")
        _want(selector, self._stdout, selectors.EVENT_READ, self.output.room())
        return not (self._stdin.closed and self._stdout.closed and self._stderr.closed)

    def _move(self, selector: selectors.BaseSelector, ready: object) -> None:
        if ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(_READ)
        elif ready is self._stdin:
            self._push(selector)
        elif ready is self._stdout:
            data = self._pull(selector, self._stdout)
            if data is not None:
                self.output.feed(data) if data else self.output.end()
        else:
            data = self._pull(selector, self._stderr)
            if data is not None:
                self._errors.feed(data) if data else self._errors.end()

    def _push(self, selector: selectors.BaseSelector) -> None:
        with self._changed:
            try:
                done = os.write(self._stdin.fileno(), self._pending[:_READ]) if self._pending else 0
            except BlockingIOError:
                return
            except OSError as error:
                _want(selector, self._stdin, selectors.EVENT_WRITE, False)
                self._stdin.close()
                self._say_gone(f"its input is closed ({error.strerror})")
                return
            self._pending = self._pending[done:]
            if not self._pending:
                self._changed.notify_all()

    def _pull(self, selector: selectors.BaseSelector, pipe: IO[bytes]) -> bytes | None:
        """What a pipe holds; empty at its end, None where it holds nothing yet."""
        try:
            data = os.read(pipe.fileno(), _READ)
        except BlockingIOError:
            return None
        if not data:
            _want(selector, pipe, selectors.EVENT_READ, False)
            pipe.close()
        return data

    def _finish(self) -> None:
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        self.output.break_off("closed here")
        self._errors.end()
        with self._waking:
            self._woken.close()
            self._waker.close()
        # the one who started it collects it, whenever it ends: this thread has nothing else to do
        status = self._process.wait()
        with self._changed:
            self._status = status if status >= 0 else 128 - status
            self._ended = True
            self._changed.notify_all()


def _want(selector: selectors.BaseSelector, pipe: IO[bytes], event: int, wanted: bool) -> None:
    """Make the selector watch a pipe, or not."""
    if pipe.closed:
        return
    watched = pipe in selector.get_map()
    if wanted and not watched:
        selector.register(pipe, event)
    elif watched and not wanted:
        selector.unregister(pipe)
