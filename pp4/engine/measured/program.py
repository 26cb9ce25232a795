"""What an arm asks of its engine, and how it is answered; see :mod:`pp4.wire.measured`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import SWITCHES, engine_switch
from pp4.engine.adapters.handshake import Wanted
from pp4.engine.decoding import Engine
from pp4.engine.drafting import Cause
from pp4.engine.drafts import Drafts
from pp4.engine.measured.decoding import decode, require_drawn
from pp4.engine.measured.looking import Resident, allocator, gpu_facts, gpu_memory
from pp4.engine.measured.pair import Pair, load_pair
from pp4.engine.measured.prompts import keys_of, prompts_of
from pp4.engine.patience import Patience
from pp4.engine.requests import Request as Prompt
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError
from pp4.receipts.runs import Snapshot
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.measured import Connect, Look, Prepare, Prepared, RunRound
from pp4.wire.offers import Offer
from pp4.worker.answering import Verb, reply_to
from pp4.worker.gpu_readings import GpuReadings, Reading

NO_FAILURE: Final = (Cause.NO_DRAFTS, Cause.NO_ROOM)
"""Causes of rows without a draft that say nothing of a worker."""
_ENGINE: Final = "engine"
_PLAIN: Final = "plain_"
_PATIENCE: Final = Patience(draft_s=30.0, exchange_s=30.0)
"""A row that fails for want of time fails the arm.  So the limit is far from what a block takes,
also where a CPU computes it, and from what the features of a round's prompts take together."""
M = TypeVar("M", bound=Model)


class _Nothing(Model):
    """No arguments."""


class Program:
    """Answers an arm; one thread.

    Args:
        clock: of the engine's times.
        patience: with the worker; a round's limit ends it too.
        nvml: the module to ask about GPUs; the installed ``pynvml`` where it is None.
        switch: the engine's own.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        patience: Patience = _PATIENCE,
        nvml: Any = None,
        switch: Callable[[], bool] = engine_switch,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._patience, self._nvml, self._switch = patience, nvml, switch
        self._pair: Pair | None = None
        self._readings: GpuReadings | None = None
        self._own = Resident({_ENGINE: os.getpid()})
        self._worker = Resident({})
        self._drafts: Drafts | None = None
        self._engine: Engine | None = None
        self._failed: Refusal | None = None
        self._sampled = False
        self._verbs: Mapping[str, Verb] = {
            "prepare": _verb(Prepare, self._prepare),
            "connect": _verb(Connect, self._connect),
            "round": _verb(RunRound, self._round),
            "look": _verb(Look, self._look),
            "disconnect": _verb(_Nothing, self._disconnect),
        }

    def answer(self, request: Request) -> Reply:
        """Answer one request; every failure is a refusal in the reply."""
        return reply_to(request, self._verbs, _ENGINE)

    def close(self) -> None:
        """Let go of the worker and of what is looked at."""
        gc.unfreeze()
        if self._drafts is not None:
            self._drafts.disconnect()
        self._own.close()
        self._worker.close()
        if self._readings is not None:
            self._readings.close()

    # -- verbs ------------------------------------------------------------------------------

    def _prepare(self, asked: Prepare) -> dict[str, Any]:
        if self._pair is not None:
            raise BadInputError.of("prepare", "to be asked once", "a second time")
        pair = load_pair(asked)
        if asked.gpus:
            self._readings = GpuReadings(asked.gpus, self._nvml)
        self._pair = pair
        prepared = Prepared(
            target_sha256=pair.target_sha256,
            drafter_sha256=pair.drafter_sha256,
            prompts_sha256=pair.prompts.sha256,
            prompts=len(pair.prompts.tokens),
            vocab=pair.target.vocab,
            context=pair.target.context,
            device=pair.device_name,
            versions=pair.versions,
        )
        return prepared.model_dump(mode="json")

    def _connect(self, asked: Connect) -> dict[str, Any]:
        pair = self._prepared("connect")
        if self._engine is not None:
            raise BadInputError.of("connect", "to be asked once", "a second time")
        self._require_switch(asked.sampled)
        if _ENGINE in asked.processes:
            raise BadInputError.of("processes", "those of the worker", f"one called {_ENGINE}")
        drafter, depth = pair.drafter, pair.asked.depth
        wanted = Wanted.of(
            vocab=pair.target.vocab,
            block=drafter.block,
            depth=depth,
            sampled=asked.sampled,
            draft_vocab=drafter.draft_vocab,
        )
        drafts = Drafts(asked.socket, pair.target, wanted, self._patience)
        drafts.until = Deadline.after(SystemClock(), asked.limit_s)
        drafts.connect()
        try:
            _require_worker(drafts.offer, asked.sampled, pair)
            self._worker = Resident(asked.processes)
        except RefusedError:
            drafts.disconnect()
            raise
        self._drafts, self._sampled = drafts, asked.sampled
        self._engine = Engine(pair.target, drafts, clock=self._clock)
        # what is there by now stays: a collection before and after each round looks at the rest
        gc.collect()
        gc.freeze()
        return {}

    def _round(self, asked: RunRound) -> dict[str, Any]:
        pair, engine, drafts = self._ready()
        name = f"round {asked.phase} {asked.index}, B {asked.batch}, T {asked.temperature}"
        requests = _requests(asked, pair)
        pair.target.use(asked.batch)
        drafts.until = deadline = Deadline.after(SystemClock(), asked.limit_s)
        # whatever comes: an engine that was left in the middle of a step does not go on
        self._failed = Refusal(Code.INTERNAL, name, "an end", "an error in the middle of it")
        try:
            decoded = decode(engine, requests, self._clock, deadline)
            require_drawn(decoded, float(asked.temperature), self._sampled)
        except Pp4Error as error:
            drafts.disconnect()
            self._failed = replace(error.refusal, where=f"{name}: {error.refusal.where}")
            raise type(error)(self._failed) from error
        self._failed = None
        readings = self._read_gpus()
        sizes, _ = self._memory(readings)
        return decoded.tree(asked, pair.asked.depth, sizes, gpu_facts(readings))

    def _look(self, asked: Look) -> dict[str, Any]:
        self._prepared("look")
        sizes, unsupported = self._memory(self._read_gpus())
        counted = {} if self._engine is None else self._engine.as_dict()
        failures = {f"{_PLAIN}{cause}": cause for cause in Cause if cause not in NO_FAILURE}
        snapshot = Snapshot(
            label=asked.label,
            failed_rounds={cause: str(counted.get(name, 0)) for name, cause in failures.items()},
            counters={name: str(n) for name, n in counted.items() if name not in failures},
            memory_bytes=sizes,
            unsupported=unsupported,
        )
        return snapshot.model_dump(mode="json")

    def _disconnect(self, asked: _Nothing) -> dict[str, Any]:
        del asked
        if self._drafts is None:
            raise BadInputError.of("disconnect", "connect before it", "no connection")
        self._drafts.disconnect()
        self._failed = Refusal(Code.BAD_INPUT, "disconnect", "no round after it", "one more")
        return {}

    # -- what they rest on ------------------------------------------------------------------

    def _prepared(self, verb: str) -> Pair:
        if self._pair is None:
            raise BadInputError.of(verb, "prepare before it", "nothing prepared")
        return self._pair

    def _ready(self) -> tuple[Pair, Engine, Drafts]:
        pair = self._prepared("round")
        if self._engine is None or self._drafts is None:
            raise BadInputError.of("round", "connect before it", "no connection")
        if self._failed is not None:
            raise RefusedError(self._failed)
        return pair, self._engine, self._drafts

    def _require_switch(self, sampled: bool) -> None:
        found = self._switch()
        if found is not sampled:
            expected = f"{int(sampled)}, as the arm says"
            where = f"environment variable {SWITCHES[1]}"
            raise RefusedError(Refusal(Code.BAD_SETTING, where, expected, f"{int(found)}"))

    def _read_gpus(self) -> tuple[Reading, ...]:
        return () if self._readings is None else self._readings.read()

    def _memory(self, readings: tuple[Reading, ...]) -> tuple[dict[str, str], dict[str, str]]:
        """-> bytes by source, and the sources that give no number with the reason."""
        # what is only waiting to be collected is nobody's memory
        gc.collect()
        found = {
            **allocator(self._prepared("memory").device),
            **self._own.read(),
            **self._worker.read(),
            **gpu_memory(readings),
        }
        sizes = {name: str(one) for name, one in found.items() if isinstance(one, int)}
        return sizes, {name: one for name, one in found.items() if isinstance(one, str)}


def _verb(model: type[M], do: Callable[[M], dict[str, Any]]) -> Verb:
    """Read the arguments of a verb before it is done."""

    def verb(arguments: dict[str, Any]) -> dict[str, Any]:
        return do(read(model, arguments))

    return verb


def _requests(asked: RunRound, pair: Pair) -> list[Prompt]:
    prompts, limit = pair.prompts.tokens, pair.asked.new_tokens
    numbers = prompts_of(asked.index, asked.batch, len(prompts))
    keys = keys_of(pair.asked.seed, asked.phase, asked.index, asked.batch)
    temperature = float(asked.temperature)
    return [
        Prompt(prompts[number], limit, temperature, key)
        for number, key in zip(numbers, keys, strict=True)
    ]


def _require_worker(offer: Offer | None, sampled: bool, pair: Pair) -> None:
    """A worker that would decode, but not what is measured, is none for an arm."""
    if offer is None:
        raise BadInputError.of("worker", "an offer", "none")
    if offer.sampled is not sampled:
        where = f"worker, {SWITCHES[0]}"
        expected = f"{int(sampled)}, as the arm says"
        raise RefusedError(Refusal(Code.BAD_SETTING, where, expected, f"{int(offer.sampled)}"))
    for name, found, least in (
        ("context", offer.context, pair.features),
        ("slots", offer.slots, pair.asked.slots),
    ):
        if found < least:
            raise BadInputError.of(f"worker, {name}", f"at least {least}", str(found))
