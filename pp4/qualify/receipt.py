"""What every receipt of a run of gates has in common: a place for it, its source, its members."""

from __future__ import annotations

import json
import platform
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from pp4.errors import Code, Exit, Refusal, RefusedError, WrongError
from pp4.hold.open import OpenHold
from pp4.hold.processes import boot_id
from pp4.qualify.context import Context
from pp4.qualify.gates import Gate
from pp4.qualify.pair_qualify import VERDICT_EXIT, ArmResult, verdict
from pp4.receipts.build import build
from pp4.receipts.canonical import parse
from pp4.receipts.digests import Source, installed_source, sha256_hex
from pp4.receipts.hardware_checks import PAIR_KERNEL, SOLO_KERNEL, WORKER_BIAS, WORKER_PAIR
from pp4.receipts.private import opened
from pp4.receipts.store import write_new
from pp4.wire.facts import Primed

DEFINITION = "dyadic24-floor-first-v1"
WORKER_GATE = 6


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of gates ended.

    Attributes:
        verdict: the good one, or what kept it from that.
        receipt_path: where the receipt lies.
        exit: exit code of the command.
        receipt: the receipt's tree.
        differences: what a physical run does differently; empty for one.
        more: further receipts of the same run.
    """

    verdict: str
    receipt_path: Path
    exit: Exit
    receipt: Mapping[str, object]
    differences: tuple[str, ...] = ()
    more: tuple[Path, ...] = ()


def require_packages(command: str) -> None:
    """Refuse a run whose ranks could not start.

    Raises:
        RefusedError: ``MISSING_PACKAGE``.
    """
    missing = [name for name in ("torch", "triton", "numpy") if find_spec(name) is None]
    if not missing:
        return
    where = f"{platform.system()} {platform.machine()}"
    linux = platform.system() == "Linux"
    raise RefusedError(
        Refusal(
            Code.MISSING_PACKAGE,
            command,
            "torch, triton and numpy (the extra pp4[gpu])",
            f"no {', '.join(missing)} on {where}",
            source="pyproject.toml",
            next="pip install 'pp4[gpu]'" if linux else "pp4 verify-receipt FILE",
        )
    )


@contextmanager
def room(out: Path) -> Iterator[None]:
    """Refuse before the run what would refuse the receipt after it.

    Directories that were made for a receipt which does not come are removed again.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            # a receipt is linked into place, which some file systems cannot do
            with tempfile.NamedTemporaryFile(dir=out, prefix=".pp4-") as probe:
                link = Path(f"{probe.name}.link")
                link.hardlink_to(probe.name)
                link.unlink()
        except OSError as error:
            raise RefusedError(
                Refusal(Code.UNWRITABLE, str(out), "a directory that takes a receipt", str(error))
            ) from error
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def require_same_source(before: Source, command: str) -> None:
    """Refuse to name one source for a run in which processes started from two."""
    after = installed_source()
    if after != before:
        raise RefusedError(
            Refusal(
                Code.SUBJECT_MISMATCH,
                "the installed source of pp4",
                f"{before.digest}, as at the start of the run",
                after.digest,
                next=command,
            )
        )


def require_answer(context: Context, results: Sequence[ArmResult], command: str) -> None:
    """Refuse to write a receipt about a run in which no rank ever spoke.

    Raises:
        WrongError: ``RANK_DIED`` with what the first arm ran into.
    """
    if not context.record.definition:
        first = results[0].finding.facts.get("refusal", results[0].found)
        raise WrongError(Refusal(Code.RANK_DIED, command, "rank processes that answer", str(first)))


def _gates(results: Sequence[ArmResult], gates: Sequence[Gate]) -> list[dict[str, object]]:
    names = {gate.number: gate.name for gate in gates}
    return [
        {"gate": number, "name": names[number], "arms": [_arm(result) for result in arms]}
        for number, arms in groupby(results, key=lambda result: result.step.gate)
    ]


def _arm(result: ArmResult) -> dict[str, object]:
    return {
        "arm": result.step.arm,
        "expected": result.step.expected,
        "found": result.found,
        "gating": result.step.gating,
        # whatever failed at its first try was tried once
        "repetitions": max(1, result.finding.repetitions),
        "elapsed_ns": str(result.elapsed_ns),
        "limit_ns": str(result.limit_ns),
        "facts": {
            name: list(fact) if isinstance(fact, tuple) else fact
            for name, fact in result.finding.facts.items()
        },
    }


def kernel_row(name: str, one: Primed) -> dict[str, object]:
    """One kernel as receipts have it."""
    return {
        "name": name,
        "rank": one.rank,
        "target": one.target,
        "ptx_sha256": one.ptx_sha256,
        "cubin_sha256": one.cubin_sha256,
    }


def _kernels(context: Context, names: Collection[str] | None) -> list[dict[str, object]]:
    whole = context.record.whole
    loaded = {
        PAIR_KERNEL: context.record.primed,
        SOLO_KERNEL: context.record.solo,
        WORKER_PAIR: () if whole is None else whole.served.kernels,
        WORKER_BIAS: () if whole is None else whole.served.bias,
    }
    rows = [kernel_row(name, one) for name, ones in loaded.items() for one in ones]
    if context.settings.solo:
        # two processes ran on one device, and a receipt of it has one rank
        rows = [row for row in rows if row["rank"] == 0]
    return [row for row in rows if names is None or row["name"] in names]


def _settings(context: Context, gates: Sequence[Gate]) -> dict[str, object]:
    """Every number of the run; those of a worker where one was run."""
    facts = context.settings.as_facts()
    if any(gate.number == WORKER_GATE for gate in gates):
        facts |= {f"worker_{name}": fact for name, fact in context.whole.as_facts().items()}
    plain = {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
    return {**plain, **context.record.versions}


def hold_of(hold: OpenHold) -> dict[str, object]:
    """The HOLD as receipts have it, with its journal as far as it is written."""
    return {
        "id": hold.hold_id,
        "fence": str(hold.fence),
        "nonce": sha256_hex(hold.nonce.encode()),
        "boot_id": None,
        "transport": hold.transport,
        "journal_head": hold.journal.head,
        "exclusion": hold.exclusion,
    }


def private_of_host() -> dict[str, object]:
    """Leaves of ``private`` that name this host."""
    return dict(opened({"host.name": socket.gethostname(), "host.boot_id": boot_id()}))


def members(
    hold: OpenHold,
    context: Context,
    results: Sequence[ArmResult],
    gates: Sequence[Gate],
    good: str,
    kernels: Collection[str] | None = None,
) -> dict[str, object]:
    """Members that a rehearsal and the receipts of GPUs share.

    Args:
        hold: under which it ran.
        context: what the arms recorded.
        results: every arm of the plan.
        gates: the plan.
        good: the verdict of a run without a fault.
        kernels: names of those that it is about; all that were primed where None.
    """
    return {
        "verdict": verdict(results, good),
        "definition": {"id": DEFINITION, "sha256": context.record.definition},
        "hold": hold_of(hold),
        "settings": _settings(context, gates),
        "gates": _gates(results, gates),
        "kernels": _kernels(context, kernels),
        "libraries": [library.model_dump() for library in context.record.libraries],
        "journal": [dict(line) for line in hold.journal.lines],
        "private": private_of_host(),
    }


def store(body: Mapping[str, object], source: Source, path: Path) -> Outcome:
    """Seal a receipt and write it where none is; -> how the run ended.

    Raises:
        RefusedError: the body contradicts itself, or the file cannot be made.  What the run found
            is kept beside it then: it is no receipt, and the run need not be made again to see it.
    """
    try:
        raw = build({**body, "source": source.as_dict()})
    except RefusedError as error:
        kept = path.with_suffix(".rejected")
        kept.write_text(json.dumps(body, indent=1, default=str))
        raise RefusedError(replace(error.refusal, left=str(kept))) from error
    write_new(path, raw)
    tree = parse(raw, str(path))
    if not isinstance(tree, dict):
        raise TypeError("a receipt is an object")
    text = str(body["verdict"])
    return Outcome(text, path, VERDICT_EXIT[text], tree)
