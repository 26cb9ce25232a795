"""An SSH connection: made within a deadline, to a host with the pinned key, by one key of ours."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from typing import Any, Final

import paramiko
from paramiko.common import MSG_NEWKEYS

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, RefusedError, TimedOutError, reason_of
from pp4.receipts.canonical import shown
from pp4.transport.attempt import bounded
from pp4.transport.ssh_address import (
    ALGORITHMS,
    HostKey,
    SshAddress,
    fingerprint,
    identity,
    pinned,
    public_half,
    refused_key,
)
from pp4.transport.ssh_signals import note_signals

# Without a handler of its own, what paramiko logs would be printed.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

# Offered by paramiko for old hosts; no host that runs Python 3.11 needs them.
_WEAK: Final = {
    "ciphers": ("3des-cbc", "aes128-cbc", "aes192-cbc", "aes256-cbc"),
    "macs": ("hmac-sha1", "hmac-sha1-96", "hmac-md5", "hmac-md5-96"),
}
_JOIN_S: Final = 1.0


class Connection:
    """One authenticated transport of paramiko, and the one of the jump host below it.

    Attributes:
        transport: what channels are opened on.
        algorithms: what was negotiated, by purpose.
        fingerprint: of the host's key.
    """

    def __init__(self, transport: Any, algorithms: dict[str, str], below: Connection | None):
        self.transport, self.algorithms, self._below = transport, algorithms, below
        self.fingerprint = fingerprint(transport.get_remote_server_key().asbytes())

    def close(self) -> None:
        """End it.  What still waits in it wakes up; nothing here waits for the host."""
        if self._below is not None:
            # first: closing a channel of a connection that is stuck would wait for it
            self._below.close()
        _end(self.transport)


def connect(where: SshAddress, deadline: Deadline) -> Connection:
    """Connect, check the host's key, and authenticate with one key.

    Raises:
        TimedOutError: the deadline had passed before anything was tried.
        RefusedError: ``UNREACHABLE``, ``HOST_KEY`` or ``AUTHENTICATION``.
    """
    hops: list[SshAddress] = []
    hop: SshAddress | None = where
    while hop is not None:
        hops.insert(0, hop)
        hop = hop.jump
    # what is wrong on this side is said before anybody is called
    keys = [(hop, pinned(hop), public_half(hop) if hop.agent else identity(hop)) for hop in hops]
    deadline.require(f"ssh {where}")
    opening = _Opening(deadline)
    try:
        return bounded(
            lambda: opening.through(keys), deadline, f"ssh {where}", late=Connection.close
        )
    except TimedOutError as error:
        raise opening.unreachable(opening.stage) from error
    finally:
        opening.settle()


class _Opening:
    """The steps of one connection; all of it ends when it is given up half way."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._opened: list[Any] = []
        self._done = False
        self._given_up = False
        self._where = ""
        self.stage = "no connection"

    def through(self, hops: list[tuple[SshAddress, HostKey, Any]]) -> Connection:
        """Connect from host to host; runs on a thread that may be left behind."""
        below: Connection | None = None
        for where, expected, key in hops:
            self._where = str(where)
            below = self._to(where, expected, key, below)
        if below is None:
            raise ValueError("a way has at least one host")
        with self._lock:
            self._done = True
        return below

    def settle(self) -> None:
        """Close what was opened, unless it became a connection."""
        with self._lock:
            if self._done:
                return
            self._given_up = True
            opened = list(self._opened)
        for transport in opened:
            _end(transport)

    def unreachable(self, found: str) -> RefusedError:
        """The refusal of a host that does not answer as an SSH server."""
        return RefusedError(
            Refusal(
                Code.UNREACHABLE,
                self._where,
                f"an SSH server that answers within {self._deadline.limit_ns / 1e9:g} s",
                found,
            )
        )

    def _to(
        self, where: SshAddress, expected: HostKey, key: Any, below: Connection | None
    ) -> Connection:
        transport = self._negotiated(where, below, ALGORITHMS[expected.kind])
        if transport is None:
            # it has no key of that kind: asked once more for any, so that the message can name it
            other = self._negotiated(where, below, None)
            found = other.get_remote_server_key().asbytes() if other is not None else b""
            raise _wrong_key(where, expected, found)
        found = transport.get_remote_server_key().asbytes()
        if found != expected.blob:
            raise _wrong_key(where, expected, found)
        self.stage = "it stopped answering while it checked the key"
        self._authenticate(transport, where, key)
        return Connection(transport, _algorithms(transport), below)

    def _negotiated(
        self, where: SshAddress, below: Connection | None, kinds: tuple[str, ...] | None
    ) -> Any:
        """A transport with agreed keys, None where the host has no key of these kinds."""
        self.stage = "no connection"
        transport = paramiko.Transport(self._socket(where, below), disabled_algorithms=_WEAK)
        self._keep(transport)
        self.stage = "a connection, but no greeting of SSH"
        if kinds is not None:
            transport.get_security_options().key_types = kinds
        left = self._deadline.remaining_s()
        transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left
        _note_kex(transport)
        note_signals(transport)
        try:
            transport.start_client(timeout=left)
            # it returns without a word when its time is over
            self._deadline.require("greeting")
            transport.get_remote_server_key()
        except paramiko.IncompatiblePeer as error:
            if kinds is not None and "host key" in str(error):
                return None
            raise self.unreachable(f"no algorithms in common: {shown(str(error))}") from error
        except TimedOutError:
            raise
        # paramiko hands on whatever its thread stumbled over in what the other side sent
        except Exception as error:
            raise self.unreachable(
                f"no SSH server: {shown(reason_of(error) or repr(error))}"
            ) from error
        return transport

    def _socket(self, where: SshAddress, below: Connection | None) -> Any:
        target = (where.address, where.port)
        left = self._deadline.remaining_s()
        try:
            if below is None:
                made = socket.create_connection(target, timeout=left)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return made
            return below.transport.open_channel(
                "direct-tcpip", target, ("127.0.0.1", 0), timeout=left
            )
        except (OSError, UnicodeError) as error:
            raise self.unreachable(reason_of(error) or repr(error)) from error
        except (paramiko.SSHException, EOFError) as error:
            found = error.text if isinstance(error, paramiko.ChannelException) else error
            raise self.unreachable(f"the jump host says: {shown(str(found))}") from error

    def _keep(self, transport: Any) -> None:
        with self._lock:
            self._opened.append(transport)
            given_up = self._given_up
        if given_up:
            _end(transport)

    def _authenticate(self, transport: Any, where: SshAddress, key: Any) -> None:
        expected = f"a host that takes the key {where.identity_file}"
        agent = None
        try:
            if where.agent:
                agent = paramiko.Agent()
                key = _of_agent(where, agent, key)
            also = transport.auth_publickey(where.user, key)
            if also:
                raise refused_key(where, expected, f"it also asks for: {shown(', '.join(also))}")
        except paramiko.BadAuthenticationType as error:
            found = f"it takes no keys, only: {shown(', '.join(error.allowed_types))}"
            raise refused_key(where, expected, found) from error
        except RefusedError:
            raise
        # as above: the thread of paramiko hands on whatever it stumbled over
        except Exception as error:
            self._deadline.require("authentication")
            how = "refused it" if transport.is_active() else "ended the connection over it"
            raise refused_key(where, expected, f"the host {how} ({shown(str(error))})") from error
        finally:
            if agent is not None:
                agent.close()


def _of_agent(where: SshAddress, agent: Any, public: bytes) -> Any:
    for key in agent.get_keys():
        if key.asbytes() == public:
            return key
    raise refused_key(
        where,
        f"an agent that holds the key of {where.identity_file}",
        f"{len(agent.get_keys())} other keys, or no agent",
        f"ssh-add {where.identity_file}",
    )


def _wrong_key(where: SshAddress, expected: HostKey, found: bytes) -> RefusedError:
    return RefusedError(
        Refusal(
            Code.HOST_KEY,
            str(where),
            f"{expected.kind} {expected.fingerprint}",
            f"{_kind_of(found)} {fingerprint(found)}" if found else f"no key of {expected.kind}",
        )
    )


def _kind_of(blob: bytes) -> str:
    return shown(blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode(errors="replace"))


def _note_kex(transport: Any) -> None:
    """Keep the name of the key exchange, which paramiko forgets as soon as it is done."""
    activate = transport._handler_table[MSG_NEWKEYS]

    def noted(message: Any) -> None:
        engine = type(transport.kex_engine)
        names = [name for name, kind in transport._kex_info.items() if kind is engine]
        transport.pp4_kex = names[0] if names else engine.__name__
        activate(message)

    transport._handler_table[MSG_NEWKEYS] = noted


def _algorithms(transport: Any) -> dict[str, str]:
    return {
        "server": shown(transport.remote_version),
        "key_exchange": transport.pp4_kex,
        "host_key": transport.host_key_type,
        "cipher_out": transport.local_cipher,
        "cipher_in": transport.remote_cipher,
        "mac_out": transport.local_mac,
        "mac_in": transport.remote_mac,
        "strict_key_exchange": "yes" if transport.agreed_on_strict_kex else "no",
    }


def _end(transport: Any) -> None:
    """End a transport without a race for its file descriptor.

    Shutting the socket down wakes its thread, which then closes everything itself; a descriptor
    that we closed under it could already be another file.
    """
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        transport.sock.shutdown(socket.SHUT_RDWR)
    if transport.is_alive() and transport is not threading.current_thread():
        transport.join(_JOIN_S)
    transport.packetizer.complete_handshake()
    if transport.is_active():
        transport.close()
    transport.sock.close()
