"""Nodes as a person names them: ``NAME=8``, or ``NAME=GPU-...,GPU-...`` with UUIDs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from pp4.errors import BadInputError
from pp4.fleet.rounds import MOST_GPUS
from pp4.receipts.canonical import read_file, shown

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A node's name: it stands in file names and in lines that Slurm reads."""
UUID: Final = r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""A GPU as ``nvidia-smi -L`` names it."""
LIMIT: Final = 1 << 20
"""Largest file of nodes in bytes."""
_COUNT: Final = re.compile(r"[1-9][0-9]?", re.ASCII)
_FORM: Final = (
    "NAME=NUMBER or NAME=UUID,UUID..., the name of letters, digits, '.', '_' and '-', "
    f"2 to {MOST_GPUS} GPUs, UUIDs as nvidia-smi -L has them"
)


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node and its GPUs.

    Attributes:
        name: as Slurm knows it.
        gpus: how many it has.
        uuids: of all of them, in the order in which they are numbered; empty where only the
            number is known.
    """

    name: str
    gpus: int
    uuids: tuple[str, ...] = ()


def parse_nodes(texts: Iterable[tuple[str, str]]) -> tuple[NamedNode, ...]:
    """Read nodes.

    Args:
        texts: where each stands, and what it says.

    Raises:
        BadInputError: one is spelled otherwise; a name or a UUID stands there twice; there is none.
    """
    nodes: list[NamedNode] = []
    names: set[str] = set()
    uuids: set[str] = set()
    for where, text in texts:
        node = _node(where, text)
        if node.name in names:
            raise BadInputError.of(where, "each node once", f"{node.name} again")
        again = uuids & set(node.uuids)
        if again or len(set(node.uuids)) != len(node.uuids):
            found = min(again) if again else "one that is named twice"
            raise BadInputError.of(where, "each GPU once, in one node", found)
        names.add(node.name)
        uuids.update(node.uuids)
        nodes.append(node)
    if not nodes:
        raise BadInputError.of("nodes", "at least one", "none")
    return tuple(nodes)


def read_nodes(path: Path) -> Iterator[tuple[str, str]]:
    """Yield where each node of a file stands, and what it says; ``#`` begins a comment.

    Raises:
        RefusedError: ``UNREADABLE``, ``TOO_LARGE``.
        BadInputError: it is no text.
    """
    name = shown(str(path))
    try:
        text = read_file(path, LIMIT).decode("utf-8")
    except UnicodeDecodeError:
        raise BadInputError.of(name, "text in UTF-8", "other bytes") from None
    for number, line in enumerate(text.splitlines(), start=1):
        said = line.partition("#")[0].strip()
        if said:
            yield f"{name}, line {number}", said


def _node(where: str, text: str) -> NamedNode:
    name, sign, gpus = text.partition("=")
    if not sign or not re.fullmatch(NAME, name, re.ASCII):
        _refuse(where, text)
    known = not _COUNT.fullmatch(gpus)
    uuids = tuple(gpus.split(",")) if known else ()
    count = len(uuids) if known else int(gpus)
    spelled = all(re.fullmatch(UUID, uuid, re.ASCII) for uuid in uuids)
    if not (spelled and 2 <= count <= MOST_GPUS):
        _refuse(where, text)
    return NamedNode(name, count, uuids)


def _refuse(where: str, text: str) -> NoReturn:
    raise BadInputError.of(where, _FORM, shown(text))
