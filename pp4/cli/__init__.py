"""The ``pp4`` command: parse, build, call, render, exit code.

This is the composition root, the one place that knows every part; it decides nothing about
receipts, gates or machines.  Parts are imported by the command that needs them, so that
``pp4 --help`` stays light.  :func:`main` turns every way to end into one refusal and one exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from pp4 import __version__
from pp4.cli import (
    completing,
    drafter,
    fleet,
    holds,
    measure,
    prepare,
    qualify,
    receipts,
    replay,
    report,
    worker,
)
from pp4.cli.call import AsJson, Call, MaxAge, SameBoot, call_of, standing_policy
from pp4.cli.help import ByPath, attach
from pp4.config import load_settings
from pp4.console import Console
from pp4.console.endings import Stopped, answer, signals
from pp4.errors import Code, Exit, Refusal, RefusedError, UsageError

app = typer.Typer(
    help="Qualify a physical pair of GPUs for sampled DSpark drafting; leave checkable receipts.",
    cls=ByPath,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(holds.hold, name="hold")
app.add_typer(holds.host, name="host")
app.add_typer(measure.measure, name="measure")
app.add_typer(drafter.drafter, name="drafter")
app.add_typer(worker.worker, name="worker")
app.add_typer(replay.replay, name="replay")
app.add_typer(fleet.fleet, name="fleet")
app.add_typer(receipts.receipts, name="receipts")


def _say_version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        call_of(context).console.line(f"pp4 {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Qualify a physical pair of GPUs for sampled DSpark drafting; leave checkable receipts."""


app.command("pair-qualify")(qualify.pair_qualify)
app.command("solo-qualify")(qualify.solo_qualify)
app.command("prepare")(prepare.prepare)
app.command("report")(report.report)


@app.command("verify-receipt")
def verify_receipt(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Receipts to check.", autocompletion=completing.receipts
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(help="Refuse a receipt of another kind.", autocompletion=completing.kinds),
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="File of keys (ssh-keygen) whose signatures count.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option(help="Refuse what is older: 45 (seconds), 30m, 12h, 90d, 4w.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Accept receipts of an older source as history.")
    ] = False,
    current: Annotated[
        bool, typer.Option("--current", help="Refuse receipts of another source than this one.")
    ] = False,
    tree: Annotated[
        Path | None,
        typer.Option(help="Hold this tree against the outputs of a preparation's receipt."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check receipts offline: what they prove, and what they do not."""
    from pp4.clock import SystemClock, parse_span
    from pp4.receipts.models import KINDS
    from pp4.receipts.verify import Policy, verify

    policy = Policy(
        kind=_known_kind(kind, KINDS),
        max_age=None if max_age is None else parse_span(max_age, "--max-age"),
        current=current,
        history=history,
        allowed_signers=allowed_signers,
        now=SystemClock().wall(),
    )
    report = verify(files, policy)
    if tree is not None:
        from pp4.launch.record import tree_checks

        report = replace(report, overall=(*report.overall, *tree_checks(report, tree)))
    call_of(context).console.report(report)
    return int(report.exit)


@app.command()
def explain(
    context: typer.Context,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]", help="As a refusal names it.", autocompletion=completing.codes
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Explain a code: its cause, what is left behind, the way out; without one, list all."""
    from pp4.explain import PAGES, page

    console = call_of(context).console
    if code is None:
        console.pages([PAGES[one] for one in Code])
    else:
        console.page(page(code))
    return Exit.DONE


@app.command()
def doctor(
    context: typer.Context,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse where anything is missing or doubtful.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Say what this machine can do, and what to do about the rest."""
    from pp4.doctor import SystemProbes, diagnose

    call = call_of(context)
    diagnosis = diagnose(SystemProbes(), call.settings, strict=strict)
    call.console.diagnosis(diagnosis)
    return diagnosis.exit


@app.command()
def gate(
    context: typer.Context,
    receipt: Annotated[
        Path,
        typer.Argument(
            metavar="RECEIPT", help="A qualification.", autocompletion=completing.receipts
        ),
    ],
    max_age: MaxAge = None,
    same_boot: SameBoot = False,
    as_json: AsJson = False,
) -> int:
    """Say whether a worker with the switch on may start here, on this receipt (ExecStartPre)."""
    from pp4.qualify.standing import gate as judge
    from pp4.receipts.canonical import read_file
    from pp4.run.host import facts_of_this_machine

    # Both are read before the machine is asked, which takes a while.
    policy, raw = standing_policy(max_age, same_boot), read_file(receipt)
    call = call_of(context)
    answer = judge(raw, facts_of_this_machine(call.settings), policy, str(receipt))
    call.console.answer(answer)
    return int(answer.exit)


@app.command()
def status(
    context: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PLACE...]",
            help="Receipts, or directories of them, beside those kept here.",
            autocompletion=completing.receipts,
        ),
    ] = None,
    max_age: MaxAge = None,
    same_boot: SameBoot = False,
    as_json: AsJson = False,
) -> int:
    """Say what this machine is qualified for, and what ended each other qualification."""
    from pp4.qualify import standing
    from pp4.run.host import facts_of_this_machine
    from pp4.run.machine import ask_or_refusal

    call = call_of(context)
    policy = standing_policy(max_age, same_boot)
    paths = [*standing.kept(call.settings.state_dir), *standing.receipts_in(places or [])]
    facts, unknown = None, None
    if paths:
        facts, unknown = ask_or_refusal(lambda: facts_of_this_machine(call.settings))
    found = standing.status(paths, facts, policy, unknown)
    code = standing.exit_of(found)
    call.console.standings(found, standing.summary(found), code)
    return int(code)


attach(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: the arguments; those of this process if none are given.

    Returns:
        The exit code; nothing is raised.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Looked up before parsing, because a usage error has to be one JSON document as well.
    console = Console(as_json="--json" in arguments, color=False)
    try:
        with signals():
            return _run(arguments, console)
    except (Stopped, KeyboardInterrupt):
        # A signal while the answer to an earlier end was being printed; it has been said already.
        return int(Exit.INTERRUPTED)
    finally:
        console.close()


def _run(arguments: list[str], console: Console) -> int:
    debug = False
    call = None
    try:
        settings = load_settings()
        debug, console.color = settings.debug, settings.color
        call = Call(settings, console)
        return int(app(arguments, prog_name="pp4", standalone_mode=False, obj=call) or 0)
    except SystemExit as stop:
        # Shell completion ends so, and the parser when the reader of its help has left.
        broken = console.reader_left()
        return stop.code if isinstance(stop.code, int) and not broken else int(Exit.DONE)
    except (Exception, Stopped) as error:
        where = " ".join(["pp4", *arguments[:1]])
        refusal, code = answer(error, where, running=call is not None and call.running)
        with suppress(RefusedError):
            console.refusal(refusal)
        if debug and refusal.code is Code.INTERNAL:
            console.trace(error)
        return int(code)


def _known_kind(kind: str | None, known: Sequence[str]) -> str | None:
    if kind is None or kind in known:
        return kind
    near = get_close_matches(kind, known, n=1)
    raise UsageError(
        Refusal(
            code=Code.USAGE,
            where="pp4 verify-receipt --kind",
            expected=f"one of {', '.join(known)}" + (f" (perhaps {near[0]})" if near else ""),
            found=repr(kind),
            next="pp4 verify-receipt --help",
        )
    )
