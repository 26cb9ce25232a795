"""The receipt of a refusal: a command did not go on, and nothing was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pp4.errors import Pp4Error, Refusal, RefusedError
from pp4.receipts.build import build
from pp4.receipts.canonical import parse, shown
from pp4.receipts.digests import Source, file_digest
from pp4.receipts.models import read_model
from pp4.receipts.run_checks import ROLE_KINDS
from pp4.receipts.store import write_new

LIMITS: Final = (
    "Says why one command did not go on; nothing was contacted, started or measured.",
    "The evidence is named as it was given: that it is in order is not established.",
)
_LONGEST: Final = 4096


def recorded(
    error: RefusedError,
    command: str,
    source: Source,
    evidence: Sequence[tuple[str, bytes]],
    out: Path,
) -> RefusedError:
    """Write the receipt of a refusal before any contact; -> the refusal, which names it.

    What keeps the receipt from being written never takes the place of the refusal.

    Args:
        error: the refusal.
        command: as somebody gave it.
        source: that refused.
        evidence: (role, bytes) that it was about, as far as they could be read.
        out: directory of the receipt; made if it is not there.
    """
    try:
        path = _store(error, command, source, evidence, out)
        left = f"nothing but the receipt {path}"
    except (Pp4Error, OSError) as failed:
        left = f"nothing; its receipt could not be written: {shown(str(failed), 300)}"
    return RefusedError(replace(error.refusal, left=left))


def _store(
    error: RefusedError,
    command: str,
    source: Source,
    evidence: Sequence[tuple[str, bytes]],
    out: Path,
) -> Path:
    raw = build(
        {
            "kind": "refusal",
            "limits": list(LIMITS),
            "command": command,
            "exit": int(error.exit),
            "contacted": False,
            "refusal": _record(error.refusal),
            "evidence": _references(evidence),
            "source": source.as_dict(),
        }
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"refusal-{file_digest(raw)[:16]}.json"
    # the same refusal within one second is the same receipt
    if not path.exists():
        write_new(path, raw)
    return path


def _record(refusal: Refusal) -> dict[str, str]:
    return {name: text[:_LONGEST] or "nothing" for name, text in refusal.as_dict().items()}


def _references(evidence: Sequence[tuple[str, bytes]]) -> list[dict[str, str]]:
    found = []
    for role, raw in evidence:
        try:
            # the text is judged before the model sees it
            parse(raw, role)
            kind = read_model(raw, role).kind
        except RefusedError:
            continue
        if kind in ROLE_KINDS.get(role, ()):
            found.append({"role": role, "kind": kind, "sha256": file_digest(raw)})
    return found
