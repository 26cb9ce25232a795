"""What a coordinator and the supervisor of a HOLD say to each other, and a step to the supervisor.

Every request to a supervisor carries the id and the fence of its HOLD.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import Field

from pp4.errors import Code, Refusal, WrongError
from pp4.receipts.envelope import Facts, Sha256
from pp4.wire.frames import Model

SOCKET = "socket"
"""Name of the socket in the directory of a HOLD."""
QUIESCE = "quiesce"
"""Label of the step that a HOLD with quiesce commands begins with."""
Why = Literal["done", "failed", "cancelled"]
Label = Annotated[str, Field(pattern=r"^[a-z][A-Za-z0-9._-]{0,80}$")]
Seconds = Annotated[float, Field(gt=0, le=5400)]


class HostCommand(Model):
    """A program of the receiving host that is run around the work, with its limit in seconds."""

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    limit_s: Seconds


class Given(Model):
    """Evidence as it travels: its role, and the bytes of the receipt in base64."""

    role: str
    data: str

    @classmethod
    def of(cls, role: str, raw: bytes) -> Given:
        """Make it ready to travel."""
        return cls(role=role, data=base64.b64encode(raw).decode())

    def raw(self) -> bytes:
        """Return the bytes of the receipt.

        Raises:
            WrongError: ``BAD_FRAME``, they are not in base64.
        """
        try:
            return base64.b64decode(self.data, validate=True)
        except ValueError as error:
            where, expected = f"evidence {self.role}", "bytes in base64"
            raise WrongError(Refusal(Code.BAD_FRAME, where, expected, str(error))) from error


class Parent(Model):
    """The HOLD of another host that a child belongs to, and whose fence it has.

    Attributes:
        hold: its id.
        fence: its fence.
        hop: number of the hop in it.
        origin: where that fence was granted: fences of two hosts are never compared.
    """

    hold: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    fence: Annotated[int, Field(ge=1)]
    hop: Annotated[int, Field(ge=1)]
    origin: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class FirstClosed(Model):
    """How the first HOLD of a measurement ended; see :class:`pp4.receipts.bindings.ClosedHold`."""

    hold: str
    fence: int
    restored: bool


class Plan(Model):
    """What a measurement has fixed beforehand; evidence is held against it.

    Attributes:
        model_sha256: of what decodes.
        shapes: batch sizes and temperatures.
        settings: everything else.
        first_closed: the end of the first HOLD, for the second.
    """

    model_sha256: Sha256
    shapes: Facts
    settings: Facts
    first_closed: FirstClosed | None = None


class Open(Model):
    """Ask a host for a HOLD.

    Attributes:
        command: what it is for, as :class:`pp4.receipts.admission.Command` has it.
        source_digest: the source that both sides must run.
        evidence: what admits it; the host judges it once more.
        gpu_models: names of the GPUs' models, as far as evidence is held against them.
        drivers: versions of the driver, likewise.
        gpus: UUIDs, rank 0 first.
        rehearsal: whether the GPUs are names only and nothing may run on a real one.
        coordinator: who asks, for people who find the HOLD.
        transport: how they reached this host.
        ttl_s: seconds without a heartbeat after which the host closes the HOLD.
        bound_s: seconds after which it closes it whatever happens.
        state_dir: directory of this user on the host; that of its settings where None.
        host_dir: directory of locks and fences; that of its settings where None.
        quiesce: run after the locks are taken, before anything is started.
        restore: run on every way out, before the tombstone is written.
        parent: what it is a child of; None for a HOLD that takes the GPUs' locks itself.
        plan: of a measurement; None for anything else.
    """

    command: str
    source_digest: str
    evidence: tuple[Given, ...] = ()
    gpu_models: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    gpus: tuple[str, ...]
    rehearsal: bool = False
    coordinator: str
    transport: Literal["ssh", "local"]
    ttl_s: Annotated[float, Field(ge=0.5, le=300)]
    bound_s: Seconds
    state_dir: str | None = None
    host_dir: str | None = None
    quiesce: tuple[HostCommand, ...] = ()
    restore: tuple[HostCommand, ...] = ()
    parent: Parent | None = None
    plan: Plan | None = None


class Granted(Model):
    """What the host granted; see :class:`pp4.hold.open.Grant`.

    Attributes:
        deadline_boottime_ns: boot time of the host at which it closes the HOLD.
        directory: of this user, where the supervisor listens.
        public: directory of registration and tombstone.
        work: directory that processes of the HOLD may write.
        compiled: directory where binaries are kept from HOLD to HOLD.
    """

    hold: str
    fence: Annotated[int, Field(ge=1)]
    nonce: str
    exclusion: Literal["host", "private"]
    boot_id: str
    gpus: tuple[str, ...]
    opened_at: str
    bound_s: Seconds
    ttl_s: float
    deadline_boottime_ns: int
    transport: Literal["ssh", "local"]
    rehearsal: bool
    directory: str
    public: str
    work: str
    compiled: str


class Named(Model):
    """A request without arguments of its own: it names its HOLD."""

    hold: str
    fence: int


class Start(Named):
    """Start a step: ``python -m module`` under a guard; it is told ``arguments``."""

    label: Label
    module: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]*$")]
    arguments: dict[str, Any] = Field(default_factory=dict)


class Watch(Named):
    """Ask how a step is: what it told since the item number ``after``."""

    label: Label
    after: Annotated[int, Field(ge=0)] = 0


class Close(Named):
    """Close exactly this HOLD."""

    why: Why = "done"


class Beat(Model):
    """Answer to a heartbeat: nanoseconds of the lease and of the HOLD that are left."""

    lease_ns: int
    deadline_ns: int
    steps: tuple[str, ...]


class Watched(Model):
    """How a step is.

    Attributes:
        items: what it told, from number ``after`` on.
        last_line: of its standard error.
        ended: whether it answered, or ended without an answer.
        facts: its answer.
        refusal: the refusal that took the answer's place.
    """

    items: tuple[dict[str, Any], ...]
    last_line: str
    ended: bool
    facts: dict[str, Any] | None = None
    refusal: dict[str, str] | None = None


class Closed(Model):
    """The tombstone of a HOLD, as it lies on the host."""

    tombstone: dict[str, Any]


class Run(Model):
    """What a step is told first: its HOLD, and what it was started with."""

    granted: Granted
    arguments: dict[str, Any]


class Own(Model):
    """A step has started a process."""

    pid: Annotated[int, Field(ge=1, le=1 << 22)]
    label: str


class Line(Model):
    """A step asks for a line of the journal; it is answered with all from number ``after`` on."""

    step: str
    event: str
    found: str | None = None
    detail: dict[str, Any] | None = None
    after: Annotated[int, Field(ge=0)] = 0
