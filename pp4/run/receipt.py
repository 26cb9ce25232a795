"""What every receipt of a run has in common: a place for it, its source, its HOLD."""

from __future__ import annotations

import json
import platform
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from pp4.errors import Code, Exit, Refusal, RefusedError, reason_of
from pp4.hold.open import OpenHold
from pp4.hold.processes import boot_id
from pp4.receipts.build import build
from pp4.receipts.canonical import parse
from pp4.receipts.digests import Source, installed_source, sha256_hex
from pp4.receipts.private import opened
from pp4.receipts.store import write_new
from pp4.wire.facts import Primed


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run of gates ended.

    Attributes:
        verdict: the good one, or what kept it from that.
        receipt_path: where the receipt lies.
        exit: exit code of the command.
        receipt: the receipt's tree.
        differences: what a physical run does differently; empty for one.
        more: further receipts of the same run.
    """

    verdict: str
    receipt_path: Path
    exit: Exit
    receipt: Mapping[str, object]
    differences: tuple[str, ...] = ()
    more: tuple[Path, ...] = ()


def require_packages(command: str) -> None:
    """Refuse a run whose ranks could not start.

    Raises:
        RefusedError: ``MISSING_PACKAGE``.
    """
    missing = [name for name in ("torch", "triton", "numpy") if find_spec(name) is None]
    if not missing:
        return
    where = f"{platform.system()} {platform.machine()}"
    linux = platform.system() == "Linux"
    raise RefusedError(
        Refusal(
            Code.MISSING_PACKAGE,
            command,
            "torch, triton and numpy (the extra pp4[gpu])",
            f"no {', '.join(missing)} on {where}",
            source="pyproject.toml",
            next="pip install 'pp4[gpu]'" if linux else "pp4 verify-receipt FILE",
        )
    )


@contextmanager
def room(out: Path) -> Iterator[None]:
    """Refuse before the run what would refuse the receipt after it.

    Directories that were made for a receipt which does not come are removed again.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            # a receipt is linked into place, which some file systems cannot do
            with tempfile.NamedTemporaryFile(dir=out, prefix=".pp4-") as probe:
                link = Path(f"{probe.name}.link")
                link.hardlink_to(probe.name)
                link.unlink()
        except OSError as error:
            raise RefusedError(
                Refusal(
                    Code.UNWRITABLE, str(out), "a directory that takes a receipt", reason_of(error)
                )
            ) from error
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise


def require_same_source(before: Source, command: str) -> None:
    """Refuse to name one source for a run in which processes started from two."""
    after = installed_source()
    if after != before:
        raise RefusedError(
            Refusal(
                Code.SUBJECT_MISMATCH,
                "the installed source of pp4",
                f"{before.digest}, as at the start of the run",
                after.digest,
                next=command,
            )
        )


def kernel_row(name: str, one: Primed) -> dict[str, object]:
    """One kernel as receipts have it."""
    return {
        "name": name,
        "rank": one.rank,
        "target": one.target,
        "ptx_sha256": one.ptx_sha256,
        "cubin_sha256": one.cubin_sha256,
    }


def hold_of(hold: OpenHold) -> dict[str, object]:
    """The HOLD as receipts have it, with its journal as far as it is written."""
    return {
        "id": hold.hold_id,
        "fence": str(hold.fence),
        "nonce": sha256_hex(hold.nonce.encode()),
        "boot_id": None,
        "transport": hold.transport,
        "journal_head": hold.journal.head,
        "exclusion": hold.exclusion,
    }


def private_of_host() -> dict[str, object]:
    """Leaves of ``private`` that name this host."""
    return dict(opened({"host.name": socket.gethostname(), "host.boot_id": boot_id()}))


def store(
    body: Mapping[str, object], source: Source, path: Path, verdict: str, ends: Exit
) -> Outcome:
    """Seal a receipt and write it where none is; -> how the run ended.

    Args:
        body: members of the receipt.
        source: that ran.
        path: of the file.
        verdict: how the run ended, in a word.
        ends: and as an exit code.

    Raises:
        RefusedError: the body contradicts itself, or the file cannot be made.  What the run found
            is kept beside it then: it is no receipt, and the run need not be made again to see it.
    """
    try:
        raw = build({**body, "source": source.as_dict()})
    except RefusedError as error:
        kept = path.with_suffix(".rejected")
        kept.write_text(json.dumps(body, indent=1, default=str))
        raise RefusedError(replace(error.refusal, left=str(kept))) from error
    write_new(path, raw)
    tree = parse(raw, str(path))
    if not isinstance(tree, dict):
        raise TypeError("a receipt is an object")
    return Outcome(verdict, path, ends, tree)
