"""What a HOLD file says, once it was read: plain values that do not change."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Login:
    """An account that is reached over SSH from this machine.

    Attributes:
        address: host name or IP address.
        port: TCP port.
        user: the account.
        identity_file: the one private key that is offered; absolute.
        host_key: type and base64 of the host's public key.
    """

    address: str
    port: int
    user: str
    identity_file: Path
    host_key: str


@dataclass(frozen=True, slots=True)
class ReceivingHost:
    """The host whose GPUs are held.

    Attributes:
        transport: how it is reached.
        address: host name or IP address; None for this machine, as are user, file and key.
        port: TCP port of its SSH server.
        user: the account on it.
        identity_file: the one private key that is offered; absolute.
        host_key: type and base64 of its public key.
        agent: whether keys of an SSH agent may be offered too.
        jump: the host through which it is reached.
        python: its interpreter, a name or an absolute path.
        state_dir: ``PP4_STATE_DIR`` there, None for the account's default.
        host_dir: ``PP4_HOST_DIR`` there, None for the host's default.
        gpus: UUIDs of the pair, rank 0 first; ``auto`` for the first two that reach each other.
    """

    transport: Literal["ssh", "local"]
    address: str | None
    port: int
    user: str | None
    identity_file: Path | None
    host_key: str | None
    agent: bool
    jump: Login | None
    python: str
    state_dir: str | None
    host_dir: str | None
    gpus: tuple[str, ...] | Literal["auto"]

    @property
    def login(self) -> Login | None:
        """How it is reached over SSH, None for this machine."""
        address, user, file, key = self.address, self.user, self.identity_file, self.host_key
        if address is None or user is None or file is None or key is None:
            return None
        return Login(address, self.port, user, file, key)


@dataclass(frozen=True, slots=True)
class Model:
    """What a measurement runs.

    Attributes:
        drafter: its checkpoint's directory on the receiving host, None for the bundled one.
        target: the same of the target.
        prompts: file of JSON lines there, each the token ids of one prompt; all three are given,
            or none.
        depth: positions of a block.
        batch_sizes: different ones, in the order given.
        temperatures: different ones, in the order given, each in its shortest spelling.
    """

    drafter: str | None
    target: str | None
    prompts: str | None
    depth: int
    batch_sizes: tuple[int, ...]
    temperatures: tuple[Decimal, ...]


@dataclass(frozen=True, slots=True)
class Hop:
    """A further host that the receiving host, and not this machine, reaches over SSH.

    Attributes:
        name: what steps call it; different for each.
        address: host name or IP address as the receiving host knows it.
        port: TCP port.
        user: the account.
        identity_file: the private key, a path on the receiving host.
        host_key: type and base64 of its public key.
        python: its interpreter, a name or an absolute path.
        state_dir: ``PP4_STATE_DIR`` there, None for the account's default.
        host_dir: ``PP4_HOST_DIR`` there, None for the host's default.
    """

    name: str
    address: str
    port: int
    user: str
    identity_file: str
    host_key: str
    python: str
    state_dir: str | None
    host_dir: str | None


@dataclass(frozen=True, slots=True)
class HostCommand:
    """A command that the receiving host runs; no shell reads it.

    Attributes:
        argv: the program, by name or absolute path, and its arguments.
        limit_s: seconds that it may take.
    """

    argv: tuple[str, ...]
    limit_s: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """A receipt that opens the HOLD.

    Attributes:
        role: what it is evidence of; two kinds of receipt can share one.
        path: its file, absolute.
        sha256: of the file.
    """

    role: str
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class HoldFile:
    """A HOLD file that means something.

    Attributes:
        name: what the HOLD is called.
        bound_s: seconds after which the host ends it.
        ttl_s: seconds that a lease lasts without a heartbeat.
        host: the receiving host.
        model: what is measured, None for the bundled pair with its defaults.
        hops: further hosts.
        quiesce: commands after the lock, in order.
        restore: commands on every way out, in order.
        evidence: receipts that open it.
        sha256: of the file.
    """

    name: str
    bound_s: int
    ttl_s: int
    host: ReceivingHost
    model: Model | None
    hops: tuple[Hop, ...]
    quiesce: tuple[HostCommand, ...]
    restore: tuple[HostCommand, ...]
    evidence: tuple[Evidence, ...]
    sha256: str

    @property
    def restore_s(self) -> float:
        """Seconds that the restore commands may take together."""
        return float(sum(one.limit_s for one in self.restore))
