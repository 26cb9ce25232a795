"""Members of the receipts of a measurement; pure, so that a cut half is sealed as a whole one is.

What is known when the first arm begins stands in the first line of the file of rounds.  A half that
came to its end adds what the host says of it; one that was cut is made of the file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.measure import chronicle
from pp4.measure.admitting import Judged
from pp4.measure.programs import SWITCHED_ON
from pp4.measure.rounds_file import Kept
from pp4.receipts.digests import tree_digest
from pp4.receipts.ratios import ENDPOINT, NOISE
from pp4.run.qualified import Qualified
from pp4.wire.measuring import ARMS, Measured

CONTROLLED: Final = "fixed-depth-5 common pp4 runtime"
_OF_HOST: Final = ("hold", "journal", "private", "kernels", "libraries", "gpus")
"""Members that only the host can tell; those of the gates, until the measuring step has its own."""
_VERDICTS: Final = frozenset({"complete", "failed_rounds_grew", "memory_grew"})
LIMITS: Final = (
    "A controlled comparison in one common runtime at a fixed depth, with the reference engine of "
    "pp4 and not an engine that serves: no claim about a production server.",
    "OFF at a temperature above 0 is greedy drafting verified as such, not another drafter.",
    "Covers this pair, driver, library set and model, and the time of the run; clocks and power "
    "were as they were found, and are recorded.",
    "Not established: GB10, grammar and parser, live throughput.",
)
BUDGET_LIMITS: Final = (
    "Each part is the worst of few samples with a margin on top: a window may still take longer.",
    "Says how long a window takes on this pair as it was found, and nothing of how fast it is.",
    "Not established: GB10, grammar and parser, live throughput.",
)
_OURS: Final = "The models are the small pair of pp4: their speed says little about others."
_THEIRS: Final = "The checkpoints and prompts are named by their paths on the host."
_CUT: Final = "The half is not complete: what was measured before it was cut, and no claim."
_ALONE: Final = (
    "Made of the file of rounds alone: how its HOLD ended is no part of this receipt, and whether "
    "a qualification of that HOLD was stored is not either."
)


def of_gates(judged: Judged, qualified: Qualified) -> dict[str, Any]:
    """Members that are known once the gates have passed.

    Args:
        judged: what is going to be measured.
        qualified: the gates of the same HOLD.
    """
    return {
        "limits": [*LIMITS, _OURS if judged.bundled else _THEIRS],
        "source": judged.source.as_dict(),
        "model_sha256": judged.plan.model_sha256,
        "evidence": [
            {"role": role, "kind": kind, "sha256": digest}
            for role, kind, digest in judged.admission.evidence
        ],
        **{name: qualified.body[name] for name in _OF_HOST},
    }


def of_half(judged: Judged, known: Mapping[str, Any]) -> dict[str, Any]:
    """Members of a half that are fixed before its first arm begins."""
    return {
        **known,
        "kind": "measurement",
        "half": judged.asked.work,
        "controlled": CONTROLLED,
        "hardware_executed": True,
        "first_half_closed": judged.first.as_member() if judged.first else None,
        "endpoint": ENDPOINT.model_dump(mode="json"),
        "noise_threshold": str(NOISE),
        "settings": plain(judged.plan.settings),
    }


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as a JSON tree."""
    return {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}


def whole(kept: Kept, measured: Measured, beats: Iterable[str], *, ended: bool) -> dict[str, Any]:
    """Members of a half whose step has answered.

    Args:
        kept: its file of rounds.
        measured: the answer.
        beats: heartbeats that are not in the file.
        ended: whether the HOLD came to a good and proven end after it; nothing is claimed else.

    Raises:
        WrongError: ``INCOMPLETE``: a round is not in the file that was shown, or the other way
            round.
        RefusedError: ``NOT_PROVEN``: no arm came as far as its baseline.
    """
    arms = [dict(arm) for arm in measured.arms if arm["snapshots"]]
    _require_arms(arms)
    _require_same(arms, arms_told(kept))
    wanted = ARMS[kept.head.work]
    found = [(arm["arm"], arm["verdict"]) for arm in arms]
    complete = ended and found == [(arm, "complete") for arm in wanted]
    body = {**kept.head.body, **measured.members, **_laid_out(kept, beats)}
    limits = [*kept.head.body["limits"], *(() if complete else _of_cut(kept))]
    evidence = kept.head.body["evidence"]
    more = {"arms": arms, "complete": complete, "summary": None}
    return {**body, "limits": limits, "evidence": evidence, **more}


def cut(kept: Kept, beats: Iterable[str], *, alone: bool) -> dict[str, Any]:
    """Members of a half that was cut, from its file of rounds.

    Args:
        kept: the file.
        beats: heartbeats that are not in it.
        alone: whether nobody knows more than the file.

    Raises:
        RefusedError: ``NOT_PROVEN``: no arm came as far as its baseline, or nothing was measured
            since it was a rehearsal.
    """
    if kept.head.rehearsal or kept.head.work == "budget":
        found = "a rehearsal" if kept.head.rehearsal else "a budget"
        _refuse("the rounds of a half", found)
    arms = arms_told(kept)
    _require_arms(arms)
    limits = [*kept.head.body["limits"], *_of_cut(kept), *((_ALONE,) if alone else ())]
    body = {**kept.head.body, **_laid_out(kept, beats)}
    return {**body, "limits": limits, "arms": arms, "complete": False, "summary": None}


def _of_cut(kept: Kept) -> list[str]:
    """Limits of a half that was cut; what is missing of a damaged file is said."""
    fault = f"Of the file of rounds {len(kept.lines)} lines after the first count: {kept.fault}."
    return [_CUT, fault] if kept.fault else [_CUT]


def arms_told(kept: Kept) -> list[dict[str, Any]]:
    """Arms as far as the file of rounds tells of them, from their baseline on."""
    found = []
    for name in ARMS[kept.head.work]:
        own = [line.rounded for line in kept.lines if line.rounded and line.rounded.arm == name]
        snapshots = [one.snapshot for one in own if one.snapshot is not None]
        if not snapshots:
            continue
        found.append(
            {
                "arm": name,
                "switch": "ON" if SWITCHED_ON[name] else "OFF",
                "verdict": _verdict(kept, name),
                "baseline_sha256": tree_digest(snapshots[0]),
                "snapshots": snapshots,
                "rounds": [one.round for one in own if one.round is not None],
            }
        )
    return found


def _verdict(kept: Kept, name: str) -> str:
    """How an arm ended, as the host has said; one of which it has not was cut."""
    for line in kept.lines:
        one = line.stepped
        if one and (one.arm, one.phase, one.event) == (name, None, "end"):
            return str(one.found) if one.found in _VERDICTS else "partial"
    return "partial"


def _laid_out(kept: Kept, beats: Iterable[str]) -> dict[str, Any]:
    return {
        "timeline": chronicle.timeline(kept.head, kept.lines),
        "heartbeats_ns": [*chronicle.heartbeats(kept.lines), *beats],
    }


def _require_arms(arms: Sequence[Mapping[str, Any]]) -> None:
    if not arms:
        _refuse("an arm that came as far as its baseline", "none: nothing was measured")


def _require_same(arms: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]]) -> None:
    """Refuse an answer that is not what was written down round by round."""

    def parts(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
        return [(str(arm["arm"]), tree_digest([arm["snapshots"], arm["rounds"]])) for arm in found]

    if parts(arms) != parts(told):
        expected = "in the step's answer the rounds that it has told one by one"
        raise WrongError(Refusal(Code.INCOMPLETE, "the file of rounds", expected, "others"))


def _refuse(expected: str, found: str) -> None:
    raise RefusedError(Refusal(Code.NOT_PROVEN, "the file of rounds", expected, found))
