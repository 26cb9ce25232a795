"""Reads a held-out file: the whole of it is checked before anything is used.

The file is read once, and everything that is checked and used comes from these bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from torch import Tensor

from pp4.engine.replay.checking import check_values
from pp4.engine.replay.heldout import (
    FORMAT,
    METADATA,
    TORCH,
    Header,
    Heldout,
    assembled,
    layout,
    tensor_sha256,
)
from pp4.errors import BadInputError, Code, Refusal, RefusedError, WrongError
from pp4.kernels import dyadic24
from pp4.receipts.canonical import LIMIT, parse, read_file, require_canonical, shown
from pp4.wire.frames import wrong_with

FILE_LIMIT: Final = 8 << 30
"""Bytes of the largest file; it is held in memory."""
_SOURCE: Final = "docs/replay.md"
_PREFIX: Final = 8


def read_heldout(path: Path) -> Heldout:
    """Read a held-out file and check all of it; nothing is unpickled.

    Args:
        path: of the file.

    Raises:
        RefusedError: ``MISSING_PACKAGE``; ``UNREADABLE``, ``TOO_LARGE``: it cannot be read, or is
            no safetensors file; ``UNKNOWN_KIND``, ``UNKNOWN_VERSION``: no held-out file, another
            version of the format or another numerical definition; ``SCHEMA``: the header, a name,
            a type or a shape does not fit; what :mod:`pp4.receipts.canonical` refuses of the
            header's text.
        WrongError: ``NOT_CANONICAL``; ``DIGEST_MISMATCH``: a tensor was changed.
        BadInputError: a value is out of range or contradicts another.
    """
    raw, where = read_file(path, _limit(path)), shown(str(path))
    header = _header(raw, where)
    tensors = _tensors(raw, where)
    _check_shapes(header, tensors, where)
    for name, wanted in header.tensors.items():
        found = tensor_sha256(tensors[name])
        if found != wanted:
            raise WrongError(_refusal(Code.DIGEST_MISMATCH, f"{where}: {name}", wanted, found))
    held = assembled(header, hashlib.sha256(raw).hexdigest(), tensors)
    try:
        check_values(held)
    except BadInputError as error:
        refusal = error.refusal
        within = f"{where}: {refusal.where}"
        raise BadInputError.of(within, refusal.expected, refusal.found) from error
    return held


def _limit(path: Path) -> int:
    """As many bytes as there are: a reader sets that much memory aside before it reads."""
    try:
        return min(path.stat().st_size, FILE_LIMIT)
    except (OSError, ValueError):
        # whoever reads it says why it cannot be read
        return FILE_LIMIT


def _refusal(code: Code, where: str, expected: str, found: str) -> Refusal:
    again = "pp4 replay make-heldout --help"
    return Refusal(code, where, expected, found, source=_SOURCE, next=again)


def _refused(code: Code, where: str, expected: str, found: str) -> RefusedError:
    return RefusedError(_refusal(code, where, expected, found))


def _header(raw: bytes, where: str) -> Header:
    """The header that stands in the metadata."""
    length = int.from_bytes(raw[:_PREFIX], "little")
    if len(raw) < _PREFIX or length > min(len(raw) - _PREFIX, LIMIT):
        found = f"a header of {length} bytes in a file of {len(raw)}"
        raise _refused(Code.UNREADABLE, where, "a whole safetensors file", found)
    outer = parse(raw[_PREFIX : _PREFIX + length], f"{where}: header")
    metadata = outer.get("__metadata__") if isinstance(outer, dict) else None
    text = metadata.get(METADATA) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        found = f"no text under {METADATA!r} in its metadata"
        raise _refused(Code.UNKNOWN_KIND, where, f"a file of format {FORMAT}", found)
    own, place = text.encode(), f"{where}: {METADATA}"
    tree = parse(own, place)
    require_canonical(own, tree, place)
    version = tree.get("format") if isinstance(tree, dict) else None
    if version != FORMAT:
        raise _refused(Code.UNKNOWN_VERSION, f"{place}: format", FORMAT, shown(version))
    try:
        header = Header.model_validate_json(own)
    except ValidationError as error:
        found = shown(wrong_with(error))
        raise _refused(Code.SCHEMA, place, "a header as docs/replay.md has it", found) from error
    mine = (dyadic24.DEFINITION, dyadic24.definition_digest())
    theirs = (header.definition, header.definition_sha256)
    if theirs != mine:
        expected, found = (shown(" ".join(pair)) for pair in (mine, theirs))
        raise _refused(Code.UNKNOWN_VERSION, f"{place}: definition", expected, found)
    return header


def _tensors(raw: bytes, where: str) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError as error:
        wanted, again = "the package safetensors", "pip install 'pp4[gpu]'"
        raise RefusedError(
            Refusal(Code.MISSING_PACKAGE, "replay", wanted, "not installed", next=again)
        ) from error
    try:
        return load(raw)
    except (SafetensorError, KeyError, ValueError) as error:
        # KeyError: a type that this torch or this library has no name for
        found = shown(str(error))
        raise _refused(Code.UNREADABLE, where, "a whole safetensors file", found) from error


def _check_shapes(header: Header, tensors: Mapping[str, Tensor], where: str) -> None:
    wanted = layout(header.sizes)
    for place, names in (("header: tensors", set(header.tensors)), ("tensors", set(tensors))):
        odd = sorted(names ^ set(wanted))
        if odd:
            found = f"{'no' if odd[0] in wanted else 'a further'} {shown(odd[0])}"
            expected = f"the {len(wanted)} tensors of {FORMAT}"
            raise _refused(Code.SCHEMA, f"{where}: {place}", expected, found)
    for name, (dtype, shape) in wanted.items():
        one = tensors[name]
        if (one.dtype, tuple(one.shape)) != (TORCH[dtype], shape):
            expected = f"{TORCH[dtype]} {list(shape)}"
            found = f"{one.dtype} {list(one.shape)}"
            raise _refused(Code.SCHEMA, f"{where}: {name}", expected, found)
