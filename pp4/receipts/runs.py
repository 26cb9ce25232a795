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
from pp4.receipts.gates import Definition, Gpu, Hold, JournalLine, Kernel, Library


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
    journal: tuple[JournalLine, ...]
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    gpus: tuple[Gpu, ...] = Field(min_length=1)


class Snapshot(Model):
    """Counters at one moment of an arm; the first one is the baseline.

    ``failed_rounds`` counts rows that were decoded without a draft, by cause; ``counters`` are the
    rest (dropped replies, stale generations, sticky errors).  ``memory_bytes`` is by source, and
    each of its sources gates; ``unsupported`` names the sources that gave no number, and why.
    """

    label: Word
    failed_rounds: dict[Word, U64]
    counters: dict[Word, U64]
    memory_bytes: dict[Word, U64] = Field(min_length=1)
    unsupported: dict[Word, Text] = Field(default_factory=dict)


class Round(Model):
    """One timed round, with the digest of what came out beside the time.

    Whole requests are decoded side by side to their ends; rounds of one phase and index have the
    same prompts and keys in every arm.

    Attributes:
        index: in its phase, from 0.
        phase: ``profiled`` rounds also have the parts of each step.
        batch: requests.
        temperature: of all of them.
        tokens: new ones, of all requests together.
        elapsed_ns: from the first step's begin to the last one's end.
        drafted: rows of steps that had a proposal.
        accepted_by_position: of these rows, how many accepted at least so many tokens: entry i is
            about position i of the block, so it never rises.
        outputs_sha256: over the tokens of every request, in order.
        draft_ns: what each step waited for its drafts.
        target_ns: what the target took of each step; profiled rounds alone.
        verify_ns: what verification took of each step; profiled rounds alone.
        memory_bytes: at the end of the round, by source; see :class:`Snapshot`.
        facts: clocks, power, temperature and what slowed each GPU at the end of the round, as
            ``gpu.RANK.NAME``.
    """

    index: Count
    phase: Literal["headline", "profiled"]
    batch: Count
    temperature: Decimal
    tokens: Count
    elapsed_ns: U64
    drafted: Count
    accepted_by_position: tuple[Count, ...]
    outputs_sha256: Sha256
    draft_ns: tuple[Count, ...]
    target_ns: tuple[Count, ...] = ()
    verify_ns: tuple[Count, ...] = ()
    memory_bytes: dict[Word, U64]
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
    """What both halves say together; made by a pure function from the stored rounds.

    ``effect``, the bounds of its 95 % interval and ``drift`` are means of natural logarithms of ON
    over OFF: 0.03 is about 3 % more tokens per second.  ``drift`` is the half A1B1 minus the half
    B2A2.
    """

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


class Span(Model):
    """Something that took a while in a HOLD; moments are nanoseconds since it was opened."""

    kind: Literal["step", "gate", "arm", "phase"]
    name: Text
    begin_ns: U64
    end_ns: U64


class Measurement(Envelope):
    """Half of a controlled comparison of OFF and ON in one common runtime.

    ``model_sha256`` covers the model section, the checkpoints and the prompts; ``settings`` hold
    every number that was fixed beforehand.  ``timeline`` and ``heartbeats_ns``, moments at which
    the host had answered one, are by the coordinator's clock and for people.
    """

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
    journal: tuple[JournalLine, ...]
    timeline: tuple[Span, ...]
    heartbeats_ns: tuple[U64, ...]
    kernels: tuple[Kernel, ...] = Field(min_length=1)
    libraries: tuple[Library, ...]
    gpus: tuple[Gpu, ...] = Field(min_length=1)
