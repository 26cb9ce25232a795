"""Does what an arm has found still let it go on?  Pure, over what was recorded so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from pp4.errors import Code, Refusal, WrongError
from pp4.receipts.admission import Admission
from pp4.receipts.bindings import differences, facts_of, kernel_facts
from pp4.receipts.envelope import Fact
from pp4.receipts.gates import Kernel
from pp4.receipts.growth import arm_verdict, heavier, more_failures, sloping
from pp4.receipts.models import Receipt
from pp4.receipts.runs import Measurement, Round, Snapshot, WholeWorker
from pp4.wire.frozen import Served, Settled, TornDown

Grown = Literal["failed_rounds_grew", "memory_grew"]
PREFIX = "worker_"
LOADING: Final = ("engine", "worker")
"""Phases of an arm whose facts say what it has loaded."""


def with_worker(snapshot: Snapshot, settled: Settled) -> Snapshot:
    """A snapshot with the worker's counters beside the engine's, those of refusals by code."""
    counted = {
        f"{PREFIX}{name.lower()}": str(count)
        for name, count in settled.counters.items()
        if isinstance(count, int)
    }
    return snapshot.model_copy(update={"counters": {**snapshot.counters, **counted}})


def require_sealed(served: Served, settled: Settled, *, compiles: bool) -> None:
    """Refuse to time a worker that still compiles.

    Args:
        served: what it said when it began to serve.
        settled: what it says now.
        compiles: whether its ranks compile themselves, so that each has to say how often.

    Raises:
        WrongError: ``COMPILED_AFTER_PRIMING``; ``INCOMPLETE``, a rank does not say.
    """
    counted = (*served.compilations, *settled.compilations)
    if compiles and None in counted:
        expected, found = "a count of compilations of each rank", "none: it was never sealed"
        raise WrongError(Refusal(Code.INCOMPLETE, "worker", expected, found))
    if any(counted):
        found = f"{', '.join(map(str, counted))} at its start and now"
        expected = "no compilation on either rank since it was primed"
        raise WrongError(Refusal(Code.COMPILED_AFTER_PRIMING, "worker", expected, found))


def grown(snapshots: Sequence[Snapshot], rounds: Sequence[Round]) -> tuple[Grown, str] | None:
    """Whether the last snapshot fails its arm; -> the verdict, and what grew in words.

    Args:
        snapshots: the baseline, and every one since; the last one is judged.
        rounds: all of the arm once they are over, none before: their slope is looked at as well.
    """
    verdict = arm_verdict(snapshots, rounds)
    if verdict == "complete":
        return None
    baseline, latest = snapshots[0], snapshots[-1]
    if verdict == "failed_rounds_grew":
        rows = more_failures(baseline, latest)
        return verdict, _more(rows, baseline.failed_rounds, latest.failed_rounds, "rows")
    heavy = heavier(baseline, latest)
    said = _more(heavy, baseline.memory_bytes, latest.memory_bytes, "bytes")
    steep = ", ".join(f"{name} round by round" for name in sloping(baseline, rounds))
    return verdict, "; ".join(filter(None, (said, steep)))


def _more(
    names: Iterable[str], before: Mapping[str, str], after: Mapping[str, str], unit: str
) -> str:
    said = []
    for name in names:
        gone = name not in after
        more = int(after.get(name, "0")) - int(before.get(name, "0"))
        said.append(f"{name} gives no number any more" if gone else f"{name} by {more} {unit}")
    return ", ".join(said)


class SameText:
    """Holds rounds at temperature 0 to those of the first arm: equal inputs have equal outputs."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], str] = {}

    def require(self, phase: str, found: Round) -> None:
        """Keep a round, or refuse one with another text than the first arm's.

        Args:
            phase: as it was planned; a round of the greedy pass has no word for its own.
            found: the round; one at a temperature above 0 is passed over.

        Raises:
            WrongError: ``OUTPUT_MISMATCH``.
        """
        if found.temperature != "0":
            return
        first = self._first.setdefault((phase, found.index), found.outputs_sha256)
        if first != found.outputs_sha256:
            where = f"{phase} round {found.index}, batch {found.batch}, temperature 0"
            expected = f"outputs {first}, as in the first arm"
            refusal = Refusal(Code.OUTPUT_MISMATCH, where, expected, found.outputs_sha256)
            raise WrongError(refusal)


def require_switched(served: Served, *, on: bool) -> None:
    """Refuse a worker on GPUs that has not loaded what its arm is about.

    Args:
        served: what it said.
        on: whether its switch is on: both ranks have the sampled kernel then, and none has it else.

    Raises:
        WrongError: ``KERNELS_DIFFER``.
    """
    ranks = [one.rank for one in served.kernels]
    wanted = [0, 1] if on else []
    if ranks != wanted:
        expected, found = (
            f"the sampled kernel on {'ranks ' + ', '.join(map(str, some)) if some else 'no rank'}"
            for some in (wanted, ranks)
        )
        raise WrongError(Refusal(Code.KERNELS_DIFFER, "worker", expected, found))


class SameLoaded:
    """Holds what every arm has loaded to the evidence, and to the arms before it.

    Outputs at temperature 0 say nothing of the drafter, and a path does not say what lies there.

    Args:
        receipts: evidence; the arms of a first half are among the arms before.
    """

    def __init__(self, receipts: Iterable[Receipt]) -> None:
        self._known: dict[tuple[str, str], tuple[Fact, str]] = {}
        for receipt in receipts:
            if isinstance(receipt, WholeWorker):
                facts: Mapping[str, Fact] = {"drafter_sha256": receipt.checkpoint_sha256}
                self.require("whole_worker", "engine", facts)
            if isinstance(receipt, Measurement):
                self._arms_of(receipt)

    def _arms_of(self, half: Measurement) -> None:
        for line in half.journal:
            arm, _, phase = line.step.removeprefix("arm-").partition("/")
            if line.step.startswith("arm-") and phase in LOADING and line.event == "end":
                self.require(arm, phase, line.detail)

    def require(self, who: str, phase: str, facts: Mapping[str, Fact]) -> None:
        """Keep what was loaded, or refuse what is another than before.

        Args:
            who: has loaded it.
            phase: in which.
            facts: of the phase, as its end in the journal has them.

        Raises:
            WrongError: ``EVIDENCE_MISMATCH``.
        """
        for name, found in facts.items():
            known, first = self._known.setdefault((phase, name), (found, who))
            if known != found:
                where, expected = f"{who}, {phase}, {name}", f"{known}, as in {first}"
                raise WrongError(Refusal(Code.EVIDENCE_MISMATCH, where, expected, str(found)))


def require_bound(
    admission: Admission, kernels: Sequence[Kernel], libraries: Mapping[str, str]
) -> None:
    """Refuse a worker that has loaded something else than what the evidence is about.

    Evidence was made by other processes, each with libraries and kernels of its own: what both
    name has to be equal.

    Raises:
        WrongError: ``EVIDENCE_MISMATCH``.
    """
    here = {"kernels": kernel_facts(kernels), "libraries": dict(libraries)}
    for label, receipt in admission.receipts.items():
        stated = facts_of(receipt)
        for name, mine in here.items():
            if name not in stated:
                continue
            for found in differences(name, stated[name], mine):
                refusal = Refusal(Code.EVIDENCE_MISMATCH, f"{label}, {name}", "as loaded", found)
                raise WrongError(refusal)


def require_dead(served: Served, ended: TornDown) -> None:
    """Refuse an arm whose worker may have left something.

    Raises:
        WrongError: ``NOT_TORN_DOWN``.
    """
    proven = [pid for pid, dead in zip(ended.pids, ended.dead, strict=True) if dead]
    if proven != list(served.pids) or ended.links_left:
        said = ", ".join(map(str, proven)) or "none"
        dead = f"proven dead: {said}; {ended.links_left} workspaces left"
        ranks = ", ".join(map(str, served.pids))
        expected = f"both ranks, {ranks}, proven dead, no workspace left"
        raise WrongError(Refusal(Code.NOT_TORN_DOWN, "worker", expected, dead))
