"""Decoding with drafts: several requests side by side, each step one run of the target.

    engine = Engine(target, drafts)
    for prompt in prompts:
        engine.submit(Request(prompt, limit=64))
    for step in engine.steps():
        for output in step.finished:
            ...

What comes out has the target's distribution, and at temperature 0 it is the target's own greedy
text, whatever the drafter proposes and whatever becomes of it (arXiv 2211.17192; the numbers are
those of ``pp4.verifier``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from pp4.clock import NS_PER_S, Clock, SystemClock
from pp4.engine.counters import DecodingCounters
from pp4.engine.drafting import Cause, DraftSource, Want
from pp4.engine.interface import Row, Target
from pp4.engine.judging import Play, Verdict, judged
from pp4.engine.requests import Output, Request, require_possible
from pp4.engine.sequences import Live
from pp4.engine.steps import RowFacts, StepFacts
from pp4.errors import BadInputError
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import Mode

_CLOCK: Final = SystemClock()


class Engine:
    """Decodes requests in the slots of a target; one thread.

    A call that raises leaves the step undone and the engine in no state to go on.

    Args:
        target: its slots are the engine's.
        drafts: who drafts, None for nobody.
        clock: for the seconds of :class:`StepFacts`.

    Attributes:
        counters: see there.

    Raises:
        BadInputError: a proposal and its anchor do not fit the target's window.
    """

    def __init__(
        self, target: Target, drafts: DraftSource | None = None, *, clock: Clock = _CLOCK
    ) -> None:
        if drafts is not None and drafts.depth + 1 > target.window:
            expected = f"a window of at least {drafts.depth + 1} tokens"
            raise BadInputError.of("target", expected, f"{target.window}")
        self.counters = DecodingCounters()
        self._target, self._drafts, self._clock = target, drafts, clock
        self._queue: deque[tuple[int, Request]] = deque()
        self._live: dict[int, Live] = {}
        self._numbers = 0

    def submit(self, request: Request) -> int:
        """Queue a request for the next free slot; -> the engine's number of it.

        Raises:
            BadInputError: the target cannot serve it to its end.
        """
        require_possible(request, self._target)
        number, self._numbers = self._numbers, self._numbers + 1
        # a prompt may be a list that its caller goes on to write
        self._queue.append((number, replace(request, prompt=tuple(request.prompt))))
        return number

    def run(self, requests: Iterable[Request]) -> list[Output]:
        """Decode requests to their ends; -> what came of them, in their order.

        Raises:
            BadInputError: the target cannot serve one of them; none was queued.
            WrongError: as :meth:`steps`.
        """
        requests = list(requests)
        for request in requests:
            require_possible(request, self._target)
        numbers = [self.submit(request) for request in requests]
        found = {one.request: one for step in self.steps() for one in step.finished}
        return [found[number] for number in numbers]

    def steps(self) -> Iterator[StepFacts]:
        """Yield each step once it is done, until nothing is left; more may be submitted between.

        Raises:
            WrongError: ``BAD_LOGITS``, the target's logits give no distribution.
        """
        while self._queue or self._live:
            yield self._step()

    # -- a step -----------------------------------------------------------------------------

    def _step(self) -> StepFacts:
        watch = _Watch(self._clock)
        self._begin()
        live = [self._live[slot] for slot in sorted(self._live)]
        begin_s = watch.lap_s()
        drafts = self._drafted(live)
        draft_s = watch.lap_s()
        pairs = list(zip(live, drafts, strict=True))
        step = self._target.step([_row(one, draft) for one, draft in pairs])
        _wait_for(step.logits)
        target_s = watch.lap_s()
        verdicts = judged(step.logits, [_play(one, draft) for one, draft in pairs])
        verify_s = watch.lap_s()

        features = None if self._drafts is None else _on_host(step.features)
        rows, finished = [], []
        for index, ((one, draft), verdict) in enumerate(zip(pairs, verdicts, strict=True)):
            rows.append(self._emitted(one, draft, verdict))
            output = one.output()
            if output is None:
                self._go_on(one, verdict, None if features is None else features[index])
            else:
                self._end(one)
                finished.append(output)
        index, self.counters.steps = self.counters.steps, self.counters.steps + 1
        return StepFacts(
            index=index,
            rows=tuple(rows),
            begin_s=begin_s,
            draft_s=draft_s,
            target_s=target_s,
            verify_s=verify_s,
            finished=tuple(finished),
        )

    def _begin(self) -> None:
        """Give free slots to requests that wait."""
        for slot in range(self._target.slots):
            if slot in self._live or not self._queue:
                continue
            number, request = self._queue.popleft()
            *before, anchor = request.prompt
            features = self._target.prefill(slot, before)
            if self._drafts is not None:
                self._drafts.open(slot, number, request.key)
                self._drafts.keep(slot, features.to("cpu", copy=True))
            self._live[slot] = Live(number, request, slot, anchor, kept=len(before))
            self.counters.requests += 1

    def _drafted(self, live: list[Live]) -> list[Proposal | Cause]:
        """Ask for a draft of each sequence that has room for one."""
        if self._drafts is None:
            return [Cause.NO_DRAFTS] * len(live)
        longest = self._target.context - (1 + self._drafts.depth)
        roomy = [one for one in live if one.kept <= longest]
        wants = [
            Want(one.slot, one.round, one.anchor, one.position, one.request.temperature)
            for one in roomy
        ]
        told = self._drafts.draft(wants) if wants else []
        found = dict(zip((one.slot for one in roomy), told, strict=True))
        return [found.get(one.slot, Cause.NO_ROOM) for one in live]

    def _emitted(self, one: Live, draft: Proposal | Cause, verdict: Verdict) -> RowFacts:
        """Give a request its tokens."""
        proposal = None if isinstance(draft, Cause) else draft
        row = RowFacts(
            request=one.number,
            slot=one.slot,
            round=one.round,
            position=one.position,
            mode=Mode.INACTIVE if proposal is None else proposal.mode,
            cause=draft if isinstance(draft, Cause) else None,
            proposed=0 if proposal is None else proposal.depth,
            accepted=verdict.accepted,
            tokens=one.emit(verdict.tokens),
        )
        self._count(row)
        return row

    def _go_on(self, one: Live, verdict: Verdict, features: Tensor | None) -> None:
        kept = 1 + verdict.accepted
        self._target.keep(one.slot, kept)
        if self._drafts is not None and features is not None:
            # a copy, so that a step's features are not held for the sake of one row
            self._drafts.keep(one.slot, features[:kept].clone())
        one.kept += kept
        one.anchor = verdict.tokens[-1]
        one.round += 1

    def _end(self, one: Live) -> None:
        del self._live[one.slot]
        if self._drafts is not None:
            self._drafts.close(one.slot)
        self.counters.finished += 1

    def _count(self, row: RowFacts) -> None:
        counters = self.counters
        counters.tokens += len(row.tokens)
        if row.cause is None:
            counters.drafted_rows += 1
            counters.proposed += row.proposed
            counters.accepted += row.accepted
        else:
            counters.plain_rows += 1
            counters.plain[row.cause] += 1

    def as_dict(self) -> dict[str, int]:
        """Counters of the engine, and of whoever drafts under names that begin with ``drafts_``."""
        drafts = {} if self._drafts is None else self._drafts.as_dict()
        return {**self.counters.as_dict(), **{f"drafts_{name}": n for name, n in drafts.items()}}


class _Watch:
    """Seconds between one thing and the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._last = clock, clock.monotonic_ns()

    def lap_s(self) -> float:
        """Seconds since the last lap."""
        before, self._last = self._last, self._clock.monotonic_ns()
        return (self._last - before) / NS_PER_S


def _row(one: Live, draft: Proposal | Cause) -> Row:
    proposed = [] if isinstance(draft, Cause) else draft.tokens.tolist()
    return Row(one.slot, [one.anchor, *proposed])


def _play(one: Live, draft: Proposal | Cause) -> Play:
    proposal = None if isinstance(draft, Cause) else draft
    request = one.request
    return Play(proposal, request.temperature, request.key, one.position, one.round)


def _on_host(features: Tensor) -> Tensor:
    """Features of a step on the host, from a GPU in pinned memory and by one copy."""
    copied = features.to("cpu", non_blocking=True)
    _wait_for(features)
    return copied


def _wait_for(computed: Tensor) -> None:
    """Wait until a device has computed it, so that the seconds of a step are those of its work."""
    if computed.is_cuda:
        torch.cuda.current_stream(computed.device).synchronize()
