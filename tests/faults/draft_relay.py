"""A way to a worker that knows frames, and does to its replies what a test says.

It stands between two Unix sockets.  What a client says passes as it is; of what the worker says
each DRAFTED goes through a :class:`Fault`, and everything else passes.
"""

import contextlib
import selectors
import socket
import threading

import numpy as np

from pp4.drafter.packing import REPLY_MEMBERS, row_type
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import ANSWERS, QUESTIONS, Abort, Drafted

LIMIT_S = 60.0


def frame(message, body=b"", **changes):
    """The bytes of a frame, members changed."""
    return encode(message.model_copy(update=changes), bytes(body))


class Fault:
    """Does nothing to replies.

    Args:
        some: which of the replies it is done to, counted from 0.

    Attributes:
        done: how many it was done to.
    """

    def __init__(self, some=()):
        self.some, self.seen, self.done = frozenset(some), 0, 0

    def __call__(self, message, body):
        """-> what is sent in the place of a reply."""
        self.seen += 1
        if self.seen - 1 not in self.some:
            return self.passed(message, body)
        self.done += 1
        return self.spoiled(message, body)

    def passed(self, message, body):
        return frame(message, body)

    def spoiled(self, message, body):
        return frame(message, body)

    def aborted(self, request):
        """-> what is sent once the client has given up the draft of a request."""
        return b""


class Dropped(Fault):
    def spoiled(self, message, body):
        return b""


class Late(Fault):
    """Held until the client has given it up."""

    def __init__(self, some=()):
        super().__init__(some)
        self.held = {}

    def spoiled(self, message, body):
        self.held[message.request] = frame(message, body)
        return b""

    def aborted(self, request):
        return self.held.pop(request, b"")


class Doubled(Fault):
    def spoiled(self, message, body):
        return frame(message, body) * 2


class Replayed(Fault):
    """The slot's reply before this one comes once more, ahead of it, as it was."""

    def __init__(self, some=()):
        super().__init__(some)
        self.before = {}

    def passed(self, message, body):
        self.before[message.slot] = message, bytes(body)
        return frame(message, body)

    def spoiled(self, message, body):
        old = frame(*self.before[message.slot])
        return old + self.passed(message, body)


class Stale(Replayed):
    """The slot's reply before this one comes in its place, as the answer to what was asked."""

    def spoiled(self, message, body):
        old, old_body = self.before[message.slot]
        self.before[message.slot] = message, bytes(body)
        return frame(old, old_body, sequence=message.sequence)


class Paired(Fault):
    """Waits for a second reply of the same step."""

    held = None

    def spoiled(self, message, body):
        if self.held is None:
            self.held = message, bytes(body)
            return b""
        first, self.held = self.held, None
        return self.swapped(first, (message, bytes(body)))


class SwappedSlots(Paired):
    def swapped(self, first, second):
        return frame(*first, slot=second[0].slot) + frame(*second, slot=first[0].slot)


class SwappedBodies(Paired):
    def swapped(self, first, second):
        return frame(first[0], second[1]) + frame(second[0], first[1])


class SwappedSequences(Paired):
    def swapped(self, first, second):
        return frame(*first, sequence=second[0].sequence) + frame(
            *second, sequence=first[0].sequence
        )


class Unasked(Fault):
    """A slot that no engine has."""

    def spoiled(self, message, body):
        return frame(message, body, slot=message.slot + 1000)


class OffByATicket(Fault):
    def spoiled(self, message, body):
        whole = row_type(message.block)
        row = np.frombuffer(body, np.dtype([(name, whole[name]) for name in REPLY_MEMBERS])).copy()
        row["q"][0, 0, 0] += np.float32(2**-24) * (-1 if row["q"][0, 0, 0] else 1)
        return frame(message, row.tobytes())


class Cut(Fault):
    def spoiled(self, message, body):
        return frame(message, body)[:-7]


class Ended(Fault):
    """The connection ends in the place of a reply."""

    def spoiled(self, message, body):
        return None


class Relay:
    """Passes connections on to a worker.

    Args:
        path: where it listens.
        worker: path of the worker's socket.
        fault: what is done to replies.
    """

    def __init__(self, path, worker, fault):
        self.path, self.fault = path, fault
        self._worker, self._selector = worker, selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._ending, self._end = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ending, selectors.EVENT_READ, None)
        self._open = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end.send(b"x")
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        for one in (self._listener, self._ending, self._end):
            one.close()
        self._selector.close()

    def _run(self):
        while True:
            ready = [key.data for key, _ in self._selector.select(LIMIT_S)]
            if None in ready:
                break
            for passes_on in ready:
                passes_on()
        for pair in list(self._open):
            pair.close()

    def _accept(self):
        near, _ = self._listener.accept()
        far = socket.socket(socket.AF_UNIX)
        for one in (near, far):
            one.settimeout(LIMIT_S)
        try:
            far.connect(str(self._worker))
        except OSError:
            near.close()
            far.close()
            return
        pair = _Pair(near, far, self.fault, self._selector, self._open)
        self._open.add(pair)


class _Pair:
    def __init__(self, near, far, fault, selector, others):
        self._near, self._far, self._fault = near, far, fault
        self._selector, self._others = selector, others
        self._questions, self._answers = Decoder(QUESTIONS), Decoder(ANSWERS)
        selector.register(near, selectors.EVENT_READ, self._asked)
        selector.register(far, selectors.EVENT_READ, self._told)

    def close(self):
        self._others.discard(self)
        for one in (self._near, self._far):
            with contextlib.suppress(KeyError):
                self._selector.unregister(one)
            one.close()

    def _asked(self):
        data = self._read(self._near)
        if data is None:
            return
        self._send(self._far, data)
        for one in self._questions.feed(data):
            if isinstance(one.message, Abort):
                self._send(self._near, self._fault.aborted(one.message.request))

    def _told(self):
        data = self._read(self._far)
        if data is None:
            return
        out = b""
        for message, body in self._answers.feed(data):
            spoiled = isinstance(message, Drafted)
            piece = self._fault(message, body) if spoiled else frame(message, body)
            if piece is None:
                self.close()
                return
            out += piece
        self._send(self._near, out)

    def _read(self, one):
        try:
            data = one.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.close()
            return None
        return data

    def _send(self, one, data):
        # the other end may be gone, which is seen with the next read
        with contextlib.suppress(OSError):
            one.sendall(data)
