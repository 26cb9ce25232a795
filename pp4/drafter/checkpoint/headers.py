"""The header of a safetensors file, read and checked without the library and without torch.

The library checks the same when it opens a file, but says neither which tensor is cut off nor where
a tensor lies; and a machine that only looks has it not installed.  Format: eight bytes of length,
little-endian, that many bytes of JSON, then the data, each tensor by its offsets, without holes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

from pp4.drafter.checkpoint.documents import DOCUMENT_LIMIT, parse_object
from pp4.drafter.checkpoint.problems import Problem, shown

ITEM_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of an element by the format's word for its type, also of what a target has; other words
refuse."""
_METADATA = "__metadata__"
_PREFIX = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as a header describes it.

    Attributes:
        name: of the tensor.
        file: where it lies.
        dtype: the format's word, such as ``BF16``.
        shape: elements along each axis.
        start: offset of its first byte in the file.
        bytes: its length.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    bytes: int


def read_header(path: Path) -> tuple[dict[str, Entry], list[Problem]]:
    """Read what a file says of its tensors, and hold it against the file's length.

    Args:
        path: a regular file.

    Returns:
        The entries by name, and what is wrong with the file or its tensors; where the header
        itself cannot be read there are no entries.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_PREFIX), "little")
            if size < _PREFIX or length > size - _PREFIX or length > DOCUMENT_LIMIT:
                found = f"a header of {length} bytes in a file of {size}"
                return {}, [Problem(path.name, "a whole safetensors file", found)]
            raw = file.read(length)
        tree = parse_object(raw)
    except OSError as error:
        return {}, [Problem(path.name, "a readable file", error.strerror or str(error))]
    except ValueError as error:
        return {}, [Problem(path.name, "a safetensors header", shown(str(error)))]
    tree.pop(_METADATA, None)
    data = _PREFIX + length
    entries, problems = {}, []
    for name, record in tree.items():
        entry = _entry(name, path, record, data)
        if isinstance(entry, Problem):
            problems.append(entry)
        else:
            entries[name] = entry
    if not problems:
        problems = _placed(path, list(entries.values()), data, size)
    return entries, problems


def _entry(name: str, path: Path, record: Any, data: int) -> Entry | Problem:
    expected = "a dtype, a shape and two offsets"
    if not isinstance(record, dict) or set(record) != {"dtype", "shape", "data_offsets"}:
        return Problem(name, expected, shown(record))
    dtype, shape, offsets = record["dtype"], record["shape"], record["data_offsets"]
    sizes, span = _sizes(shape), _sizes(offsets)
    known = isinstance(dtype, str) and dtype in ITEM_BYTES
    if not known or sizes is None or span is None or len(span) != 2:
        return Problem(name, expected, shown(record))
    wanted = prod(sizes) * ITEM_BYTES[dtype]
    if span[1] - span[0] != wanted:
        found = f"{span[1] - span[0]} bytes"
        return Problem(name, f"{wanted} bytes for {dtype} {list(sizes)}", found)
    return Entry(name, path, dtype, sizes, data + span[0], wanted)


def _sizes(value: Any) -> tuple[int, ...] | None:
    """A list of natural numbers, or None where it is not one."""
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        return None
    return tuple(value)


def _placed(path: Path, entries: list[Entry], data: int, size: int) -> list[Problem]:
    """Tensors follow one another from the header to the end of the file, without holes."""
    problems, end = [], data
    for entry in sorted(entries, key=lambda one: (one.start, one.bytes)):
        past = entry.start + entry.bytes
        if entry.start != end:
            problems.append(Problem(entry.name, f"data from byte {end}", f"from {entry.start}"))
        elif past > size:
            found = f"a file that ends at byte {size}"
            problems.append(Problem(entry.name, f"data to byte {past}", found))
        end = max(end, past)
    if not problems and end != size:
        problems.append(Problem(path.name, f"{end} bytes", f"{size} bytes"))
    return problems
