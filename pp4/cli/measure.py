"""``pp4 measure ...``: a budget, the two halves, their summary, and what a cut half has left."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pp4.cli import holds
from pp4.cli.call import AsJson, Call, call_of
from pp4.errors import Code, Exit, Pp4Error, Refusal, UsageError

if TYPE_CHECKING:
    from pp4.console.watching import Watching
    from pp4.measure.admitting import Asked, Judged
    from pp4.measure.sealing import Sealed
    from pp4.run.receipt import Outcome
    from pp4.wire.measuring import Work

_REHEARSED = Path("pp4-rehearsal")
measure = typer.Typer(help="Measure OFF against ON on a qualified pair, in two HOLDs.")

Hold = Annotated[
    str | None,
    typer.Option(
        "--hold",
        metavar="FILE|local",
        help="Two GPUs of the host that a HOLD file names, or of this machine ('local').",
    ),
]
Solo = Annotated[Path | None, typer.Option(help="Solo receipt that the gates have to match.")]
WholeWorker = Annotated[
    Path | None, typer.Option(help="Receipt of a solo worker whose outputs the pair's has to give.")
]
BudgetFile = Annotated[
    Path | None, typer.Option("--budget", help="Receipt of 'pp4 measure budget'.")
]
Out = Annotated[
    Path | None,
    typer.Option(help="Directory of receipts and rounds; that of this user's receipts."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Rehearse the arms on the CPU of this machine.")
]


@measure.command("budget")
def measure_budget(
    context: typer.Context,
    hold: Hold = None,
    solo: Solo = None,
    whole_worker: WholeWorker = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Find out in a HOLD of its own how long a half takes."""
    given = {"--solo": solo, "--whole-worker": whole_worker}
    return _measured(call_of(context), "budget", hold, given, out, dry_run=dry_run)


@measure.command("A1B1")
def measure_a1b1(
    context: typer.Context,
    hold: Hold = None,
    solo: Solo = None,
    whole_worker: WholeWorker = None,
    budget: BudgetFile = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Measure the first half: OFF, then ON, after the gates of the same HOLD."""
    given = {"--solo": solo, "--whole-worker": whole_worker, "--budget": budget}
    return _measured(call_of(context), "A1B1", hold, given, out, dry_run=dry_run)


@measure.command("B2A2")
def measure_b2a2(
    context: typer.Context,
    hold: Hold = None,
    first: Annotated[
        Path | None, typer.Option(help="Receipt of the first half; its tombstone lies beside it.")
    ] = None,
    solo: Solo = None,
    whole_worker: WholeWorker = None,
    budget: BudgetFile = None,
    out: Out = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Measure the second half: ON, then OFF, in a second restored HOLD; then say what both say."""
    given = {"--solo": solo, "--whole-worker": whole_worker, "--budget": budget, "--first": first}
    return _measured(call_of(context), "B2A2", hold, given, out, dry_run=dry_run)


@measure.command("seal")
def measure_seal(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rounds of a half whose coordinator was killed.")
    ],
    out: Out = None,
    as_json: AsJson = False,
) -> int:
    """Make a receipt, not complete and without a claim, of what a cut half has left."""
    from pp4.measure.sealing import seal_file

    call = call_of(context)
    outcome = seal_file(file, out)
    call.console.measurement(_document(outcome=outcome, rounds=file))
    return int(outcome.exit)


def _measured(
    call: Call,
    work: Work,
    hold: str | None,
    given: Mapping[str, Path | None],
    out: Path | None,
    *,
    dry_run: bool,
) -> int:
    from pp4.measure.admitting import Asked, admitted, rehearsed
    from pp4.qualify.standing import KEPT
    from pp4.receipts.digests import installed_source

    _require_one_way(work, hold, given, dry_run)
    file = holds.file_of(hold or "local", call.settings)
    roles = {"--budget": "budget", "--first": "first_half"}
    asked = Asked(
        work=work,
        command=f"pp4 measure {work}{_option(hold)}",
        file=file,
        given=[(roles.get(name, "identity_reference"), one) for name, one in given.items() if one],
        out=out or (_REHEARSED if dry_run else call.settings.state_dir / KEPT),
    )
    source = installed_source()
    if dry_run:
        return _rehearsal(call, rehearsed(asked, source))
    judged = admitted(asked, source, call.console.projection)
    with call.console.progress() as progress:
        call.running = True
        sealed, outcome = _in_one_hold(call, judged, hold or "local", progress)
        call.running = False
    made = _document(sealed.outcome, sealed.rounds, outcome)
    call.console.measurement(made)
    return int(made["exit"])


def _option(hold: str | None) -> str:
    """As somebody would give it; a path is nobody else's business."""
    if hold is None:
        return " --dry-run"
    return f" --hold {'local' if hold == 'local' else 'FILE'}"
