"""The first half of a measurement as the second one needs it: its receipt, and how its HOLD ended.

The tombstone lies beside the receipt under the same name with ``.closed`` behind it; it is the
receiving host's own word, without the names of GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.around import DONE
from pp4.receipts.canonical import parse, read_file, shown
from pp4.receipts.digests import sha256_hex
from pp4.wire.holds import FirstClosed

CLOSED: Final = ".closed"
Restore = Literal["done", "failed", "not_run"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How the first HOLD ended.

    Attributes:
        hold: its id.
        fence: its fence.
        sha256: of the tombstone's file.
        restore: how its restore commands ended; ``done`` where there were none.
    """

    hold: str
    fence: int
    sha256: str
    restore: Restore

    def as_member(self) -> dict[str, str]:
        """Return it as a receipt of the second half has it."""
        return {
            "hold_id": self.hold,
            "fence": str(self.fence),
            "sha256": self.sha256,
            "restore": self.restore,
        }

    def as_told(self) -> FirstClosed:
        """Return it as a host is told."""
        return FirstClosed(hold=self.hold, fence=self.fence, restored=self.restore == "done")


def ended(receipt: Path, restores: int) -> Ended:
    """Read the tombstone beside the receipt of a first half.

    Args:
        receipt: its file.
        restores: how many restore commands the HOLD file has.

    Raises:
        RefusedError: ``NOT_RESTORED``: there is none, it is none, or something was left alive.
    """
    path = receipt.with_suffix(CLOSED)
    where = shown(str(path), 300)
    try:
        raw = read_file(path)
        tree = parse(raw, where)
    except RefusedError as error:
        _refuse(where, f"{error.refusal.found}")
    if not isinstance(tree, Mapping):
        _refuse(where, "JSON that is no object")
    hold, fence, survivors = (tree.get(name) for name in ("hold", "fence", "survivors"))
    if not (isinstance(hold, str) and isinstance(fence, str) and fence.isascii()):
        _refuse(where, "no HOLD and fence in it")
    if not fence.isdecimal() or survivors != []:
        _refuse(where, f"fence {shown(fence)}, survivors {shown(survivors)}")
    restore = _restore(tree.get("restored"), restores)
    return Ended(hold, int(fence), sha256_hex(raw), restore)


def _restore(told: object, restores: int) -> Restore:
    if not isinstance(told, list) or len(told) < restores:
        return "not_run"
    return "done" if all(str(text).endswith(f": {DONE}") for text in told) else "failed"


def _refuse(where: str, found: str) -> NoReturn:
    expected = "the tombstone of the first HOLD, beside the receipt of the first half"
    again = "pp4 hold status --hold FILE"
    raise RefusedError(Refusal(Code.NOT_RESTORED, where, expected, found, next=again))
