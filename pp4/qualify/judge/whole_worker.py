"""Gate 6: whether a worker ran as it should, and whether it gives what the archived one gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pp4.errors import Code
from pp4.qualify.judge.preflight import mapped
from pp4.receipts.runs import WholeWorker
from pp4.wire.facts import Library, Primed
from pp4.wire.frozen import FrozenFacts, FrozenOutput, Served, Settled, TornDown

_RANKS = 2
Binary = tuple[str, str | None, str | None]
"""Target, and digests of PTX and cubin."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """Everything that was seen of one worker, from its start to its end.

    Attributes:
        checkpoint_sha256: what it loaded.
        served: what it said when it began to serve.
        frozen: what the frozen inputs gave.
        settled: what it said after them.
        ended: how it was torn down.
        mapped: which shared objects each rank had mapped, by one digest; see ``gates/looking.py``.
    """

    checkpoint_sha256: str
    served: Served
    frozen: FrozenFacts
    settled: Settled
    ended: TornDown
    mapped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """What the outputs of a worker are bound to, and the outputs.

    Attributes:
        gpu_model: on which they were made.
        definition_sha256: of the arithmetic.
        query_block: queries of a block.
        checkpoint_sha256: of the drafter.
        input_set_sha256: of the inputs.
        solo_kernels: the solo kernel of the worker's shape as it is compiled there, and the kernel
            that makes bias rows.
        outputs: sorted.
    """

    gpu_model: str
    definition_sha256: str
    query_block: int
    checkpoint_sha256: str
    input_set_sha256: str
    solo_kernels: frozenset[Binary]
    outputs: tuple[FrozenOutput, ...]


def binaries(ones: Sequence[Primed]) -> frozenset[Binary]:
    """What some ranks have loaded, each binary once."""
    return frozenset((one.target, one.ptx_sha256, one.cubin_sha256) for one in ones)


def archived(receipt: WholeWorker) -> Identity:
    """What an archived receipt states."""
    kernels = ((one.target, one.ptx_sha256, one.cubin_sha256) for one in receipt.kernels)
    return Identity(
        gpu_model=receipt.gpus[0].name,
        definition_sha256=receipt.definition.sha256,
        query_block=receipt.query_block,
        checkpoint_sha256=receipt.checkpoint_sha256,
        input_set_sha256=receipt.input_set_sha256,
        solo_kernels=frozenset(kernels),
        outputs=tuple(
            FrozenOutput(batch=one.batch, depth=one.depth, n_out=one.n_out, blocks=one.blocks)
            for one in receipt.outputs
        ),
    )


def sound(run: WholeRun, devices: Sequence[str], batch: int, *, compiles: bool) -> Code | None:
    """Whether a worker did what it was started for, before anybody looks at what came out.

    Args:
        run: what was seen of it.
        devices: of both ranks, as the HOLD names them.
        batch: the one size that it was to capture.
        compiles: whether its ranks compile themselves, so that each has to say how often.
    """
    frozen = run.frozen
    if list(frozen.devices) != list(devices):
        return Code.DEVICE_MISMATCH
    counted = (*run.served.compilations, *run.settled.compilations)
    if any(counted):
        return Code.COMPILED_AFTER_PRIMING
    if compiles and None in counted:
        # a rank that was never sealed has not looked
        return Code.INCOMPLETE
    return (
        _kernels(run.served.kernels)
        or (_kernels(run.served.bias) if compiles else None)
        or mapped(run.mapped)
        or _drafted(frozen, batch)
        or _together(frozen, run.settled)
        or _ended(run.served, run.ended)
    )


def loaded(served: Served, libraries: Sequence[Library]) -> Code | None:
    """Whether a worker on GPUs has mapped what the gates have hashed.

    Compared by name, since each loads more than the other: a receipt names those of the gates.

    Args:
        served: what it said when it began to serve.
        libraries: as the gates have them.
    """
    theirs, mine = (_by_name(ones) for ones in (libraries, served.libraries))
    common = theirs.keys() & mine.keys()
    alike = bool(common) and all(theirs[name] == mine[name] for name in common)
    return None if alike else Code.LIBRARY_CHANGED


def _by_name(libraries: Sequence[Library]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in libraries:
        found.setdefault(one.name, set()).add(one.sha256)
    return found


def _kernels(ones: Sequence[Primed]) -> Code | None:
    if [one.rank for one in ones] != list(range(_RANKS)) or len(binaries(ones)) != 1:
        return Code.KERNELS_DIFFER
    return Code.PTX_ORDER if any(one.faults for one in ones) else None


def _drafted(frozen: FrozenFacts, batch: int) -> Code | None:
    """Each row was drafted as it was asked for, and blocks depend on what was asked.

    Two workers that do nothing would agree.
    """
    if not frozen.sampled or frozen.batches != (batch,) or not frozen.asked_sampled:
        return Code.INCOMPLETE
    if frozen.without_q != frozen.asked_greedy:
        return Code.T0_DREW
    if frozen.with_q != frozen.asked_sampled:
        return Code.INCOMPLETE
    alike = any(len(one.blocks) > 1 and len(set(one.blocks)) == 1 for one in frozen.outputs)
    return Code.OUTPUT_MISMATCH if alike else None


def _together(frozen: FrozenFacts, settled: Settled) -> Code | None:
    """The rows of each block were drafted together, and nothing besides them.

    Outputs cannot tell: a row does not depend on its neighbours, so a worker that drafts one after
    another gives the same digests and has mixed nothing.
    """
    blocks = sum(len(one.blocks) for one in frozen.outputs)
    wanted = {"blocks": blocks, "rows": frozen.asked_sampled + frozen.asked_greedy}
    found = {name: settled.counters.get(name) for name in wanted}
    return None if found == wanted else Code.INCOMPLETE


def _ended(served: Served, ended: TornDown) -> Code | None:
    apart = len(set(served.pids)) == _RANKS and ended.pids == served.pids
    gone = apart and all(ended.dead) and not ended.links_left
    return None if gone else Code.NOT_TORN_DOWN


def identity(archive: Identity, found: Identity) -> Code | None:
    """Whether a worker gives what the archived one gave.

    Another model of GPU is refused and not failed: nobody has said what it would give.

    Args:
        archive: what was archived.
        found: what was found here.
    """
    if found.gpu_model != archive.gpu_model:
        return Code.SUBJECT_MISMATCH
    if _bound(found) != _bound(archive):
        return Code.EVIDENCE_MISMATCH
    keys = [one.key for one in archive.outputs]
    blocks = [len(one.blocks) for one in archive.outputs]
    if not keys or [one.key for one in found.outputs] != keys:
        return Code.INCOMPLETE
    if [len(one.blocks) for one in found.outputs] != blocks:
        return Code.INCOMPLETE
    return None if found.outputs == archive.outputs else Code.OUTPUT_MISMATCH


def _bound(one: Identity) -> tuple[object, ...]:
    return (
        one.definition_sha256,
        one.query_block,
        one.checkpoint_sha256,
        one.input_set_sha256,
        one.solo_kernels,
    )
