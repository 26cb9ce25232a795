"""A host behind SSH whose connection is made again, to the same key, after it has ended."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal

from pp4.clock import Deadline
from pp4.errors import Code, RefusedError
from pp4.transport.attempt import exclusively
from pp4.transport.drained import DrainedStream
from pp4.transport.output import lost
from pp4.transport.ssh import SshAddress, SshHost


class LastingHost:
    """As :class:`pp4.transport.ssh.SshHost`, for whoever has to reach a host for long.

    What ran over a connection that ended stays lost.  Only what is begun after it connects anew,
    and only to the pinned key: a host that shows another one is refused like at first.

    Args:
        where: the host, the account and both keys.
        deadline: for the first connection.

    Attributes:
        name: ``ssh``.
        address: user, host and port.
        fingerprint: of the host's key, which is the pinned one.

    Raises:
        TimedOutError, RefusedError: as :class:`pp4.transport.ssh.SshHost`.
    """

    name: Literal["ssh", "local"] = "ssh"

    def __init__(self, where: SshAddress, deadline: Deadline) -> None:
        self._where, self._host = where, SshHost(where, deadline)
        self.address = self._host.address
        self.fingerprint = self._host.fingerprint
        self._connecting, self._lock = threading.Lock(), threading.Lock()
        self._over = threading.Event()

    def run(self, argv: Sequence[str], deadline: Deadline) -> DrainedStream:
        """Start a program; see :class:`pp4.transport.interface.Host`.

        Raises:
            RefusedError: beside that, ``HOST_KEY``: the host shows another key now.
        """
        return self._connected(deadline).run(argv, deadline)

    def put(self, data: bytes, path: str, deadline: Deadline) -> None:
        """Make a file through SFTP; see :meth:`run`."""
        self._connected(deadline).put(data, path, deadline)

    def close(self) -> None:
        """End the connection, for good; programs may go on."""
        with self._lock:
            self._over.set()
            host = self._host
        host.close()

    def _connected(self, deadline: Deadline) -> SshHost:
        with exclusively(self._connecting, deadline, f"ssh {self.address}"):
            before = self._host
            if self._over.is_set() or not before.ended():
                return before
            host = self._anew(deadline)
            with self._lock:
                closed = self._over.is_set()
                self._host = before if closed else host
        if closed:
            # nobody would close what came too late
            host.close()
            raise lost(f"ssh {self.address}", "closed here")
        before.close()
        return host

    def _anew(self, deadline: Deadline) -> SshHost:
        try:
            return SshHost(self._where, deadline)
        except RefusedError as error:
            found = error.refusal
            if found.code is Code.HOST_KEY:
                raise
            # no more than that it is lost, as without another attempt: it may be there again later
            again = f"it ended, and then {found.code}: {found.found}"
            raise lost(f"ssh {self.address}", again) from error
