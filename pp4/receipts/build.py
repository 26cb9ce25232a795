"""Make receipts: fill in what a caller should not have to know, seal, and read back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from pp4 import __version__
from pp4.errors import Code
from pp4.receipts.canonical import dump, parse, refuse, require_canonical, shown
from pp4.receipts.checks import Status
from pp4.receipts.digests import installed_source, receipt_digest
from pp4.receipts.envelope import SCHEMA
from pp4.receipts.models import KINDS, read_model
from pp4.receipts.run_checks import cross_checks

_WHERE: Final = "the receipt being built"


def seal(tree: Mapping[str, object]) -> bytes:
    """Return the canonical bytes of a tree with its ``digest`` filled in, judging nothing.

    Raises:
        RefusedError: the tree has no canonical bytes.
    """
    return dump({**tree, "digest": receipt_digest(tree)}, _WHERE)


def build(body: Mapping[str, object]) -> bytes:
    """Return the bytes of a receipt, sealed and read back as a stranger would read them.

    Args:
        body: ``kind``, ``limits`` and the members of the kind.  Filled in where absent:
            ``schema``, ``tool``, ``made_at`` (now; give None where equal input must give equal
            bytes), ``source`` (the installed one), ``evidence`` and ``private`` (empty), and
            optional members of the kind.

    Raises:
        RefusedError: the body does not fit its model, or contradicts itself.
    """
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        refuse(Code.UNKNOWN_KIND, _WHERE, f"one of {', '.join(KINDS)}", shown(kind))
    tree: dict[str, object] = {
        "schema": SCHEMA,
        "tool": {"name": "pp4", "version": __version__},
        "evidence": [],
        "private": {},
        **body,
    }
    if "made_at" not in tree:
        tree["made_at"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if "source" not in tree:
        tree["source"] = installed_source().as_dict()
    # Once through the model, so that optional members are written out and nothing is implied.
    model = read_model(dump({**tree, "digest": "0" * 64}, _WHERE), _WHERE)
    raw = seal(model.model_dump(mode="json", by_alias=True))
    _read_back(raw)
    return raw


def _read_back(raw: bytes) -> None:
    tree = parse(raw, _WHERE)
    require_canonical(raw, tree, _WHERE)
    for check in cross_checks(read_model(raw, _WHERE)):
        if check.status is Status.FAIL:
            refuse(check.code, f"{_WHERE}, check {check.name}", check.expected, check.found)
