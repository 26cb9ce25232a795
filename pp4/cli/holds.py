"""``pp4 hold ...`` and ``pp4 host ...``: HOLDs and the host that they are on."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pp4.cli import completing
from pp4.cli.call import AsJson, Call, call_of
from pp4.errors import Code, Exit, Refusal, RefusedError, TimedOutError, WrongError

if TYPE_CHECKING:
    from pp4.config import Settings
    from pp4.config.hold_file import HoldFile
    from pp4.hold.deferred import Deferred
    from pp4.hold.exclusion import Exclusion

hold = typer.Typer(help="HOLDs of this host: look, recover, clear, prune; write a HOLD file.")
host = typer.Typer(help="What a host needs before HOLDs can be opened on it.")

File = Annotated[
    str | None,
    typer.Option(
        "--hold",
        metavar="FILE|local",
        help="The host of a HOLD file; this one where none is given.",
        autocompletion=completing.hold_files,
    ),
]
HoldId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="As 'pp4 hold status' shows it.",
        autocompletion=completing.open_holds,
    ),
]


def file_of(name: str, settings: Settings) -> HoldFile:
    """The HOLD file of that name, or the embedded one of ``local``."""
    from pp4.config.hold_file import load_hold_file, local_hold_file

    return local_hold_file(settings) if name == "local" else load_hold_file(Path(name))


def _plain(tree: dict[str, object]) -> dict[str, Any]:
    """The same in what JSON has words for, as it comes from another host too."""
    plain: dict[str, Any] = json.loads(json.dumps(tree, default=str))
    return plain


def _exclusion(call: Call) -> Exclusion:
    from pp4.hold.exclusion import open_exclusion

    return open_exclusion(call.settings.host_dir, call.settings.state_dir, make=False)


@host.command("init")
def host_init(context: typer.Context, as_json: AsJson = False) -> int:
    """Make the directory of locks and fences that all users of this host share (as root)."""
    from pp4.hold.upkeep import init_host

    call = call_of(context)
    call.console.facts({"directories": list(init_host(call.settings.host_dir))})
    return Exit.DONE


@hold.command("new")
def hold_new(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that is not there yet.")],
    as_json: AsJson = False,
) -> int:
    """Write an example of a HOLD file, with every key and a comment for each."""
    from pp4.config.hold_file import example

    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(example())
    except OSError as error:
        code = Code.EXISTS if isinstance(error, FileExistsError) else Code.UNWRITABLE
        found = error.strerror or str(error)
        raise RefusedError(Refusal(code, str(file), "a new file", found)) from error
    call_of(context).console.facts({"file": str(file)})
    return Exit.DONE


@hold.command("status")
def hold_status(context: typer.Context, file: File = None, as_json: AsJson = False) -> int:
    """Say which HOLDs there are on a host, and how its GPUs stand."""
    call = call_of(context)
    if file is None:
        from pp4.clock import SystemClock
        from pp4.hold.overview import overview

        found = overview(_exclusion(call), call.settings.state_dir, SystemClock())
        call.console.overview(_plain(asdict(found)))
        return Exit.DONE
    from pp4.hold.reach import reached

    with reached(file_of(file, call.settings)) as place:
        call.console.overview(place.ask("pp4", "hold", "status", "--json"))
    return Exit.DONE


@hold.command("close")
def hold_close(
    context: typer.Context,
    hold_id: HoldId,
    file: Annotated[
        str,
        typer.Option(
            "--hold",
            metavar="FILE|local",
            help="Its host.",
            autocompletion=completing.hold_files,
        ),
    ],
    fence: Annotated[
        int | None, typer.Option(help="Its fence; that of the close that is kept here otherwise.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Close exactly one HOLD whose coordinator is gone; one that is closed says its tombstone."""
    from pp4.clock import SystemClock
    from pp4.hold.deferred import CLOSES, Deferred
    from pp4.hold.delivery import deliver
    from pp4.hold.reach import reached
    from pp4.wire.holds import Close

    call = call_of(context)
    deferred = Deferred(call.settings.state_dir / CLOSES)
    read = file_of(file, call.settings)
    with reached(read) as place:
        if fence is None:
            fence = _kept_fence(deferred, place.host.address, hold_id)
        close = Close(hold=hold_id, fence=fence, why="cancelled")
        directories = (read.host.state_dir, read.host.host_dir)
        limit_s = read.restore_s
        try:
            found = deliver(place.host, place.program, close, directories, SystemClock(), limit_s)
        except (TimedOutError, WrongError):
            # not refused, so it may still be what is wanted
            deferred.store(place.host.address, hold_id, fence, "cancelled")
            raise
        deferred.delivered(hold_id)
    call.console.facts(found)
    return Exit.DONE


def _kept_fence(deferred: Deferred, address: str, hold_id: str) -> int:
    kept = {one.hold: int(one.fence) for one in deferred.pending(address)}
    if hold_id not in kept:
        found = ", ".join(sorted(kept)) or "none"
        raise RefusedError(
            Refusal(
                Code.UNKNOWN_HOLD,
                f"closes kept for {address}",
                f"one of HOLD {hold_id}, or its fence",
                found,
                next=f"pp4 hold close {hold_id} --fence NUMBER --hold FILE",
            )
        )
    return kept[hold_id]


@hold.command("recover")
def hold_recover(
    context: typer.Context,
    hold_id: HoldId,
    file: File = None,
    out: Annotated[
        Path | None, typer.Option(help="Directory for the incident receipt; that of receipts.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Bury a HOLD whose holder is gone, and write down what is known of it as a receipt."""
    from pp4.hold.local import BOUND_S
    from pp4.hold.reach import ASK_S, reached
    from pp4.qualify.standing import KEPT
    from pp4.receipts.canonical import dump
    from pp4.receipts.store import write_new
    from pp4.run.receipt import room

    call = call_of(context)
    read = file_of(file or "local", call.settings)
    # restore commands that are left are run too; those of a file are known
    limit_s = ASK_S + (read.restore_s if file else BOUND_S)
    with reached(read) as place:
        receipt = place.ask("pp4.hold.recovery", hold_id, limit_s=limit_s)
    directory = out or call.settings.state_dir / KEPT
    with room(directory):
        # what is known may have changed since the last one, and no receipt is ever replaced
        names = (f"incident-{hold_id}{'' if number == 1 else f'-{number}'}" for number in count(1))
        path = next(one for name in names if not (one := directory / f"{name}.json").exists())
        write_new(path, dump(receipt))
    told = {name: receipt[name] for name in ("what", "state", "unproven")}
    if receipt["facts"].get("put_back"):
        told["put_back"] = receipt["facts"]["put_back"]
    if receipt["state"] == "quarantined":
        # nothing here ends a quarantine, also where everything is proven over by now
        told["next"] = "pp4 hold clear --operator NAME --why TEXT GPU, on the host of the HOLD"
    call.console.facts({"receipt": str(path), **told})
    return Exit.DONE


@hold.command("clear")
def hold_clear(
    context: typer.Context,
    gpu: Annotated[
        str,
        typer.Argument(
            metavar="GPU",
            help="UUID of a GPU in quarantine.",
            autocompletion=completing.quarantined,
        ),
    ],
    operator: Annotated[str, typer.Option(help="Who has looked at it.")],
    why: Annotated[str, typer.Option(help="What was found, and why it is safe.")],
    as_json: AsJson = False,
) -> int:
    """End the quarantine of a GPU, on an operator's word; it is written down first."""
    from pp4.clock import SystemClock
    from pp4.hold.clearing import clear

    call = call_of(context)
    cleared = clear(_exclusion(call), gpu, operator, why, SystemClock())
    call.console.facts(_plain(asdict(cleared)))
    return Exit.DONE


@hold.command("prune")
def hold_prune(
    context: typer.Context,
    older_than: Annotated[str, typer.Option(help="12h, 90d, 4w.")] = "90d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say it, remove nothing.")] = False,
    as_json: AsJson = False,
) -> int:
    """Remove records of HOLDs that ended long ago; fences stay."""
    from pp4.clock import SystemClock, parse_span
    from pp4.hold.pruning import prune

    call = call_of(context)
    gone = prune(
        _exclusion(call),
        call.settings.state_dir,
        parse_span(older_than, "--older-than"),
        SystemClock(),
        dry_run,
    )
    name = "would_remove" if dry_run else "removed"
    call.console.facts({name: [str(path) for path in gone]})
    return Exit.DONE
