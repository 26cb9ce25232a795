"""Names of machines, kept so that they can be blacked out later without breaking a digest.

A receipt names hosts, GPUs and serial numbers only below ``private``.  A leaf there is either open
(``{"salt", "value"}``) or redacted (``{"sha256"}``); the digest of the receipt always covers the
salted hash, so both forms verify alike.  The salt keeps a short value from being guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

from pp4.receipts.canonical import dump


def leaf_hash(salt: str, name: str, value: str) -> str:
    """Return the sha256 of the canonical bytes of ``[salt, name, value]``.

    The name takes part, so that an open leaf cannot be moved under another name.
    """
    return hashlib.sha256(dump([salt, name, value])).hexdigest()


def open_leaf(value: str, salt: str | None = None) -> dict[str, str]:
    """Return an open leaf; without ``salt`` a fresh one of 256 random bits is drawn."""
    return {"salt": salt or secrets.token_hex(32), "value": value}


def opened(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return a whole ``private`` member of open leaves with fresh salts."""
    return {name: open_leaf(value) for name, value in values.items()}


def closed(private: object) -> object:
    """Return ``private`` with every open leaf replaced by its hash.

    What is not shaped like a leaf is passed on unchanged: the schema speaks about it, not we.
    """
    if not isinstance(private, Mapping):
        return private
    return {name: _closed_leaf(name, leaf) for name, leaf in private.items()}


def _closed_leaf(name: str, leaf: object) -> object:
    # An object with more members than these two must not shrink to a hash: whatever else it holds
    # would then escape the digest.
    if isinstance(leaf, Mapping) and set(leaf) == {"salt", "value"}:
        salt, value = leaf["salt"], leaf["value"]
        if isinstance(salt, str) and isinstance(value, str):
            return {"sha256": leaf_hash(salt, name, value)}
    return leaf


def redact(tree: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of a receipt's tree with every private leaf blacked out.

    The receipt's ``digest`` stays right.  Its file changes, so a reference to the file and a
    detached signature belong to the open copy only.
    """
    return {**tree, "private": closed(tree.get("private", {}))}
