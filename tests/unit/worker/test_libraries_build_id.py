"""Build ids: what the linker left in a library, and what no file can do to whoever looks for it."""

import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.worker.libraries import build_id

HEADER, SEGMENT, NOTE = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), "<III"
PT_LOAD, PT_NOTE, NT_GNU_BUILD_ID, NT_GNU_ABI_TAG = 1, 4, 3, 1


def note(desc, *, name=b"GNU\0", kind=NT_GNU_BUILD_ID, align=4):
    def padded(data):
        return data + bytes(-len(data) % align)

    start = struct.pack(NOTE, len(name), len(desc), kind) + name
    return padded(start) + padded(desc)


def elf(*segments, magic=b"\x7fELF\x02\x01\x01", entry=SEGMENT.size, count=None):
    """A file with program headers of (type, bytes, alignment)."""
    count = len(segments) if count is None else count
    at = HEADER.size + len(segments) * SEGMENT.size
    table, bodies = b"", b""
    for kind, body, align in segments:
        table += SEGMENT.pack(kind, 4, at + len(bodies), 0, 0, len(body), len(body), align)
        bodies += body
    header = HEADER.pack(magic.ljust(16, b"\0"), 3, 62, 1, 0, 64, 0, 0, 64, entry, count, 0, 0, 0)
    return header + table + bodies


ID = bytes(range(20))
GOOD = elf((PT_LOAD, b"code", 4096), (PT_NOTE, note(ID), 4))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return tmp_path_factory.mktemp("elf") / "lib.so"


def read(library, data):
    library.write_bytes(data)
    return build_id(library)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (GOOD, ID.hex()),
        (elf((PT_NOTE, note(b"\xab"), 4)), "ab"),
        (elf((PT_NOTE, note(b"x", kind=NT_GNU_ABI_TAG) + note(ID), 4)), ID.hex()),
        (elf((PT_NOTE, note(b"xy", name=b"stapsdt\0") + note(ID), 4)), ID.hex()),
        (elf((PT_NOTE, note(b"xyz", align=8, kind=5) + note(ID, align=8), 8)), ID.hex()),
        (elf((PT_NOTE, note(b"x", kind=5), 8), (PT_NOTE, note(ID), 4)), ID.hex()),
        (elf((PT_NOTE, note(ID) + note(b"second"), 4)), ID.hex()),
        (elf((PT_NOTE, note(ID, name=b"") + note(b"\x01"), 4)), "01"),
        # no note of that owner and type
        (elf(), None),
        (elf((PT_LOAD, note(ID), 4)), None),
        (elf((PT_NOTE, note(ID, name=b"LLVM\0"), 4)), None),
        (elf((PT_NOTE, note(ID, name=b"GNU"), 4)), None),
        (elf((PT_NOTE, note(ID, kind=NT_GNU_ABI_TAG), 4)), None),
        (elf((PT_NOTE, note(b""), 4)), None),
        (elf((PT_NOTE, b"", 4)), None),
        (elf((PT_NOTE, bytes(11), 4)), None),
        # a note that runs out of its segment
        (elf((PT_NOTE, note(ID)[:-1], 4)), None),
        (elf((PT_NOTE, struct.pack(NOTE, 1 << 31, 1 << 31, 3), 4)), None),
        # more notes than any linker writes
        (elf((PT_NOTE, bytes(1 << 20) + note(ID), 4)), None),
        # no 64-bit little-endian ELF
        (b"", None),
        (b"\x7fELF", None),
        (b"\x7fEL", None),
        (b"!<arch>\n" * 20, None),
        (elf((PT_NOTE, note(ID), 4), magic=b"\x7fELF\x01\x01"), None),
        (elf((PT_NOTE, note(ID), 4), magic=b"\x7fELF\x02\x02"), None),
    ],
)
def test_a_build_id_is_the_note_of_gnu_and_nothing_else(library, data, expected):
    assert read(library, data) == expected


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD[:100],
        GOOD[:63],
        GOOD[:6],
        elf((PT_NOTE, note(ID), 4), count=4000),
        elf((PT_NOTE, note(ID), 4), entry=32),
        elf((PT_NOTE, note(ID), 4), entry=0),
    ],
)
def test_a_torn_library_refuses_by_name(library, data):
    with pytest.raises(RefusedError) as caught:
        read(library, data)
    assert caught.value.refusal.code is Code.UNREADABLE
    assert caught.value.refusal.where == str(library)
    assert "ELF file" in caught.value.refusal.found


def test_a_library_that_is_gone_refuses(tmp_path):
    with pytest.raises(RefusedError) as caught:
        build_id(tmp_path / "none.so")
    assert caught.value.refusal.code is Code.UNREADABLE


def outcome(library, data):
    """-> what comes of a file: hexadecimal digits, nothing, or the code of a refusal."""
    try:
        return read(library, data) or ""
    except RefusedError as error:
        return error.refusal.code


ENDS = re.compile(f"([0-9a-f]{{2}})*|{Code.UNREADABLE}")


WHOLE = elf(
    (PT_LOAD, bytes(64), 4096),
    (PT_NOTE, note(b"x" * 9, kind=5, align=8), 8),
    (PT_NOTE, note(b"x", kind=NT_GNU_ABI_TAG) + note(ID), 4),
)
PLACES = st.integers(0, len(WHOLE) - 1)
WORDS = st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]) | st.integers(0, 2**32 - 1)


@given(st.dictionaries(PLACES, st.integers(0, 255), max_size=12), st.integers(0, len(WHOLE)))
def test_changed_bytes_end_in_an_id_none_or_a_refusal(library, changes, length):
    data = bytearray(WHOLE)
    for place, byte in changes.items():
        data[place] = byte
    assert ENDS.fullmatch(
        outcome(library, bytes(data[:length]) if length % 3 == 0 else bytes(data))
    )


@given(st.lists(st.tuples(PLACES, WORDS), min_size=1, max_size=6))
def test_changed_words_end_in_an_id_none_or_a_refusal(library, changes):
    data = bytearray(WHOLE)
    for place, word in changes:
        data[place & ~3 : (place & ~3) + 4] = struct.pack("<I", word)
    assert ENDS.fullmatch(outcome(library, bytes(data)))


@given(st.binary(max_size=200))
def test_any_notes_end(library, notes):
    assert ENDS.fullmatch(outcome(library, elf((PT_NOTE, notes, 4), (PT_NOTE, notes, 8))))


def test_many_segments_over_the_same_notes_are_not_read_over_and_over(library):
    count, notes = 65_000, bytes(1 << 20)
    at = HEADER.size + count * SEGMENT.size
    table = SEGMENT.pack(PT_NOTE, 4, at, 0, 0, len(notes), len(notes), 4) * count
    assert read(library, elf(count=count) + table + notes) is None


# -- libraries of this machine ------------------------------------------------------------------


def real():
    """Some libraries of the interpreter, of torch and of the system."""
    import torch

    places = [
        Path(sys.prefix).resolve(),
        Path(torch.__file__).parent / "lib",
        *map(Path, ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64")),
    ]
    found = {
        path.resolve()
        for place in places
        if place.is_dir()
        for path in sorted(place.glob("**/*.so*"))[:60]
        if path.is_file()
    }
    return sorted(found)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf of binutils")
def test_the_ids_are_those_that_readelf_finds():
    libraries = real()
    told = {}
    for path in libraries:
        listed = subprocess.run(
            ["readelf", "-n", "-W", path], capture_output=True, text=True, timeout=60, check=False
        )
        match = re.search(r"Build ID: ([0-9a-f]+)", listed.stdout)
        told[path] = match and match[1]
    assert {path: build_id(path) for path in libraries} == told
    assert any(told.values())
