"""Decodes one round, timed; and what is taken down of it."""

from __future__ import annotations

import gc
import hashlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pp4.clock import NS_PER_S, Clock, Deadline
from pp4.engine.decoding import Engine
from pp4.engine.requests import Request
from pp4.engine.steps import StepFacts
from pp4.errors import Code, Refusal, TimedOutError, WrongError
from pp4.receipts.envelope import Facts
from pp4.receipts.runs import Round
from pp4.verifier.units import Mode
from pp4.wire.measured import RunRound


@dataclass(frozen=True, slots=True)
class Decoded:
    """One round.

    Attributes:
        outputs: new tokens of each request, in the order in which they were asked for.
        steps: that it took.
        elapsed_ns: from the first step's begin to the last one's end.
    """

    outputs: tuple[tuple[int, ...], ...]
    steps: tuple[StepFacts, ...]
    elapsed_ns: int

    @property
    def tokens(self) -> int:
        """New ones, of all requests."""
        return sum(map(len, self.outputs))

    @property
    def drafted(self) -> int:
        """Rows of steps that had a proposal."""
        return sum(row.cause is None for step in self.steps for row in step.rows)

    def accepted_by_position(self, depth: int) -> tuple[int, ...]:
        """For each position how many drafted rows accepted the token there."""
        counted = Counter(
            row.accepted for step in self.steps for row in step.rows if row.cause is None
        )
        return tuple(
            sum(rows for accepted, rows in counted.items() if accepted > position)
            for position in range(depth)
        )

    def nanoseconds(self, part: str) -> tuple[int, ...]:
        """What a part of each step took: ``draft``, ``target`` or ``verify``."""
        return tuple(round(getattr(step, f"{part}_s") * NS_PER_S) for step in self.steps)

    def tree(
        self, asked: RunRound, depth: int, memory_bytes: dict[str, str], facts: Facts
    ) -> dict[str, Any]:
        """What an arm is answered: a :class:`Round`, but for the phase of what no receipt has.

        Args:
            asked: what was asked for.
            depth: tokens of every proposal.
            memory_bytes: at the end of the round.
            facts: likewise.
        """
        profiled = asked.phase == "profiled"
        found = Round(
            index=asked.index,
            # the model has no place for the rounds before the baseline
            phase="profiled" if profiled else "headline",
            batch=asked.batch,
            temperature=asked.temperature,
            tokens=self.tokens,
            elapsed_ns=str(self.elapsed_ns),
            drafted=self.drafted,
            accepted_by_position=self.accepted_by_position(depth),
            outputs_sha256=outputs_sha256(self.outputs),
            draft_ns=self.nanoseconds("draft"),
            target_ns=self.nanoseconds("target") if profiled else (),
            verify_ns=self.nanoseconds("verify") if profiled else (),
            memory_bytes=memory_bytes,
            facts=facts,
        )
        return {**found.model_dump(mode="json"), "phase": asked.phase}


def decode(
    engine: Engine, requests: Sequence[Request], clock: Clock, deadline: Deadline
) -> Decoded:
    """Decode requests to their ends, without the garbage collector.

    Args:
        engine: with as many free slots; it has no other request.
        requests: of the round.
        clock: the engine's own, too.
        deadline: looked at between steps; what a step waits for its drafts ends with it as well,
            where ``Drafts.until`` says so.

    Raises:
        TimedOutError: ``STEP_TIMEOUT``: the engine is in no state to go on.
        WrongError: ``BAD_LOGITS``: likewise.
    """
    numbers = [engine.submit(request) for request in requests]
    steps: list[StepFacts] = []
    with uncollected():
        began = clock.monotonic_ns()
        for step in engine.steps():
            steps.append(step)
            if deadline.expired():
                break
        ended = clock.monotonic_ns()
    found = {one.request: one.tokens for step in steps for one in step.finished}
    if deadline.expired():
        raise _late(deadline, steps, f"{len(found)} of {len(numbers)} requests")
    return Decoded(tuple(found[number] for number in numbers), tuple(steps), ended - began)


def require_drawn(decoded: Decoded, temperature: float, sampled: bool) -> None:
    """Refuse a round whose drafts are not what its arm is about.

    A worker may answer with a greedy draft what was asked for as a sampled one.  That is a good
    answer, and an arm of such drafts would be compared under a false name.

    Args:
        decoded: the round.
        temperature: of all of its requests.
        sampled: whether the arm's switches are on.

    Raises:
        WrongError: ``BAD_PROPOSAL``.
    """
    above = Mode.SAMPLED if sampled else Mode.DELTA
    wanted = above if temperature > 0 else Mode.GREEDY_T0
    modes = Counter(row.mode for step in decoded.steps for row in step.rows if row.cause is None)
    others = {mode.name: rows for mode, rows in sorted(modes.items()) if mode is not wanted}
    if others:
        expected = f"{wanted.name} alone, with the switches {'on' if sampled else 'off'}"
        found = ", ".join(f"{rows} rows {name}" for name, rows in others.items())
        raise WrongError(Refusal(Code.BAD_PROPOSAL, "drafts", expected, found))


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect garbage, then do without the collector: a collection takes longer than a step."""
    running = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def outputs_sha256(outputs: Sequence[Sequence[int]]) -> str:
    """sha256 over the tokens of each request, in order.

    Each is its number of tokens and then the tokens, all as little-endian unsigned 32-bit numbers.
    """
    digest = hashlib.sha256()
    for tokens in outputs:
        digest.update(struct.pack(f"<I{len(tokens)}I", len(tokens), *tokens))
    return digest.hexdigest()


def _late(deadline: Deadline, steps: Sequence[StepFacts], ended: str) -> TimedOutError:
    causes = Counter(row.cause for step in steps for row in step.rows if row.cause is not None)
    plain = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
    found = f"{ended} ended in {len(steps)} steps; rows without a draft: {plain or 'none'}"
    expected = f"an end within {deadline.limit_ns / NS_PER_S:g} s"
    return TimedOutError(Refusal(Code.STEP_TIMEOUT, "decoding", expected, found))
