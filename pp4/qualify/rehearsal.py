"""The rehearsal: the same gates on a CPU, in a local HOLD, ending in a receipt of its own kind."""

from __future__ import annotations

import platform
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from pp4.clock import Clock, SystemClock
from pp4.config import load_settings
from pp4.errors import Code, Exit, Refusal, RefusedError, WrongError
from pp4.hold.processes import boot_id
from pp4.hold.rehearsal import OpenHold, open_rehearsal
from pp4.qualify.context import Context
from pp4.qualify.gates import KERNELS
from pp4.qualify.pair_qualify import VERDICT_EXIT, ArmResult, pair_qualify, verdict
from pp4.qualify.progress import Progress
from pp4.qualify.settings import REHEARSAL, Settings
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.build import build
from pp4.receipts.canonical import parse
from pp4.receipts.digests import Source, installed_source, sha256_hex
from pp4.receipts.private import opened
from pp4.receipts.store import write_new
from pp4.transport.local import LocalTransport

DEFINITION = "dyadic24-floor-first-v1"

LIMITS = (
    "No GPU was used: nothing here is evidence about hardware, drivers or peer memory.",
    "The interpreter runs the programs of a launch in order: retirement order was not varied.",
    "Shared memory of one machine stands in for peer memory; x86 keeps stores in order.",
    "Compiled code was read, not run; budgets in nanoseconds were not exercised.",
    "The interpreter compiles nothing at a launch: that no launch compiles was not exercised.",
    "Gate 6 (whole-worker identity) was not run: scope kernels.",
    "Not established: GB10, grammar and parser, live throughput.",
)

DIFFERENCES = (
    "kernels run compiled on two GPUs, not in the interpreter",
    "peer memory is the other GPU's, over NVLink or PCIe, not a mapped file",
    "waits are bounded in nanoseconds by the GPU's own timer, not by a count of polls",
    "GPUs are named by UUID and locked; foreign processes and memory in use are looked at",
    "the HOLD has a lease, a fence that outlives it and a deadline on the receiving host",
    "shapes are those of production, with 100,000 rows and 1,000 replays in place of a few",
    "gate 6 compares the whole worker with an archived solo receipt (scope full)",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rehearsal ended.

    Attributes:
        verdict: ``rehearsed`` or what kept it from that.
        receipt_path: where the receipt lies.
        exit: exit code of the command.
        receipt: the receipt's tree.
        differences: what a physical run does differently.
    """

    verdict: str
    receipt_path: Path
    exit: Exit
    receipt: Mapping[str, object]
    differences: tuple[str, ...] = DIFFERENCES


def _require_packages() -> None:
    missing = [name for name in ("torch", "triton", "numpy") if find_spec(name) is None]
    if not missing:
        return
    where = f"{platform.system()} {platform.machine()}"
    linux = platform.system() == "Linux"
    raise RefusedError(
        Refusal(
            Code.MISSING_PACKAGE,
            "pair-qualify --dry-run",
            "torch, triton and numpy (the extra pp4[gpu])",
            f"no {', '.join(missing)} on {where}",
            source="pyproject.toml",
            next="pip install 'pp4[gpu]'" if linux else "pp4 verify-receipt FILE",
        )
    )


@contextmanager
def _room(out: Path) -> Iterator[None]:
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


def _require_same_source(before: Source) -> None:
    """Refuse to name one source for a run in which processes started from two."""
    after = installed_source()
    if after != before:
        raise RefusedError(
            Refusal(
                Code.SUBJECT_MISMATCH,
                "the installed source of pp4",
                f"{before.digest}, as at the start of the run",
                after.digest,
                next="pp4 pair-qualify --dry-run",
            )
        )


def _admission(source: Source) -> Admission:
    judged = admit(Command.REHEARSAL, [], Subject(source_digest=source.digest))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


def _require_answer(context: Context, results: tuple[ArmResult, ...]) -> None:
    """Refuse to write a receipt about a run in which no rank ever spoke.

    Raises:
        WrongError: ``RANK_DIED`` with what the first arm ran into.
    """
    if not context.record.definition:
        first = results[0].finding.facts.get("refusal", results[0].found)
        raise WrongError(
            Refusal(Code.RANK_DIED, "rehearsal", "rank processes that answer", str(first))
        )


def _gates(results: tuple[ArmResult, ...]) -> list[dict[str, object]]:
    names = {gate.number: gate.name for gate in KERNELS}
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
        "repetitions": result.finding.repetitions,
        "elapsed_ns": str(result.elapsed_ns),
        "limit_ns": str(result.limit_ns),
        "facts": {
            name: list(fact) if isinstance(fact, tuple) else fact
            for name, fact in result.finding.facts.items()
        },
    }


def _kernels(context: Context) -> list[dict[str, object]]:
    return [
        {
            "name": f"sampled_fused.{name}",
            "rank": one.rank,
            "target": one.target,
            "ptx_sha256": one.ptx_sha256,
            "cubin_sha256": one.cubin_sha256,
        }
        for name, ones in (("pair", context.record.primed), ("solo", context.record.solo))
        for one in ones
    ]


def _body(
    hold: OpenHold, context: Context, results: tuple[ArmResult, ...], settings: Settings
) -> dict[str, object]:
    return {
        "kind": "rehearsal",
        "scope": "kernels",
        "verdict": verdict(results, "rehearsed"),
        "hardware_executed": False,
        "limits": list(LIMITS),
        "definition": {"id": DEFINITION, "sha256": context.record.definition},
        "hold": {
            "id": hold.hold_id,
            "fence": str(hold.fence),
            "nonce": sha256_hex(hold.nonce.encode()),
            "boot_id": None,
            "transport": hold.transport,
            "journal_head": hold.journal.head,
            "exclusion": "private",
        },
        "settings": {
            **{
                name: list(fact) if isinstance(fact, tuple) else fact
                for name, fact in settings.as_facts().items()
            },
            **context.record.versions,
        },
        "gates": _gates(results),
        "kernels": _kernels(context),
        "libraries": [
            {"name": library.name, "sha256": library.sha256, "build_id": None}
            for library in context.record.libraries
        ],
        "gpus": [],
        "journal": [dict(line) for line in hold.journal.lines],
        "private": opened({"host.name": socket.gethostname(), "host.boot_id": boot_id()}),
    }


def rehearse(
    out: Path, progress: Progress, *, clock: Clock | None = None, settings: Settings = REHEARSAL
) -> Outcome:
    """Run every gate of scope ``kernels`` on this machine's CPU and store a receipt.

    Args:
        out: directory of the receipt; made if it is not there.
        progress: who watches.
        clock: where deadlines come from.
        settings: numbers of the run.

    Returns:
        The outcome; a failed gate is an outcome, not an exception.

    Raises:
        RefusedError: a package is missing, ``out`` cannot be written, or pp4 itself was changed
            during the run.
        UncleanError: something may still run.
    """
    _require_packages()
    source = installed_source()
    admission = _admission(source)
    temporary = load_settings().temp_dir
    with _room(out):
        with open_rehearsal(admission, LocalTransport(), clock or SystemClock(), temporary) as hold:
            context = Context(hold, settings)
            results = pair_qualify(context, KERNELS, progress)
            _require_answer(context, results)
            body = _body(hold, context, results, settings)
        # the HOLD is closed and its processes are proven dead: only now is there a claim to make
        _require_same_source(source)
        raw = build({**body, "source": source.as_dict()})
        path = out / f"rehearsal-{hold.hold_id}.json"
        write_new(path, raw)
    tree = parse(raw, str(path))
    if not isinstance(tree, dict):
        raise TypeError("a receipt is an object")
    text = str(body["verdict"])
    return Outcome(text, path, VERDICT_EXIT[text], tree)
