"""What a shell offers for the word that is being typed; it only reads, and never fails.

typer asks for it with a variable in the environment (``pp4 --show-completion`` prints how).  No
other host is asked: a key that completes a word may not open a connection.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from pp4.cli.call import Call
from pp4.errors import Code, Pp4Error

if TYPE_CHECKING:
    from pp4.hold.overview import Overview

_PLAIN = re.compile(r"[\w@%+=:,./-]+")
"""Names that no shell has to quote; with others the shell's own completion of files is better."""


def codes(incomplete: str) -> list[str]:
    """Codes that have a page, in the case that is being typed."""
    lower = bool(incomplete) and incomplete.islower()
    return [code.lower() if lower else str(code) for code in Code]


def kinds() -> list[str]:
    """Kinds of receipts."""
    from pp4.receipts.models import KINDS

    return list(KINDS)


def hold_files(incomplete: str) -> list[str]:
    """This machine, and HOLD files."""
    return ["local", *_files(incomplete, ".toml")]


def heldout(incomplete: str) -> list[str]:
    """Held-out files, and the word that makes one in the place of a file's name."""
    return ["make-heldout", *_files(incomplete, ".safetensors")]


def receipts(incomplete: str) -> list[str]:
    """Receipts and plans, and directories on the way to them."""
    return _files(incomplete, ".json")


def open_holds(context: typer.Context) -> list[str]:
    """HOLDs of this host that are not closed, and those of other hosts whose close is kept here."""
    call, seen = context.obj, _overview(context)
    there = [hold.hold for hold in seen.holds if hold.state != "closed"] if seen else []
    if not isinstance(call, Call):
        return there
    from pp4.hold.deferred import CLOSES

    kept = sorted(path.stem for path in (call.settings.state_dir / CLOSES).glob("*.json"))
    return [*there, *(name for name in kept if name not in there)]


def quarantined(context: typer.Context) -> list[str]:
    """GPUs of this host that are in quarantine."""
    seen = _overview(context)
    return [gpu.gpu for gpu in seen.gpus if gpu.quarantine] if seen else []


def _overview(context: typer.Context) -> Overview | None:
    """What there is on this host, None where that cannot be told."""
    call = context.obj
    if not isinstance(call, Call):
        return None
    from pp4.clock import SystemClock
    from pp4.hold.exclusion import open_exclusion
    from pp4.hold.overview import overview

    host, state = call.settings.host_dir, call.settings.state_dir
    if not (host.is_dir() or (state / "holds").is_dir()):
        # there never was a HOLD, and looking for one would make the directory
        return None
    with suppress(Pp4Error):
        found = open_exclusion(host, state, make=False)
        return overview(found, state, SystemClock())
    return None


def _files(incomplete: str, ending: str) -> list[str]:
    """Files of an ending, and directories, that begin so; none where the shell does it better.

    A shell puts a blank behind the only word it is offered.  Where that is a directory, what lies
    in it is offered instead, so that typing goes on.
    """
    directory = incomplete[: incomplete.rfind("/") + 1]
    while True:
        found = _within(directory, incomplete, ending)
        if len(found) != 1 or not found[0].endswith("/"):
            return found
        directory = incomplete = found[0]


def _within(directory: str, incomplete: str, ending: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            name = f"{directory}{entry.name}"
            hidden = entry.name.startswith(".") and not incomplete[len(directory) :].startswith(".")
            if not name.startswith(incomplete) or hidden:
                continue
            if entry.is_dir():
                found.append(f"{name}/")
            elif entry.name.endswith(ending):
                found.append(name)
    return sorted(found) if all(map(_PLAIN.fullmatch, found)) else []
