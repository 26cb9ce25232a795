"""A way to a server that counts what passes and breaks where a test says so."""

import select
import socket
import threading


class Relay:
    """Passes connections on to a port of this machine.

    Attributes:
        port: where it listens.
        sent: bytes that clients sent through it.
        cut_after: ends all connections once clients sent this many bytes; None for never.
    """

    def __init__(self, target):
        self.sent, self.cut_after = 0, None
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ending, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        pairs = {}
        while True:
            ready, _, _ = select.select([self._listener, self._ending, *pairs], [], [])
            if self._ending in ready:
                break
            for one in ready:
                if one is self._listener:
                    client, _ = self._listener.accept()
                    server = socket.create_connection(("127.0.0.1", self._target))
                    pairs |= {client: server, server: client}
                    client_ends = {client}
                elif one in pairs:
                    self._pass_on(one, pairs, one in client_ends)
        for one in pairs:
            one.close()

    def _pass_on(self, one, pairs, from_client):
        try:
            data = one.recv(1 << 14)
            if from_client:
                self.sent += len(data)
                if self.cut_after is not None and self.sent >= self.cut_after:
                    data = b""
            if data:
                pairs[one].sendall(data)
        except OSError:
            data = b""
        if not data:
            other = pairs.pop(one)
            pairs.pop(other)
            one.close()
            other.close()

    def close(self):
        self._end.send(b"x")
        self._thread.join(60)
        for one in (self._listener, self._ending, self._end):
            one.close()


class Silent:
    """A port that takes connections and says one thing, or nothing."""

    def __init__(self, greeting=b""):
        self._greeting = greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ending, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        taken = []
        while True:
            ready, _, _ = select.select([self._listener, self._ending], [], [])
            if self._ending in ready:
                break
            taken.append(self._listener.accept()[0])
            taken[-1].sendall(self._greeting)
        for one in taken:
            one.close()

    def close(self):
        self._end.send(b"x")
        self._thread.join(60)
        for one in (self._listener, self._ending, self._end):
            one.close()
