"""What a window has left, as a receipt: a budget, a half, or as much of a half as there is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pp4.errors import (
    Code,
    Exit,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
    WrongError,
)
from pp4.hold.line import raised
from pp4.hold.supervisor import RESERVE_S
from pp4.measure import bodies, budgeting
from pp4.measure.admitting import FIRST, Judged
from pp4.measure.first_half import CLOSED
from pp4.measure.rounds_file import alone, read_rounds
from pp4.measure.summary import summarise
from pp4.receipts.build import build
from pp4.receipts.canonical import dump, shown
from pp4.receipts.digests import Source, file_digest
from pp4.receipts.models import read_model
from pp4.receipts.runs import Measurement, Summary
from pp4.receipts.store import write_new
from pp4.run.receipt import Outcome, require_same_source, room, store
from pp4.run.windows import unnamed
from pp4.wire.facts import refusal_of
from pp4.wire.measuring import Measured, Sampled

NOTHING: Final[Mapping[str, Any]] = {
    "receipt": None,
    "qualification": None,
    "rounds": None,
    "budget": None,
    "arms": [],
    "sampled": [],
    "summary": None,
    "differences": [],
    "check": None,
}
"""Members of the document of a command that has none of them."""
_EXITS: Final = {"over": Exit.REFUSED, "UNDECIDED": Exit.INCONCLUSIVE, "partial": Exit.WRONG}
"""Of verdicts that are no good end; any other was done as asked, a measured SLOWER included."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a window has left, once it is over.

    Attributes:
        judged: what was to be measured.
        rounds: the file of rounds.
        known: members that were known once the gates had passed.
        measured: the answer of the step; None where it was cut.
        spent: nanoseconds of the parts that the coordinator itself has seen, by name.
        beats: heartbeats that are not in the file of rounds.
        hold: id of the HOLD.
        host_key: fingerprint of the host's key, None without one.
        tombstone: of the HOLD; None where its end could not be proven.
        now: time of day.
        ended: whether nothing has cut the run, also not at its very end.
    """

    judged: Judged
    rounds: Path
    known: Mapping[str, Any]
    measured: Measured | None
    spent: Mapping[str, int]
    beats: tuple[str, ...]
    hold: str
    host_key: str | None
    tombstone: Mapping[str, Any] | None
    now: datetime
    ended: bool


@dataclass(frozen=True, slots=True)
class Sealed:
    """What was made of it.

    Attributes:
        outcome: the receipt, None where there is nothing to claim.
        rounds: the file of rounds, None where no arm was begun.
        refusal: what kept the rest from being measured, with its exit code.
    """

    outcome: Outcome | None
    rounds: Path | None
    refusal: Pp4Error | None = None


def seal_window(taken: Taken, qualification: Outcome | None) -> Sealed:
    """Seal what a window has left.

    Args:
        taken: that.
        qualification: of the gates of the same HOLD; None where none was stored.

    Raises:
        Pp4Error: the receipt contradicts itself, or cannot be written; what was measured is in
            the file of rounds, and a rejected receipt beside it.
    """
    if taken.judged.asked.work == "budget":
        return _budget(taken)
    if taken.measured is not None and not taken.measured.arms:
        # no arm came as far as its baseline: what kept it from that is all there is to say
        return Sealed(None, taken.rounds, _refusal(taken, None))
    kept = read_rounds(taken.rounds)
    if taken.measured is None:
        body = bodies.cut(kept, taken.beats, alone=False)
    else:
        ended = taken.ended and taken.tombstone is not None
        body = bodies.whole(kept, taken.measured, taken.beats, ended=ended)
    if qualification is not None:
        digest = file_digest(qualification.receipt_path.read_bytes())
        row = {"role": "qualification", "kind": "qualification", "sha256": digest}
        body["evidence"] = [*body["evidence"], row]
    verdict, refused = "complete" if body["complete"] else "partial", None
    if body["complete"] and body["half"] == "B2A2":
        try:
            body["summary"] = _summary(taken.judged, body).model_dump(mode="json")
            verdict = body["summary"]["verdict"]
        except Pp4Error as error:
            # the half stands by itself; what keeps both from being summed up is said
            refused = error
    outcome = _stored(taken, body, verdict)
    return Sealed(outcome, taken.rounds, refused or _refusal(taken, outcome))


def _summary(judged: Judged, body: Mapping[str, Any]) -> Summary:
    """What both halves say, of which the second is not stored yet."""
    first = judged.admission.receipts["measurement as first_half"]
    second = read_model(build({**body, "source": judged.source.as_dict()}), "the second half")
    if not (isinstance(first, Measurement) and isinstance(second, Measurement)):
        raise TypeError("two halves")
    (digest,) = (sha for role, _, sha in judged.admission.evidence if role == FIRST)
    return summarise(first, second, digest)


def _budget(taken: Taken) -> Sealed:
    """A budget is made of all its samples or not at all."""
    measured, judged = taken.measured, taken.judged
    refusal = _refusal(taken, None)
    if measured is None or refusal is not None or not taken.ended:
        return Sealed(None, taken.rounds, refusal)
    file = judged.asked.file
    limits_s = [float(one.limit_s) for one in (*file.quiesce, *file.restore)]
    samples = (
        *measured.sampled,
        *(Sampled(name=name, worst_ns=max(1, ns), samples=1) for name, ns in taken.spent.items()),
        budgeting.closing(limits_s, min(RESERVE_S, file.bound_s / 10)),
    )
    projected = budgeting.project(samples, judged.schedule, int(file.bound_s * 1e9))
    body = {
        **taken.known,
        **measured.members,
        **projected.members(),
        "kind": "budget",
        "hardware_executed": True,
        "limits": list(bodies.BUDGET_LIMITS),
        "evidence": taken.known["evidence"],
        "expires_at": budgeting.expires_at(taken.now),
        "shapes": bodies.plain(judged.plan.shapes),
    }
    return Sealed(_stored(taken, body, projected.verdict), taken.rounds)


def _stored(taken: Taken, body: dict[str, Any], verdict: str) -> Outcome:
    """Store a receipt, and the tombstone of its HOLD beside it."""
    asked = taken.judged.asked
    require_same_source(taken.judged.source, asked.command)
    body["hold"] = {**body["hold"], "host_key": taken.host_key}
    path = asked.out / f"{body['kind']}-{taken.hold}.json"
    ends = _EXITS.get(verdict, Exit.DONE)
    outcome = store(body, taken.judged.source, path, verdict, ends)
    if taken.tombstone is not None:
        write_new(path.with_suffix(CLOSED), dump(unnamed(taken.tombstone)))
    return outcome


def _refusal(taken: Taken, outcome: Outcome | None) -> Pp4Error | None:
    """What kept the rest from being measured: a half that has arms was wrong, not refused."""
    if taken.measured is None or taken.measured.refusal is None:
        return None
    refusal = refusal_of(taken.measured.refusal)
    if outcome is not None:
        refusal = replace(refusal, left=f"{outcome.receipt_path}, which is not complete")
    error = raised(refusal)
    if outcome is not None and not isinstance(error, TimedOutError | UncleanError):
        return WrongError(refusal)
    return error


def document(
    outcome: Outcome, rounds: Path | None, qualification: Outcome | None = None
) -> dict[str, Any]:
    """What there is to say of a stored receipt, as a JSON tree.

    Args:
        outcome: of the receipt.
        rounds: its file of rounds.
        qualification: of the gates of the same HOLD.
    """
    receipt: Mapping[str, Any] = outcome.receipt
    arms = receipt.get("arms", ())
    return {
        **NOTHING,
        "verdict": outcome.verdict,
        "exit": int(outcome.exit),
        "receipt": str(outcome.receipt_path),
        "qualification": str(qualification.receipt_path) if qualification else None,
        "rounds": str(rounds) if rounds else None,
        "budget": receipt if receipt["kind"] == "budget" else None,
        "arms": [
            {"arm": one["arm"], "verdict": one["verdict"], "rounds": len(one["rounds"])}
            for one in arms
        ],
        "summary": receipt.get("summary"),
        "check": f"pp4 verify-receipt {shlex.quote(str(outcome.receipt_path))}",
    }


def seal_file(path: Path, out: Path | None) -> Outcome:
    """Make a receipt of a file of rounds whose coordinator was killed: not complete, no claim.

    Args:
        path: the file.
        out: directory of the receipt; that of the file where None.

    Raises:
        RefusedError: ``HELD_BY``, it is still written; ``NOT_PROVEN``, there is nothing to seal;
            ``EXISTS``, it is sealed already; what reading it is refused with.
    """
    with alone(path):
        kept = read_rounds(path)
        try:
            body = bodies.cut(kept, (), alone=True)
            name, source = _name_of(body), _source(body["source"])
        except (KeyError, TypeError, AttributeError) as error:
            where, expected = shown(str(path), 300), "a first line as pp4 writes it"
            found = shown(f"{type(error).__name__}: {error}")
            raise RefusedError(Refusal(Code.SCHEMA, where, expected, found)) from error
        directory = out or path.parent
        with room(directory):
            return store(body, source, directory / name, "partial", Exit.DONE)


def _name_of(body: Mapping[str, Any]) -> str:
    name = f"measurement-{body['hold']['id']}.json"
    if Path(name).name != name:
        # a file that somebody else made does not say where others are written
        raise TypeError("the id of the HOLD is a path")
    return name


def _source(tree: Mapping[str, Any]) -> Source:
    rows = tuple((str(row["path"]), str(row["sha256"])) for row in tree["files"])
    return Source(str(tree["digest"]), rows)
