"""Where an SSH host is and what it has to show; the keys of both sides, read and refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import paramiko

from pp4.errors import Code, Refusal, RefusedError, reason_of

# What a pinned key may be, and by which algorithms a host may prove that it has it.
ALGORITHMS: Final = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
_MAX_IDENTITY: Final = 1 << 16
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SshAddress:
    """A host, an account on it, the key that opens it and the key that it has to show.

    Attributes:
        address: name or IP address.
        port: TCP port.
        user: the account.
        identity_file: the one private key that is offered; with ``agent``, a key of the agent whose
            public half is this file or the file of the same name with ``.pub`` behind it.
        host_key: the host's public key as a line of OpenSSH (``ssh-ed25519 AAAA...``).
        agent: whether the running agent signs, with that one key and no other.
        jump: the host that the connection goes through, with a pinned key of its own.
    """

    address: str
    port: int
    user: str
    identity_file: Path
    host_key: str
    agent: bool = False
    jump: SshAddress | None = None

    def __str__(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostKey:
    """A public key that a host has to show.

    Attributes:
        kind: its type.
        blob: the key as it goes over the wire.
    """

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """What ssh-keygen says of it: ``SHA256:`` and base64 without padding."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """The fingerprint of a public key as OpenSSH writes it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"SHA256:{digest.rstrip('=')}"


def pinned(where: SshAddress) -> HostKey:
    """Read the host key of an address.

    Raises:
        RefusedError: ``HOST_KEY``, there is none or it is no public key.
    """
    words = where.host_key.split()
    found = "none" if not words else _shown(where.host_key)
    if len(words) >= 2 and words[0] in ALGORITHMS:
        try:
            blob = base64.b64decode(words[1], validate=True)
            # what cannot be read, or holds more than the key, can never be shown by a host
            if paramiko.PKey.from_type_string(words[0], blob).asbytes() == blob:
                return HostKey(words[0], blob)
        # the parsers of keys hand on whatever they stumbled over, overflows included
        except Exception as error:
            found = f"{found} ({str(error)[:80]})"
    raise RefusedError(
        Refusal(
            Code.HOST_KEY,
            str(where),
            f"the host's public key as OpenSSH writes it: one of {', '.join(ALGORITHMS)}, base64",
            found,
            next="ask whoever runs the host for the line of its /etc/ssh/ssh_host_*_key.pub",
        )
    )


def _shown(text: str) -> str:
    # a private key that was put there by mistake must not end up in a message
    first = text.split()[0]
    return f"{first[:40]!r} and {len(text) - len(first)} more characters"


def refused_key(where: SshAddress, expected: str, found: str, after: str = "") -> RefusedError:
    """The refusal of a key of ours that cannot be offered or was not taken."""
    return RefusedError(Refusal(Code.AUTHENTICATION, str(where), expected, found, next=after))


def identity(where: SshAddress) -> Any:
    """Load the private key of an address, as strictly as OpenSSH does.

    Returns:
        A key of paramiko.

    Raises:
        RefusedError: ``AUTHENTICATION``, it is missing, unreadable, readable by others, locked by
            a passphrase or no private key.
    """
    path = where.identity_file
    text = _text(where, path, private=True)
    locked = False
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(text))
        except paramiko.PasswordRequiredException:
            locked = True
        # as above; it is the wrong kind, or damaged
        except Exception:
            continue
    if locked:
        raise refused_key(
            where,
            "a private key without a passphrase, or one that an agent holds",
            f"{path} is locked by a passphrase",
            "put it into an agent (ssh-add) and say agent = true in the HOLD file",
        )
    raise refused_key(
        where,
        "a private key in the format of OpenSSH",
        f"{path} is none",
        f"convert a key of another format: ssh-keygen -p -f {path}",
    )


def public_half(where: SshAddress) -> bytes:
    """The public key that names the one key of the agent.

    Raises:
        RefusedError: ``AUTHENTICATION``, neither the identity file nor its ``.pub`` is one.
    """
    path = where.identity_file
    for candidate in (path, path.with_name(f"{path.name}.pub")):
        if not candidate.is_file():
            continue
        words = _text(where, candidate, private=False).split()
        if len(words) >= 2 and words[0] in ALGORITHMS:
            try:
                return base64.b64decode(words[1], validate=True)
            except (binascii.Error, ValueError):
                continue
    raise refused_key(
        where,
        f"a public key in {path} or {path}.pub, which names the key of the agent",
        "none",
        f"put the line of ssh-add -L that is meant into {path}.pub",
    )


def _text(where: SshAddress, path: Path, *, private: bool) -> str:
    try:
        # a pipe in its place must not make us wait for a writer
        file = os.open(path, _FLAGS)
        with open(file, "rb") as stream:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise refused_key(where, "a file with a key", f"{path} is no regular file")
            data = stream.read(_MAX_IDENTITY)
    except (OSError, ValueError) as error:
        reason = f"{path}: {reason_of(error)}"
        raise refused_key(where, "a file with a key", reason) from error
    mode = stat.S_IMODE(found.st_mode)
    if private and found.st_uid == os.getuid() and mode & 0o077:
        raise refused_key(
            where,
            "a private key that nobody else can read",
            f"{path} with mode {mode:04o}",
            f"chmod 600 {path}",
        )
    return data.decode("ascii", errors="replace")
