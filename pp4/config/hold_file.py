"""The HOLD file: which host a run holds, how it is reached, and what happens there around it.

Everything is judged before anything is contacted, and the first fault is one refusal with the
key that it stands at.  docs/hold-file.md lists the keys for people.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final, Literal

from pp4.config import Settings, fields
from pp4.config.example import EXAMPLE
from pp4.config.holds import Evidence, HoldFile, Hop, HostCommand, Login, Model, ReceivingHost
from pp4.config.host_keys import host_key
from pp4.config.tables import Table, refuse, said
from pp4.config.toml_text import toml_table
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import sha256_hex

__all__ = [
    "Evidence",
    "HoldFile",
    "Hop",
    "HostCommand",
    "Login",
    "Model",
    "ReceivingHost",
    "example",
    "load_hold_file",
    "local_hold_file",
    "read_evidence",
]

LIMIT: Final = 1 << 20
"""Largest HOLD file in bytes."""
_BOUND_MINUTES: Final = 90
_TTL_S: Final = 30
_SSH_PORT: Final = 22
_COMMAND_LIMIT_S: Final = 60
_LONGEST_COMMAND_S: Final = 900
_DEPTHS: Final = (4, 5)
_MOST_ROWS: Final = 32
_BATCH_SIZES: Final = (1, 8, 32)
_PAIR: Final = ("drafter", "target", "prompts")
_HOTTEST: Final = 2
_TEMPERATURES: Final = (Decimal("0"), Decimal("0.7"), Decimal("1"))
_SSH_ONLY: Final = ("address", "port", "user", "identity_file", "host_key", "agent", "jump")
_LOCAL: Final = b'[hold]\nname = "local"\n\n[receiving_host]\ntransport = "local"\ngpus = "auto"\n'


def load_hold_file(path: Path, environ: Mapping[str, str] | None = None) -> HoldFile:
    """Read a HOLD file; nothing that it names is opened or contacted.

    Args:
        path: the file.
        environ: the environment that ``~`` is looked up in; that of this process if none is given.

    Raises:
        RefusedError: ``BAD_HOLD_FILE`` with the key, what it has to be and what stands there;
            ``BAD_SETTING``, the file says ``~`` and nobody knows this user's home.
    """
    try:
        raw = read_file(path, LIMIT)
    except RefusedError as error:
        again = "pp4 hold new FILE"
        refuse(
            error.refusal.where,
            f"a HOLD file: {error.refusal.expected}",
            error.refusal.found,
            again,
        )
    return _hold_file(raw, shown(str(path)), path.absolute().parent, environ)


def local_hold_file(settings: Settings) -> HoldFile:
    """Return what ``--hold local`` means: this machine, its first two GPUs that reach each other.

    It is read from a text of its own, whose sha256 it carries, and everything that this text leaves
    out is the default of any HOLD file.  Only the two directories are not: they are of this call.

    Args:
        settings: of this call.
    """
    file = _hold_file(_LOCAL, "local", Path("/"), {})
    state, host = str(settings.state_dir), str(settings.host_dir)
    return replace(file, host=replace(file.host, state_dir=state, host_dir=host))


def read_evidence(file: HoldFile) -> list[tuple[str, bytes]]:
    """Return the role and the bytes of each receipt that a HOLD file names.

    Raises:
        RefusedError: ``EVIDENCE_MISSING``, a file cannot be read; ``EVIDENCE_MISMATCH``, it is
            another one than the HOLD file says.
    """
    return [(one.role, _receipt(one)) for one in file.evidence]


def example() -> str:
    """Return a HOLD file with every key and a comment for each."""
    return EXAMPLE


def _receipt(one: Evidence) -> bytes:
    where = f"evidence {one.role}, {shown(str(one.path))}"
    expected = f"a file with sha256 {one.sha256}"
    try:
        raw = read_file(one.path)
    except RefusedError as error:
        # A file that is longer than any receipt is there, and it is not the one.
        large = error.refusal.code is Code.TOO_LARGE
        code = Code.EVIDENCE_MISMATCH if large else Code.EVIDENCE_MISSING
        raise RefusedError(Refusal(code, where, expected, error.refusal.found)) from error
    found = sha256_hex(raw)
    if found != one.sha256:
        refusal = Refusal(Code.EVIDENCE_MISMATCH, where, expected, f"sha256 {found}")
        raise RefusedError(refusal)
    return raw


def _hold_file(
    raw: bytes, place: str, directory: Path, environ: Mapping[str, str] | None
) -> HoldFile:
    top = Table(place, "", toml_table(raw, place, "a HOLD file", refuse), "")
    hold = top.table("hold")
    bound_s = 60 * hold.integer("bound_minutes", 1, _BOUND_MINUTES, _BOUND_MINUTES)
    file = HoldFile(
        name=fields.name(hold),
        bound_s=bound_s,
        ttl_s=hold.integer("ttl", 2, 300, _TTL_S),
        host=_receiving_host(top.table("receiving_host"), environ),
        model=_model(top.table("model")) if top.has("model") else None,
        hops=_hops(top),
        quiesce=_commands(top, "quiesce"),
        restore=_commands(top, "restore"),
        evidence=_evidence(top, directory, environ),
        sha256=sha256_hex(raw),
    )
    _want_commands(top, file)
    return file


def _want_commands(top: Table, file: HoldFile) -> None:
    """Refuse commands that leave something stopped, or that cannot end within the bound."""
    if file.quiesce and not file.restore:
        expected = "[[restore]] as well: what is stopped has to be started again"
        top.refuse("restore", expected)
    limits_s = sum(command.limit_s for command in (*file.quiesce, *file.restore))
    if limits_s >= file.bound_s:
        key = "quiesce" if file.quiesce else "restore"
        expected = f"limits of quiesce and restore below the bound of {file.bound_s} s together"
        top.refuse(key, expected, f"{limits_s} s")


def _receiving_host(table: Table, environ: Mapping[str, str] | None) -> ReceivingHost:
    expected = 'a transport, "ssh" or "local"'
    word = table.string("transport", expected)
    if word not in ("ssh", "local"):
        table.refuse("transport", expected)
    transport: Literal["ssh", "local"] = "ssh" if word == "ssh" else "local"
    if transport == "local":
        for key in _SSH_ONLY:
            if table.has(key):
                table.refuse(key, 'no such key with transport "local", which is this machine')
    login = _login(table, environ) if transport == "ssh" else None
    here = sys.executable if transport == "local" else ""
    return ReceivingHost(
        transport=transport,
        address=login.address if login else None,
        port=login.port if login else _SSH_PORT,
        user=login.user if login else None,
        identity_file=login.identity_file if login else None,
        host_key=login.host_key if login else None,
        agent=table.truth("agent", False),
        jump=_login(table.table("jump"), environ) if table.has("jump") else None,
        python=fields.python(table, here or "python3"),
        state_dir=fields.path_there_or_none(table, "state_dir"),
        host_dir=fields.path_there_or_none(table, "host_dir"),
        gpus=fields.gpus(table, transport),
    )


def _login(table: Table, environ: Mapping[str, str] | None) -> Login:
    return Login(
        address=fields.address(table),
        port=table.integer("port", 1, 65_535, _SSH_PORT),
        user=fields.user(table),
        identity_file=fields.file_here(table, "identity_file", environ),
        host_key=host_key(table),
    )


def _model(table: Table) -> Model:
    pair = {key: fields.path_there_or_none(table, key) for key in _PAIR}
    missing = [key for key, path in pair.items() if path is None]
    if 0 < len(missing) < len(_PAIR):
        expected = "drafter, target and prompts together, or none of them for the bundled pair"
        table.refuse(missing[0], expected)
    return Model(
        **pair,
        depth=table.integer("depth", *_DEPTHS, _DEPTHS[1]),
        batch_sizes=fields.integers(table, "batch_sizes", 1, _MOST_ROWS, _BATCH_SIZES),
        temperatures=fields.decimals(table, "temperatures", _HOTTEST, _TEMPERATURES),
    )


def _hops(top: Table) -> tuple[Hop, ...]:
    hops: dict[str, Hop] = {}
    for table in top.tables("hop"):
        hop = Hop(
            name=fields.name(table),
            address=fields.address(table),
            port=table.integer("port", 1, 65_535, _SSH_PORT),
            user=fields.user(table),
            identity_file=fields.path_there(table, "identity_file"),
            host_key=host_key(table),
            python=fields.python(table, "python3"),
            state_dir=fields.path_there_or_none(table, "state_dir"),
            host_dir=fields.path_there_or_none(table, "host_dir"),
        )
        if hop.name in hops:
            table.refuse("name", "a name of its own for each hop", f"{said(hop.name)} twice")
        hops[hop.name] = hop
    return tuple(hops.values())


def _commands(top: Table, key: str) -> tuple[HostCommand, ...]:
    return tuple(
        HostCommand(
            argv=fields.argv(table),
            limit_s=table.integer("limit", 1, _LONGEST_COMMAND_S, _COMMAND_LIMIT_S),
        )
        for table in top.tables(key)
    )


def _evidence(
    top: Table, directory: Path, environ: Mapping[str, str] | None
) -> tuple[Evidence, ...]:
    if not top.has("evidence"):
        return ()
    roles = top.table("evidence")
    found: list[Evidence] = []
    for role in roles.entries:
        for table in roles.one_or_more(role, "evidence.ROLE"):
            path = fields.file_beside(table, "path", directory, environ)
            one = Evidence(role, path, fields.sha256(table))
            if any(one.sha256 == other.sha256 for other in found):
                table.refuse("sha256", "each receipt once", f"{one.sha256} twice")
            found.append(one)
    return tuple(found)
