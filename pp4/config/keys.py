"""Which keys a HOLD file may hold: one list, for its reader, its page and its example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pp4.receipts.admission import NEEDS

ROLES: Final = tuple(sorted({need.role for needs in NEEDS.values() for need in needs}))
"""Roles that evidence can have; admission knows no others."""

_LOGIN: Final = ("address", "port", "user", "identity_file", "host_key")

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("hold", "receiving_host", "model", "hop", "quiesce", "restore", "evidence"),
    "hold": ("name", "bound_minutes", "ttl"),
    "receiving_host": (
        "transport",
        *_LOGIN,
        "agent",
        "jump",
        "python",
        "state_dir",
        "host_dir",
        "gpus",
    ),
    "receiving_host.jump": _LOGIN,
    "model": ("drafter", "target", "prompts", "depth", "batch_sizes", "temperatures"),
    "hop": ("name", *_LOGIN, "python", "state_dir", "host_dir"),
    "quiesce": ("argv", "limit"),
    "restore": ("argv", "limit"),
    "evidence": ROLES,
    "evidence.ROLE": ("path", "sha256"),
}
"""Table to its keys; the empty name is the top of the file, ``ROLE`` stands for any role."""
