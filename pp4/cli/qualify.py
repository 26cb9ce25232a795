"""The commands that qualify: a pair of GPUs, one of them alone, or neither in a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pp4.cli import completing, holds
from pp4.cli.call import AsJson, call_of
from pp4.errors import Code, Refusal, UsageError

_REHEARSED = Path("pp4-rehearsal")


class Scope(StrEnum):
    """What a qualification is about."""

    KERNELS = "kernels"
    FULL = "full"


Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="DIR|mini",
        help="Drafter on the host that a worker loads, or pp4's own; one is made up otherwise.",
    ),
]


def pair_qualify(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Rehearse every gate on the CPU of this machine.")
    ] = False,
    hold: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|local",
            help="Hold two GPUs of the host that a HOLD file names, or of this machine ('local').",
            autocompletion=completing.hold_files,
        ),
    ] = None,
    dry_run_device: Annotated[
        bool,
        typer.Option(
            "--dry-run-device", help="With a HOLD file: rehearse there, without touching a GPU."
        ),
    ] = False,
    soak: Annotated[
        int,
        typer.Option(min=0, max=60, help="Minutes of exchanges with random skew after the gates."),
    ] = 0,
    scope: Annotated[
        Scope | None,
        typer.Option(help="kernels, or full: with gate 6, on --solo and --whole-worker."),
    ] = None,
    solo: Annotated[
        Path | None,
        typer.Option(
            help="Solo receipt that the run has to match.", autocompletion=completing.receipts
        ),
    ] = None,
    whole_worker: Annotated[
        Path | None,
        typer.Option(
            help="Receipt of a solo worker whose outputs the pair's has to give.",
            autocompletion=completing.receipts,
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory for the receipt; pp4-rehearsal, or that of this user's receipts."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the gates on a pair of ranks and write a receipt."""
    from pp4.qualify.standing import KEPT
    from pp4.receipts.canonical import read_file

    call = call_of(context)
    physical: dict[str, object] = {
        "--soak": soak,
        "--scope": scope,
        "--solo": solo,
        "--whole-worker": whole_worker,
        "--checkpoint": checkpoint,
    }
    _require_one_way(dry_run, hold, dry_run_device, physical)
    full = scope is Scope.FULL or (scope is None and bool(solo and whole_worker))
    _require_worker_asked_for(full, whole_worker, checkpoint)
    evidence = [("identity_reference", read_file(one)) for one in (solo, whole_worker) if one]
    kept = out or call.settings.state_dir / KEPT
    with call.console.progress() as progress:
        call.running = True
        if hold is None:
            from pp4.qualify.rehearsal import rehearse

            outcome = rehearse(out or _REHEARSED, progress)
        else:
            from pp4.qualify.held import qualify_on_host
            from pp4.qualify.wanted import Wanted

            outcome = qualify_on_host(
                holds.file_of(hold, call.settings),
                Wanted(
                    "rehearsal" if dry_run_device else "full" if full else "pair",
                    hold,
                    evidence=evidence,
                    soak_minutes=soak,
                    checkpoint=checkpoint,
                ),
                (out or _REHEARSED) if dry_run_device else kept,
                progress,
                state_dir=call.settings.state_dir,
            )
        call.running = False
    call.console.outcome(outcome)
    return int(outcome.exit)


def _require_one_way(
    dry_run: bool, hold: str | None, dry_run_device: bool, physical: Mapping[str, object]
) -> None:
    """Refuse a run that is neither a rehearsal nor one in a HOLD, or both.

    Args:
        dry_run: of ``--dry-run``.
        hold: of ``--hold``.
        dry_run_device: of ``--dry-run-device``.
        physical: options that only a run on GPUs has.
    """
    if (
        dry_run == (hold is not None)
        or (dry_run_device and not hold)
        or ((dry_run or dry_run_device) and any(physical.values()))
    ):
        options: dict[str, object] = {
            "--dry-run": dry_run,
            "--hold": hold,
            "--dry-run-device": dry_run_device,
            **physical,
        }
        given = [name for name, on in options.items() if on]
        raise UsageError(
            Refusal(
                code=Code.USAGE,
                where="pp4 pair-qualify",
                expected="either --dry-run alone, or --hold FILE or local; "
                "--dry-run-device goes with --hold, and neither rehearsal with "
                f"{', '.join(physical)}",
                found=" and ".join(given) or "neither",
                next="pp4 pair-qualify --dry-run",
            )
        )


def _require_worker_asked_for(
    full: bool, whole_worker: Path | None, checkpoint: str | None
) -> None:
    """Refuse what is about a worker where none is run; nothing is ignored silently."""
    if full or not (whole_worker or checkpoint):
        return
    raise UsageError(
        Refusal(
            code=Code.USAGE,
            where="pp4 pair-qualify",
            expected="--scope full, with --solo and --whole-worker, for a run of the whole worker",
            found="--whole-worker" if whole_worker else "--checkpoint",
            next="pp4 pair-qualify --help",
        )
    )


def solo_qualify(
    context: typer.Context,
    gpu: Annotated[
        str | None, typer.Option(help="UUID, its beginning, or index; the first GPU otherwise.")
    ] = None,
    hold: Annotated[
        str,
        typer.Option(
            metavar="FILE|local",
            help="The host of a HOLD file, and its GPUs; this one otherwise.",
            autocompletion=completing.hold_files,
        ),
    ] = "local",
    checkpoint: Checkpoint = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the receipt; that of this user's otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the gates that need no peer on one GPU, then a worker; write a receipt of each."""
    call = call_of(context)
    with call.console.progress() as progress:
        call.running = True
        from pp4.qualify.held import qualify_on_host
        from pp4.qualify.standing import KEPT
        from pp4.qualify.wanted import Wanted

        outcome = qualify_on_host(
            holds.file_of(hold, call.settings),
            Wanted("solo", hold, gpu=gpu, checkpoint=checkpoint),
            out or call.settings.state_dir / KEPT,
            progress,
            state_dir=call.settings.state_dir,
        )
        call.running = False
    call.console.outcome(outcome)
    return int(outcome.exit)
