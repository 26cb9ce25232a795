"""``pp4 measure ...``: a budget, the two halves, their summary, and what a cut half has left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pp4.cli import completing, holds
from pp4.cli.call import AsJson, Call, call_of
from pp4.errors import Code, Exit, Refusal, UsageError

if TYPE_CHECKING:
    from pp4.console.watching import Watching
    from pp4.measure.admitting import Judged, Known
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
        autocompletion=completing.hold_files,
    ),
]
Solo = Annotated[
    Path | None,
    typer.Option(
        help="Solo receipt that the gates have to match.", autocompletion=completing.receipts
    ),
]
WholeWorker = Annotated[
    Path | None,
    typer.Option(
        help="Receipt of a solo worker whose outputs the pair's has to give.",
        autocompletion=completing.receipts,
    ),
]
BudgetFile = Annotated[
    Path | None,
    typer.Option(
        "--budget", help="Receipt of 'pp4 measure budget'.", autocompletion=completing.receipts
    ),
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
        Path | None,
        typer.Option(
            help="Receipt of the first half; its tombstone lies beside it.",
            autocompletion=completing.receipts,
        ),
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


@measure.command("summary")
def measure_summary(
    context: typer.Context,
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A1B1", help="Receipt of the first half.", autocompletion=completing.receipts
        ),
    ],
    second: Annotated[
        Path,
        typer.Argument(
            metavar="B2A2", help="Receipt of the second half.", autocompletion=completing.receipts
        ),
    ],
    as_json: AsJson = False,
) -> int:
    """Compute the summary of two halves anew, and hold the stored one against it."""
    from pp4.measure.stored import summary_of

    call = call_of(context)
    found = summary_of(first, second)
    call.console.measurement(found)
    return int(found["exit"])


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
    from pp4.measure.sealing import document, seal_file

    call = call_of(context)
    outcome = seal_file(file, out)
    call.console.measurement(document(outcome, file))
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
    from pp4.measure.sealing import document
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

    def show(found: Known) -> None:
        if found.budget is not None:
            call.console.projection(found.budget.model_dump(mode="json"))

    judged = admitted(asked, source, show)
    with call.console.progress() as progress:
        call.running = True
        sealed, gates = _in_one_hold(call, judged, hold or "local", progress)
        call.running = False
    if sealed.outcome is None:
        # they did not pass, so nothing was measured
        call.console.outcome(gates)
        return int(gates.exit)
    made = document(sealed.outcome, sealed.rounds, gates)
    call.console.measurement(made)
    return int(sealed.outcome.exit)


def _rehearsal(call: Call, judged: Judged) -> int:
    from pp4.measure.rehearsal import document_of, rehearse

    with call.console.progress() as progress:
        call.running = True
        found = rehearse(judged, progress, call.settings.temp_dir)
        call.running = False
    call.console.measurement(document_of(found))
    return int(Exit.DONE)


def _option(hold: str | None) -> str:
    """As somebody would give it; a path is nobody else's business."""
    if hold is None:
        return " --dry-run"
    return f" --hold {'local' if hold == 'local' else 'FILE'}"


def _require_one_way(
    work: str, hold: str | None, given: Mapping[str, Path | None], dry_run: bool
) -> None:
    """Refuse what is neither a rehearsal nor a run in a HOLD, or both."""
    named = [name for name, path in given.items() if path is not None]
    if dry_run == (hold is not None) or (dry_run and named):
        found = [*(["--dry-run"] if dry_run else []), *(["--hold"] if hold else []), *named]
        raise UsageError(
            Refusal(
                Code.USAGE,
                f"pp4 measure {work}",
                "--hold FILE or local, or --dry-run alone",
                " and ".join(found) or "neither",
                next=f"pp4 measure {work} --dry-run",
            )
        )


def _in_one_hold(
    call: Call, judged: Judged, named: str, progress: Watching
) -> tuple[Sealed, Outcome]:
    """Run the gates and what they allow in one HOLD; -> what is left of both.

    Raises:
        Pp4Error: what ended the run; what was measured until then is sealed and said.
    """
    from pp4.clock import SystemClock
    from pp4.measure.held import Measuring
    from pp4.measure.sealing import Sealed
    from pp4.qualify.held import gates_held, stored_of
    from pp4.qualify.wanted import Wanted

    asked = judged.asked
    wanted = Wanted("full", named, evidence=judged.identity, of_file=False)
    held = None
    with Measuring(judged, progress, SystemClock()) as measuring:
        try:
            with gates_held(
                asked.file,
                wanted,
                asked.out,
                progress,
                state_dir=call.settings.state_dir,
                further=measuring,
            ) as held:
                if held.qualified is not None:
                    measuring.measure(held.qualified)
        except BaseException as error:
            said = measuring.cut(error, held.outcome if held else None)
            if said is None:
                raise
            raise said from error
        gates = stored_of(held)
        sealed = Sealed(None, None) if held.qualified is None else measuring.seal(gates)
    if sealed.refusal is not None:
        raise sealed.refusal
    return sealed, gates
