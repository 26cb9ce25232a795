"""Receipts of runs that are no qualification: the whole worker, the budget, the measurement."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pp4.receipts.envelope import (
    U64,
    Count,
    Decimal,
    Envelope,
    Facts,
    Model,
    Moment,
    Sha256,
    Text,
    Word,
)
from pp4.receipts.gates import Definition, Gpu, Hold, Kernel, Library


class OutputDigest(Model):
    """What came out for one batch size and depth.

    Each of ``blocks`` is the digest of one block over ids, q, tokens and confidences of all of its
    rows, and ``sha256`` the one over them, written out one after another.
    """

    batch: Count
    depth: Count
    n_out: Count
    blocks: tuple[Sha256, ...] = Field(min_length=1)
    sha256: Sha256


class WholeWorker(Envelope):
    """A worker served a fixed set of inputs; what came out, by digest, with the time it took.

    ``n_out`` is the smallest number of positions that was asked for; ``outputs`` has them all.
    """

    kind: Literal["whole_worker"]
    mode: Literal["solo", "physical"]
    verdict: Literal["recorded", "wrong", "timeout", "refused", "unclean"]
    hardware_executed: Literal[True]
    hold: Hold
    definition: Definition
    query_block: Annotated[int, Field(ge=1, le=64)]
    n_out: Annotated[int, Field(ge=1, le=64)]
    checkpoint_sha256: Sha256
    input_set_sha256: Sha256
    outputs: tuple[OutputDigest, ...] = Field(min_length=1)
    settings: Facts
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    gpus: tuple[Gpu, ...] = Field(min_length=1)
    elapsed_ns: U64


class BudgetPart(Model):
    """One part of the projected window.

    ``projected_ns`` is ``worst_ns`` times ``times``, with ``margin_percent`` on top, rounded up.
    """

    name: Word
    worst_ns: U64
    times: Count
    margin_percent: Annotated[int, Field(ge=0, le=1000)]
    samples: Annotated[int, Field(ge=1)]
    projected_ns: U64


class Budget(Envelope):
    """How long a measuring window will take, from measurements of whole blocks alone."""

    kind: Literal["budget"]
    verdict: Literal["fits", "over"]
    hardware_executed: Literal[True]
    hold: Hold
    expires_at: Moment
    bound_ns: U64
    parts: tuple[BudgetPart, ...] = Field(min_length=1)
    projected_ns: U64
    model_sha256: Sha256
    shapes: Facts
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    gpus: tuple[Gpu, ...] = Field(min_length=1)


class Snapshot(Model):
    """Counters at one moment of an arm; the first one is the baseline.

    ``failed_rounds`` is split by cause; ``counters`` are the rest (dropped replies, stale
    generations, sticky errors); ``memory_bytes`` names its sources.
    """

    label: Word
    failed_rounds: dict[Word, U64]
    counters: dict[Word, U64]
    memory_bytes: dict[Word, U64]


class Round(Model):
    """One timed round, with the digest of what came out beside the time."""

    index: Count
    phase: Literal["headline", "profiled"]
    batch: Count
    temperature: Decimal
    tokens: Count
    elapsed_ns: U64
    accepted_by_position: tuple[Count, ...]
    outputs_sha256: Sha256
    facts: Facts


class MeasuredArm(Model):
    """Arm A (OFF) or B (ON) of one half."""

    arm: Literal["A1", "B1", "B2", "A2"]
    switch: Literal["OFF", "ON"]
    verdict: Literal["complete", "failed_rounds_grew", "memory_grew", "partial"]
    baseline_sha256: Sha256
    snapshots: tuple[Snapshot, ...] = Field(min_length=1)
    rounds: tuple[Round, ...]


class Endpoint(Model):
    """The one number that was declared before anything was measured."""

    metric: Literal["tokens_per_second"]
    temperature: Decimal
    batch: Count


class Summary(Model):
    """What both halves say together; made by a pure function from the stored rounds."""

    verdict: Literal["FASTER", "SLOWER", "SAME", "UNDECIDED"]
    effect: Decimal
    interval_low: Decimal
    interval_high: Decimal
    drift: Decimal


class Tombstone(Model):
    """How the first window ended: its identity, the digest of the record, the restore."""

    hold_id: Text
    fence: U64
    sha256: Sha256
    restore: Literal["done", "failed", "not_run"]


class Measurement(Envelope):
    """Half of a controlled comparison of OFF and ON in one common runtime."""

    kind: Literal["measurement"]
    half: Literal["A1B1", "B2A2"]
    complete: bool
    controlled: Literal["fixed-depth-5 common pp4 runtime"]
    hardware_executed: Literal[True]
    hold: Hold
    first_half_closed: Tombstone | None
    endpoint: Endpoint
    noise_threshold: Decimal
    model_sha256: Sha256
    settings: Facts
    arms: tuple[MeasuredArm, ...] = Field(min_length=1, max_length=2)
    summary: Summary | None
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    gpus: tuple[Gpu, ...] = Field(min_length=1)
