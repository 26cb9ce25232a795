"""Gate 6: the pair's whole worker gives, byte for byte, what the archived solo worker gave.

The product's own server is asked over its socket, by a client of its own.  A physical run compares
with an archived receipt; a rehearsal has none that would count, so a solo worker of the same run
makes what it compares with.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.qualify import judge, whole_worker
from pp4.qualify.arms import Fact, Finding, must_catch, must_pass
from pp4.qualify.context import Context
from pp4.qualify.judge.whole_worker import Identity, WholeRun
from pp4.receipts.runs import WholeWorker
from pp4.wire.facts import Primed, Shape, read
from pp4.wire.frozen import FrozenOutput

GATE = 6
_ARCHIVE = "whole_worker as identity_reference"
_LIMIT_S = 300.0
_SHOWN = 16


def _worker(context: Context, *, solo: bool) -> tuple[WholeRun, Code | None]:
    """Run one worker; -> what was seen, and what is wrong with it before its outputs count."""
    context.session.teardown()
    ran = whole_worker.run(context, context.whole, solo=solo)
    devices = context.settings.devices
    named = (devices[0], devices[0]) if solo else devices
    on_gpus = bool(context.hold.gpus)
    code = judge.sound(ran, named, context.whole.batch, compiles=on_gpus)
    if on_gpus:
        code = code or judge.loaded(ran.served, context.record.libraries)
    return ran, code


def _compiled(context: Context, shape: Shape) -> tuple[tuple[Primed, ...], tuple[Primed, ...]]:
    """The pair's kernel and the solo kernel of a worker's shape, compiled and loaded here."""
    session = context.session
    session.start()
    facts: dict[str, Any] = session.prime(shape, recorded=True)
    pair, solo = (tuple(read(Primed, one) for one in facts[name]) for name in ("primed", "solo"))
    session.teardown()
    return pair, solo


def _archive(context: Context, solo: tuple[Primed, ...]) -> tuple[Identity, Code | None]:
    """What the worker has to give, and what is wrong with that."""
    receipt = context.hold.admission.receipts.get(_ARCHIVE)
    if isinstance(receipt, WholeWorker):
        return judge.archived(receipt), None
    if context.hold.gpus:
        # one that this very run makes proves nothing about it
        raise RefusedError(Refusal(Code.EVIDENCE_MISSING, "gate 6", _ARCHIVE, "none"))
    ran, wrong = _worker(context, solo=True)
    loaded = judge.binaries(ran.served.kernels) == judge.binaries(solo)
    code = wrong or (None if loaded else Code.KERNELS_DIFFER)
    return whole_worker.identity_of(context, ran, judge.binaries(solo)), code


def _equals(context: Context) -> Finding:
    ran, code = _worker(context, solo=False)
    pair, solo = _compiled(context, ran.served.shape)
    if judge.binaries(pair) != judge.binaries(ran.served.kernels):
        # what it served with is not what the other gates have looked at
        code = code or Code.KERNELS_DIFFER
    archive, wrong = _archive(context, solo)
    found = whole_worker.identity_of(context, ran, judge.binaries(solo))
    context.record.archive, context.record.worker, context.record.whole = archive, found, ran
    return Finding(
        code or wrong or judge.identity(archive, found),
        {**_facts(ran, found), "archived": _digests(archive.outputs)},
        repetitions=sum(len(one.blocks) for one in found.outputs),
    )


def _facts(ran: WholeRun, found: Identity) -> dict[str, Fact]:
    counted = {
        f"worker_{name}": count
        for name, count in sorted(ran.settled.counters.items())
        if isinstance(count, int)
    }
    return {
        "gpu_model": found.gpu_model,
        "checkpoint_sha256": found.checkpoint_sha256,
        "input_set_sha256": found.input_set_sha256,
        "query_block": found.query_block,
        "outputs": _digests(found.outputs),
        "sampled_rows": ran.frozen.with_q,
        "greedy_rows": ran.frozen.without_q,
        "run_ns": str(ran.frozen.elapsed_ns),
        "teardown_ns": str(ran.ended.elapsed_ns),
        **counted,
    }


def _digests(outputs: tuple[FrozenOutput, ...]) -> tuple[str, ...]:
    """Every block by its batch, depth and place, as far as a person compares digests."""
    return tuple(
        f"batch {one.batch}, {one.n_out} of {one.depth}, block {place}: {block[:_SHOWN]}"
        for one in outputs
        for place, block in enumerate(one.blocks)
    )


def _seen(context: Context) -> tuple[Identity, Identity]:
    """What the first arm compared; a control upon nothing would control nothing."""
    archive, found = context.record.archive, context.record.worker
    if archive is None or found is None:
        expected = "outputs of a worker and of the archive"
        raise WrongError(Refusal(Code.INCOMPLETE, "gate 6", expected, "none"))
    return archive, found


def _flipped(context: Context) -> Finding:
    archive, found = _seen(context)
    *others, last = archive.outputs
    *blocks, digest = last.blocks
    first = int(digest[:2], 16) ^ 1
    spoiled = last.model_copy(update={"blocks": (*blocks, f"{first:02x}{digest[2:]}")})
    code = judge.identity(replace(archive, outputs=(*others, spoiled)), found)
    return Finding(code, {"block": _digests((spoiled,))[-1]})


def _another_model(context: Context) -> Finding:
    archive, found = _seen(context)
    model = f"another than {archive.gpu_model}"
    # with an output that differs as well: whoever looked at that first would call it wrong
    *others, last = archive.outputs
    emptied = last.model_copy(update={"blocks": last.blocks[:1]})
    elsewhere = replace(archive, gpu_model=model, outputs=(*others, emptied))
    return Finding(judge.identity(elsewhere, found), {"archived_on": model})


ARMS = (
    must_pass(
        GATE,
        "worker-equals-archive",
        "the pair's worker gives over its socket, block by block, what the archived one gave",
        _equals,
        limit_s=_LIMIT_S,
    ),
    must_catch(
        GATE,
        "flipped-archive-byte",
        Code.OUTPUT_MISMATCH,
        "one byte of one archived digest is flipped",
        _flipped,
    ),
    must_catch(
        GATE,
        "other-gpu-model",
        Code.SUBJECT_MISMATCH,
        "the archive was made on another model of GPU, which is refused and not failed",
        _another_model,
    ),
)
