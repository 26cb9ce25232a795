"""``pp4 worker ...``: start a worker that drafts, and ask one how it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from pp4.cli import completing
from pp4.cli.call import AsJson, MaxAge, SameBoot, call_of, standing_policy
from pp4.config import INTERPRETED, ON_GPUS, SWITCHES, Settings, child_environment, sampled_switch
from pp4.errors import Code, Refusal, RefusedError, UsageError

if TYPE_CHECKING:
    from pp4.wire.serving import Serve

worker = typer.Typer(help="Workers that draft: start one, ask one how it is.")
_PROGRAM: Final = "pp4.worker.serve"
_SOURCE = Path(__file__).resolve().parents[2]
_RUNTIME: Final = "worker"
_SOCKET: Final = "socket"


@worker.command("serve")
def serve(
    context: typer.Context,
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Directory of the drafter.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(help="Directory of the target, for what the drafter's checkpoint leaves out."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="gpu, interpreter or reference; the last two are for a CPU.")
    ] = "gpu",
    gpu: Annotated[
        list[str] | None,
        typer.Option(help="UUID, its beginning, or index; twice for a pair, rank 0 first."),
    ] = None,
    solo: Annotated[bool, typer.Option("--solo", help="Both shards on one device.")] = False,
    socket: Annotated[
        Path | None, typer.Option(help="Unix socket; one in the directory of state otherwise.")
    ] = None,
    tcp: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Listen on loopback besides.")
    ] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes to capture, rising.")] = "1,2,4,8,16,32",
    depths: Annotated[str, typer.Option(help="Numbers of positions to capture.")] = "4,5",
    slots: Annotated[int, typer.Option(help="Requests that can be open at once.")] = 64,
    context_tokens: Annotated[
        int, typer.Option("--context", help="Tokens that a request may have features of.")
    ] = 4096,
    cache_mib: Annotated[int, typer.Option(help="MiB of cached bias rows on each rank.")] = 256,
    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus metrics on 127.0.0.1; 0 for any free port.")
    ] = None,
    qualification: Annotated[
        Path | None,
        typer.Option(
            help="With the switch on: the receipt; the newest that stands otherwise.",
            autocompletion=completing.receipts,
        ),
    ] = None,
    max_age: MaxAge = None,
    same_boot: SameBoot = False,
    grant: Annotated[
        bool, typer.Option("--grant", help="A HOLD's grant comes over standard input.")
    ] = False,
    exit_when_failed: Annotated[
        bool, typer.Option("--exit-when-failed", help="End once the ranks have failed.")
    ] = False,
    log: Annotated[str, typer.Option(help="Form of the log: json or text.")] = "json",
    log_blocks: Annotated[
        bool, typer.Option("--log-blocks", help="A line for each block.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Serve drafts of a checkpoint in the foreground, until a signal ends it."""
    from pp4.qualify.starting import Wish, leave
    from pp4.run.host import facts_of_this_machine, look_at_gpus
    from pp4.run.receipt import require_packages
    from pp4.wire.serving import settings_of

    settings = call_of(context).settings
    # once, and never again: what it says now is what the worker is started with
    sampled = sampled_switch()
    wanted: dict[str, object] = {
        "checkpoint": str(checkpoint.absolute()),
        "target": None if target is None else str(target.absolute()),
        "device": device,
        "solo": solo,
        "socket": str((socket or runtime_socket(settings)).absolute()),
        "tcp": None if tcp is None else _tcp(tcp),
        "batches": _numbers(batches, "--batches"),
        "depths": _numbers(depths, "--depths"),
        "slots": slots,
        "context": context_tokens,
        "cache_mib": cache_mib,
        "metrics_port": metrics_port,
        "state": str(settings.state_dir / _RUNTIME),
        "compiled": str(settings.state_dir / "compiled"),
        "exit_when_failed": exit_when_failed,
        "log": log,
        "log_blocks": log_blocks,
    }
    if grant and qualification:
        raise _usage("--grant", "either a grant or a qualification", "--qualification")
    # before the GPUs are asked, which takes a while
    first, policy = _sound(wanted, gpu or ()), standing_policy(max_age, same_boot)
    require_packages("pp4 worker serve")
    found = leave(
        Wish(sampled, first.device, solo, tuple(gpu or ()), qualification, grant),
        settings.state_dir,
        look_at_gpus,
        lambda: facts_of_this_machine(settings),
        policy,
    )
    permission = found.permission.model_dump()
    become(settings_of({**wanted, "gpus": found.gpus, "permission": permission}), sampled)


def _sound(wanted: Mapping[str, object], gpus: Sequence[str]) -> Serve:
    """Read settings whose GPUs are not known yet."""
    from pp4.wire.serving import settings_of

    if wanted["device"] != "gpu":
        if gpus:
            raise _usage("--gpu", f"no GPU with device {wanted['device']}", ", ".join(gpus))
        return settings_of(wanted)
    most = 1 if wanted["solo"] else 2
    if len(gpus) not in (0, most):
        raise _usage("--gpu", f"{most} GPUs, or none to have them found", ", ".join(gpus))
    names = [f"GPU-00000000-0000-0000-0000-{at:012}" for at in range(most)]
    return settings_of({**wanted, "gpus": names})


def runtime_socket(settings: Settings) -> Path:
    """Where a worker of this user listens unless it is told otherwise."""
    return settings.state_dir / _RUNTIME / _SOCKET


def become(asked: Serve, sampled: bool) -> NoReturn:
    """Turn this process into the worker, so that a service manager's signals reach it.

    Args:
        asked: what it is told.
        sampled: whether the switch is on; this is the only way in which it is handed over.

    Raises:
        RefusedError: ``UNREADABLE``, the interpreter cannot be started again.
    """
    changes = dict(ON_GPUS if asked.device == "gpu" else INTERPRETED)
    # this very package: no other copy may serve in its place
    changes["PYTHONPATH"] = str(_SOURCE)
    if sampled:
        changes[SWITCHES[0]] = "1"
    argv = [sys.executable, "-P", "-m", _PROGRAM, asked.model_dump_json()]
    try:
        os.execve(argv[0], argv, child_environment(changes))
    except OSError as error:
        found = error.strerror or str(error)
        refusal = Refusal(Code.UNREADABLE, argv[0], "an interpreter that starts", found)
        raise RefusedError(refusal) from error


@worker.command("status")
def status(
    context: typer.Context,
    socket: Annotated[
        Path | None,
        typer.Argument(metavar="[SOCKET]", help="Its socket; the one in the directory of state."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Say how a worker is, and what its ranks failed with."""
    from pp4.console.workers import exit_of
    from pp4.transport.worker_socket import ask_status

    call = call_of(context)
    standing = ask_status(socket or runtime_socket(call.settings))
    call.console.worker(standing)
    return int(exit_of(standing))


def _numbers(text: str, option: str) -> list[int]:
    """Read whole numbers with commas between them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise _usage(option, "whole numbers with commas between them (1,2,4)", text)
    return [int(part) for part in parts]


def _tcp(text: str) -> dict[str, object]:
    """Read an address and a port; one of version 6 may stand in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) < 6):
        raise _usage("--tcp", "an address of the loopback interface and a port", text)
    return {"host": host.removeprefix("[").removesuffix("]"), "port": int(port)}


def _usage(option: str, expected: str, found: str) -> UsageError:
    where, again = f"pp4 worker serve {option}", "pp4 worker serve --help"
    return UsageError(Refusal(Code.USAGE, where, expected, repr(found), next=again))
