"""Bytes in, tree out: what is refused at the door, each with its own code."""

import contextlib
import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, Pp4Error, RefusedError, WrongError
from pp4.receipts import canonical
from pp4.receipts.canonical import (
    DEPTH,
    LIMIT,
    SAFE_INTEGER,
    dump,
    parse,
    read_file,
    require_canonical,
    shown,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE_INTEGER, SAFE_INTEGER)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)


def refusal_of(step, *arguments):
    with pytest.raises(Pp4Error) as caught:
        step(*arguments)
    refusal = caught.value.refusal
    assert refusal.expected
    assert refusal.found
    return refusal


@given(TREES)
def test_what_is_dumped_is_read_back_and_canonical(tree):
    raw = dump(tree)
    assert parse(raw, "here") == tree
    require_canonical(raw, tree, "here")


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(raw):
    with contextlib.suppress(Pp4Error):
        dump(parse(raw, "here"))


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(Pp4Error):
        dump(parse(text.encode("utf-8", "surrogatepass"), "here"))


@pytest.mark.parametrize(
    ("raw", "code", "found"),
    [
        (b"", Code.NOT_JSON, "an empty file"),
        (b"   ", Code.NOT_JSON, "an empty file"),
        (b"{", Code.NOT_JSON, "Expecting"),
        (b"{} {}", Code.NOT_JSON, "Extra data"),
        (b"nul", Code.NOT_JSON, "Expecting value"),
        (b'{"a":1,"a":1}', Code.DUPLICATE_KEY, "a twice"),
        (b'{"x":{"b":1,"c":2,"b":3}}', Code.DUPLICATE_KEY, "b twice"),
        (b'{"a":1,"\\u0061":1}', Code.DUPLICATE_KEY, "a twice"),
        (b'{"a":NaN}', Code.NOT_FINITE, "NaN"),
        (b'{"a":Infinity}', Code.NOT_FINITE, "Infinity"),
        (b'{"a":-Infinity}', Code.NOT_FINITE, "-Infinity"),
        (b'{"a":1e999}', Code.NOT_FINITE, "1e999"),
        (b'{"a":9007199254740992}', Code.NUMBER_RANGE, "9007199254740992"),
        (b'{"a":' + b"9" * 100_000 + b"}", Code.NUMBER_RANGE, "999"),
        (b'{"a":-' + b"9" * 5000 + b"}", Code.NUMBER_RANGE, "-999"),
        (b"[" * 100_000, Code.TOO_DEEP, "nesting"),
        (b"[" * 100_000 + b"]" * 100_000, Code.TOO_DEEP, "nesting"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, Code.TOO_DEEP, "nesting"),
        (b"\xff\xfe{\x00}\x00", Code.NOT_UTF8, "0xff at offset 0"),
        (b'{"a":"\xed\xa0\x80"}', Code.NOT_UTF8, "0xed"),
        (b'{"a":"\\ud800"}', Code.NOT_UTF8, "U+D800"),
        (b'{"\\udfff":1}', Code.NOT_UTF8, "U+DFFF"),
        (b"\x7fELF\x02\x01\x01\x00\x80\x90", Code.NOT_UTF8, "0x80"),
    ],
)
def test_each_ambiguity_has_its_own_code(raw, code, found):
    refusal = refusal_of(parse, raw, "here")
    assert refusal.code is code
    assert found in refusal.found
    assert len(refusal.found) <= 240


def test_depth_is_allowed_up_to_the_bound_and_no_further():
    deepest = b"[" * DEPTH + b"]" * DEPTH
    assert dump(parse(deepest, "here")) == deepest
    assert refusal_of(parse, b"[" + deepest + b"]", "here").code is Code.TOO_DEEP


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b'{"a":1}\n', "at offset 7"),
        (b' {"a":1}', "at offset 0"),
        (b'{"a": 1}', "0x20 at offset 5"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        (b'{"a":1.0}', "at offset 6"),
        (b'{"a":-0}', "at offset 5"),
        (b'{"a":1e0}', "at offset 6"),
        (b'{"b":1,"a":1}', "at offset 2"),
        (b'{"a":"\\u00e9"}', "at offset 6"),
        (b'{"a":"\\/"}', "at offset 6"),
    ],
)
def test_any_other_spelling_is_not_canonical(raw, found):
    tree = parse(raw, "here")
    with pytest.raises(WrongError) as caught:
        require_canonical(raw, tree, "here")
    assert caught.value.refusal.code is Code.NOT_CANONICAL
    assert found in caught.value.refusal.found


@pytest.mark.parametrize(
    ("tree", "code"),
    [
        ({"a": 2**60}, Code.NUMBER_RANGE),
        ({"a": float("nan")}, Code.NOT_FINITE),
        ({"\ud800": 1}, Code.NOT_JSON),
        ({"a": "\ud800"}, Code.NOT_JSON),
        ({1: 2}, Code.NOT_JSON),
        ({"a": object()}, Code.NOT_JSON),
    ],
)
def test_what_has_no_canonical_form_is_refused(tree, code):
    assert refusal_of(dump, tree).code is code


def test_a_tree_that_contains_itself_is_refused():
    tree: list[object] = []
    tree.append(tree)
    assert refusal_of(dump, tree).code is Code.TOO_DEEP


def test_read_file_returns_a_regular_file(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(b"{}")
    assert read_file(path) == b"{}"


def test_a_missing_file_is_unreadable(tmp_path):
    refusal = refusal_of(read_file, tmp_path / "none.json")
    assert (refusal.code, refusal.found) == (Code.UNREADABLE, "No such file or directory")


def test_a_name_with_a_nul_is_unreadable(tmp_path):
    assert refusal_of(read_file, tmp_path / "a\0b").code is Code.UNREADABLE


def test_a_directory_is_unreadable(tmp_path):
    refusal = refusal_of(read_file, tmp_path)
    assert (refusal.code, refusal.found) == (Code.UNREADABLE, "a directory")


def test_a_device_is_unreadable():
    refusal = refusal_of(read_file, os.path.realpath("/dev/null"))
    assert (refusal.code, refusal.found) == (Code.UNREADABLE, "a character device")


def test_a_socket_is_unreadable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # A socket's path is limited to about a hundred bytes.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        refusal = refusal_of(read_file, tmp_path / "s")
    assert (refusal.code, refusal.found) == (Code.UNREADABLE, "a socket")


def test_a_named_pipe_without_a_writer_does_not_block(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found = []
    reader = threading.Thread(target=lambda: found.append(refusal_of(read_file, path)), daemon=True)
    reader.start()
    reader.join(timeout=30)
    assert not reader.is_alive()
    assert (found[0].code, found[0].found) == (Code.UNREADABLE, "a named pipe")


def test_a_sparse_gigabyte_is_refused_by_its_size_alone(tmp_path, monkeypatch):
    path = tmp_path / "big.json"
    with path.open("wb") as stream:
        stream.truncate(2**30)
    monkeypatch.setattr(os, "open", lambda *a, **k: pytest.fail("the file was opened"))
    refusal = refusal_of(read_file, path)
    assert (refusal.code, refusal.found) == (Code.TOO_LARGE, f"{2**30} bytes")


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_a_file_that_lies_about_its_size_is_bounded_while_reading():
    # Files of /proc state a size of zero, whatever they hold.
    with pytest.raises(RefusedError) as caught:
        read_file(os.path.realpath("/proc/self/maps"), limit=10)
    assert caught.value.refusal.code is Code.TOO_LARGE


def test_the_limit_is_inclusive():
    raw = b'"' + b"a" * (LIMIT - 2) + b'"'
    assert parse(raw, "here") == "a" * (LIMIT - 2)
    assert refusal_of(parse, raw + b" ", "here").code is Code.TOO_LARGE


@given(st.text(st.characters()))
def test_shown_is_one_short_printable_line(text):
    line = shown(text, 40)
    assert line.isascii()
    assert line.isprintable()
    assert len(line) <= 40


@pytest.fixture
def few(monkeypatch):
    """The limit of values, which takes no time to reach."""
    monkeypatch.setattr(canonical, "VALUES", 2_000)
    return canonical.VALUES


@pytest.mark.parametrize(
    "value", ["{}", "[]", "0", "0.5", "null", '""', '{"a":0}', '{"a":{},"b":[]}', "[0,[]]"]
)
def test_many_tiny_values_are_given_up(few, value):
    raw = f"[{','.join([value] * (few + 1))}]".encode()
    with pytest.raises(RefusedError) as caught:
        parse(raw, "r")
    refusal = caught.value.refusal
    assert (refusal.code, refusal.expected) == (Code.TOO_LARGE, f"at most {few} values")


def test_as_many_values_as_the_limit_says_are_read(few):
    assert len(parse(f"[{','.join(['0'] * (few - 1))}]".encode(), "r")) == few - 1
    with pytest.raises(RefusedError):
        parse(f"[{','.join(['[]'] * few)}]".encode(), "r")
