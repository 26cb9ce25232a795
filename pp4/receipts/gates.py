"""Receipts that carry gates: the CPU rehearsal, the physical pair, the single GPU."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pp4.receipts.envelope import (
    U64,
    Count,
    Envelope,
    Fact,
    Facts,
    Integer,
    Model,
    Sha256,
    Text,
    Word,
)

CodeName = r"[A-Z][A-Z0-9_]*"
Expected = Annotated[str, StringConstraints(pattern=rf"^(pass|caught\({CodeName}\))$")]
Found = Annotated[
    str, StringConstraints(pattern=rf"^(pass|(caught|failed|not_run)\({CodeName}\))$")
]
FailedVerdict = Literal["wrong", "timeout", "inconclusive", "refused", "unclean"]


class Definition(Model):
    """The numerical definition of q that was executed, and the digest of its vectors."""

    id: Literal["dyadic24-floor-first-v1"]
    sha256: Sha256


class Hold(Model):
    """The window in which the work ran.

    ``exclusion`` is ``host`` where the whole host shares one set of locks, ``private`` where only
    this user's runs are kept apart.  ``host_key`` is the fingerprint of the key by which the host
    was known, None where it is the coordinator's own.
    """

    id: Text
    fence: U64
    nonce: Sha256 | None = None
    boot_id: Word | None = None
    transport: Literal["ssh", "local"]
    journal_head: Sha256
    exclusion: Literal["host", "private"]
    host_key: Text | None = None


class Arm(Model):
    """One thing that had to pass, or one planted fault that had to be caught."""

    arm: Word
    expected: Expected
    found: Found
    gating: bool
    repetitions: Count
    elapsed_ns: U64
    limit_ns: U64
    facts: Facts


class Gate(Model):
    """A gate with its arms, in the order in which they ran."""

    gate: Annotated[int, Field(ge=0, le=7)]
    name: Text
    arms: tuple[Arm, ...]


class Kernel(Model):
    """A compiled specialisation; what an interpreter runs has neither PTX nor cubin."""

    name: Word = "sampled_fused"
    rank: Annotated[int, Field(ge=0, le=1)]
    target: Text
    ptx_sha256: Sha256 | None
    cubin_sha256: Sha256 | None


class Library(Model):
    """A library that was loaded while the work ran."""

    name: Text
    sha256: Sha256
    build_id: Text | None


class Gpu(Model):
    """A GPU; ``uuid`` and ``pci_id`` name the leaves of ``private`` that hold the real ones."""

    rank: Annotated[int, Field(ge=0, le=1)]
    name: Text
    uuid: Word
    pci_id: Word | None = None
    driver: Text
    memory_bytes: U64 | None = None
    facts: Facts = Field(default_factory=dict)


class JournalLine(Model):
    """One line of the journal as it was written, see :mod:`pp4.receipts.journal`."""

    sequence: Count
    step: Text
    event: Word
    found: Text | None
    previous: Sha256
    detail: dict[Text, Fact]


class GateBody(Envelope):
    """What the three kinds with gates have in common."""

    definition: Definition
    hold: Hold
    settings: Facts
    gates: tuple[Gate, ...]
    kernels: tuple[Kernel, ...]
    libraries: tuple[Library, ...]
    journal: tuple[JournalLine, ...]
    topology: Facts = Field(default_factory=dict)


class Rehearsal(GateBody):
    """The gates on a CPU: it shows that the machinery works, and nothing about any GPU."""

    kind: Literal["rehearsal"]
    scope: Literal["kernels", "full"]
    verdict: Literal["rehearsed"] | FailedVerdict
    hardware_executed: Literal[False]
    gpus: tuple[Gpu, ...] = Field(max_length=0)


class Qualification(GateBody):
    """The gates on a physical pair."""

    kind: Literal["qualification"]
    scope: Literal["kernels", "full"]
    verdict: Literal["qualified"] | FailedVerdict
    hardware_executed: Literal[True]
    gpus: tuple[Gpu, ...]
    checkpoint_sha256: Sha256 | None = None
    input_set_sha256: Sha256 | None = None
    soak: SoakResult | None = None


class SoakResult(Model):
    """A long run of exchanges with random skew; the histogram counts waits by power of two."""

    positions: U64
    mismatches: U64
    wait_histogram: tuple[Integer, ...]


class Solo(GateBody):
    """Both vocabulary halves in one kernel on one GPU; an identity reference, never proof."""

    kind: Literal["solo"]
    scope: Literal["solo"]
    verdict: Literal["qualified"] | FailedVerdict
    hardware_executed: Literal[True]
    gpus: tuple[Gpu, ...]
