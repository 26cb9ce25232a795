"""The socket of a supervisor: connections, frames, and the loop that keeps the HOLD in time."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.desk import Desk
from pp4.wire import Decoder, Reply, Request, encode_reply
from pp4.wire.holds import SOCKET

_READ = 1 << 16
_BACKLOG = 16
_CONNECTIONS = 32
_UNREAD = 32 << 20
"""Bytes of answers that one connection may leave unread before it is dropped."""
_PARTING_S = 10.0


def listen(directory: Path) -> socket.socket:
    """Return a listening socket in a directory that only this user may enter.

    The process changes into the directory: its whole name may be longer than a socket's may be.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.chdir(directory)
        listener.bind(SOCKET)
        os.chmod(SOCKET, 0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        where, found = str(directory / SOCKET), error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNWRITABLE, where, "a socket", found)) from error
    return listener


class _Connection:
    """One client: what came of its next request, and what it has not read yet."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.decoder = Decoder()
        self.unread = bytearray()
        self.waiting: list[int] = []

    def fileno(self) -> int:
        return self.link.fileno()

    def requests(self) -> list[Request] | None:
        """What has come; None where the client is gone or speaks no frames."""
        try:
            data = self.link.recv(_READ)
            if not data:
                return None
            messages = list(self.decoder.feed(data))
        except BlockingIOError:
            return []
        except (OSError, Pp4Error):
            return None
        return [one for one in messages if isinstance(one, Request)]

    def say(self, reply: Reply) -> None:
        self.unread += encode_reply(reply)

    def flush(self) -> bool:
        """Send what may be sent; -> whether the client is still there."""
        try:
            while self.unread:
                del self.unread[: self.link.send(self.unread)]
        except BlockingIOError:
            return len(self.unread) <= _UNREAD
        except OSError:
            return False
        return True


class Server:
    """Serves one desk until its HOLD is to be closed.

    Args:
        listener: of :func:`listen`.
        desk: whose rules apply.
        tick_s: how often the desk looks around while nobody asks anything.
    """

    def __init__(self, listener: socket.socket, desk: Desk, tick_s: float) -> None:
        self._listener, self._desk, self._tick_s = listener, desk, tick_s
        self._connections: list[_Connection] = []

    def serve(self) -> str:
        """Answer until the HOLD is to be closed; -> why it is."""
        while self._desk.closing is None:
            self._turn()
            self._desk.look()
        return self._desk.closing

    def _turn(self) -> None:
        """Wait for one thing to happen, a tick at most, and see to everything that has."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for one in self._connections:
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if one.unread else 0)
                selector.register(one, wanted)
            for step in self._desk.steps.values():
                for end, events in step.awaited:
                    selector.register(end, events)
            busy = any(step.busy for step in self._desk.steps.values())
            ready = {key.fileobj for key, _ in selector.select(0 if busy else self._tick_s)}
        if self._listener in ready:
            self._accept()
        for one in [one for one in self._connections if one in ready]:
            self._serve(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            link, _ = self._listener.accept()
            if len(self._connections) >= _CONNECTIONS:
                # a way that was lost without a word leaves its end here, and is the most silent
                self._connections.pop(0).link.close()
            link.setblocking(False)
            self._connections.append(_Connection(link))

    def _serve(self, one: _Connection) -> None:
        requests = one.requests()
        if requests:
            # the oldest of them is the one that has been silent longest
            self._connections.remove(one)
            self._connections.append(one)
        for request in requests or ():
            reply = self._desk.answer_once(request)
            if reply is None:
                one.waiting.append(request.sequence)
            else:
                one.say(reply)
        if requests is None or not one.flush():
            one.link.close()
            self._connections.remove(one)

    def part(self, last: Reply) -> None:
        """Give whoever asked for the end their answer, and let go of everybody."""
        deadline = Deadline.after(SystemClock(), _PARTING_S)
        self._listener.close()
        for one in self._connections:
            for sequence in one.waiting:
                one.say(last.model_copy(update={"sequence": sequence}))
            one.link.setblocking(True)
            one.link.settimeout(max(0.01, deadline.remaining_s()))
            with contextlib.suppress(OSError):
                one.link.sendall(one.unread)
            one.link.close()
        self._connections.clear()
