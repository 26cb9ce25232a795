"""On which GPUs a worker starts, and what allows it the switch: judged before it is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, RefusedError
from pp4.qualify.reasons import StandingPolicy
from pp4.qualify.standing import Answer, gate, kept, status
from pp4.receipts.admission import Command
from pp4.receipts.canonical import read_file
from pp4.receipts.envelope import OpenLeaf
from pp4.receipts.gates import Qualification
from pp4.wire.gpus import GpuReport, find, first_pair
from pp4.wire.serving import ByGrant, ByQualification, Device, Nobody

_QUALIFY: Final = "pp4 pair-qualify --hold FILE --scope full"


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator asks of a worker, as far as it needs leave.

    Attributes:
        sampled: whether the switch is on.
        device: what its ranks run on.
        solo: whether one device holds both shards.
        gpus: names of GPUs, rank 0 first; those that fit where there are none.
        qualification: the receipt; the newest of this user's that stands where None.
        grant: whether a HOLD's grant comes over standard input.
    """

    sampled: bool
    device: Device
    solo: bool = False
    gpus: Sequence[str] = ()
    qualification: Path | None = None
    grant: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """What was found.

    Attributes:
        gpus: UUIDs, rank 0 first.
        permission: for the worker, which judges it again.
    """

    gpus: tuple[str, ...]
    permission: Nobody | ByQualification | ByGrant


def leave(
    wish: Wish,
    state_dir: Path,
    look: Callable[[], GpuReport],
    facts: Callable[[], Mapping[str, object]],
    policy: StandingPolicy,
) -> Leave:
    """Find the GPUs of a worker and what allows it the switch.

    Args:
        wish: what is asked for.
        state_dir: where this user's receipts are kept.
        look: asks the driver about the GPUs.
        facts: asks the machine about itself, which takes a while; see
            :func:`pp4.run.host.facts_of_this_machine`.
        policy: what else ends a qualification.

    Raises:
        RefusedError: ``BAD_SETTING``, one GPU alone; ``EVIDENCE_MISSING``, there is no
            qualification; what :func:`gate` finds against it; ``NO_GPU_PAIR``; what the machine
            refuses.
    """
    if wish.device != "gpu":
        return Leave(tuple(wish.gpus), ByGrant() if wish.grant else Nobody())
    if wish.grant or not wish.sampled:
        return Leave(_gpus(wish, look()), ByGrant() if wish.grant else Nobody())
    if wish.solo:
        # said before the machine is asked, which takes a while
        expected = "a pair of GPUs, which is what a qualification is about, or a HOLD's grant"
        where = str(Command.WORKER_ON)
        raise RefusedError(Refusal(Code.BAD_SETTING, where, expected, "a solo worker"))
    path, answer = _judged(wish, state_dir, facts, policy)
    receipt = answer.standing.receipt
    if answer.refusal is not None or receipt is None:
        raise RefusedError(answer.refusal or _none(str(path)))
    bound = _bound(receipt)
    gpus = _gpus(wish, look()) if wish.gpus else bound
    if gpus != bound:
        expected, found = f"{', '.join(bound)}, rank 0 first", ", ".join(gpus)
        where = f"{Command.WORKER_ON}, GPUs"
        raise RefusedError(Refusal(Code.SUBJECT_MISMATCH, where, expected, found, str(path)))
    sha256 = answer.standing.sha256 or ""
    return Leave(gpus, ByQualification(path=str(path.absolute()), sha256=sha256))


def _judged(
    wish: Wish,
    state_dir: Path,
    facts: Callable[[], Mapping[str, object]],
    policy: StandingPolicy,
) -> tuple[Path, Answer]:
    """The receipt that is meant, and what is against it."""
    paths = [wish.qualification] if wish.qualification else kept(state_dir)
    if not paths:
        raise RefusedError(_none("none"))
    # read before the machine is asked, which takes a while
    raw = {path: read_file(path) for path in paths} if wish.qualification else {}
    told = facts()
    if wish.qualification is None:
        found = status(paths, told, policy)
        if not found:
            raise RefusedError(_none("receipts of other kinds"))
        # those that stand come first, then the newest
        path = Path(found[0].file)
        raw = {path: read_file(path)}
    path, content = next(iter(raw.items()))
    return path, gate(content, told, policy, str(path))


def _bound(receipt: Qualification) -> tuple[str, ...]:
    """The GPUs of a receipt that stands, so none of them is redacted."""
    leaves = [receipt.private.get(gpu.uuid) for gpu in sorted(receipt.gpus, key=lambda g: g.rank)]
    return tuple(leaf.value for leaf in leaves if isinstance(leaf, OpenLeaf))


def _gpus(wish: Wish, report: GpuReport) -> tuple[str, ...]:
    if wish.gpus:
        return tuple(find(report, name).uuid for name in wish.gpus)
    if wish.solo:
        if not report.gpus:
            raise _no_gpus("one GPU", report)
        return (report.gpus[0].uuid,)
    pair = first_pair(report)
    if pair is None:
        raise _no_gpus("two GPUs that reach each other", report)
    return pair


def _no_gpus(expected: str, report: GpuReport) -> RefusedError:
    found = f"{len(report.gpus)} GPUs" if report.gpus else "no GPU"
    again = "pp4 worker serve CHECKPOINT --device reference"
    return RefusedError(Refusal(Code.NO_GPU_PAIR, "worker", expected, found, next=again))


def _none(found: str) -> Refusal:
    expected = "a qualification of scope full (--qualification FILE, or one that was kept)"
    return Refusal(Code.EVIDENCE_MISSING, str(Command.WORKER_ON), expected, found, next=_QUALIFY)
