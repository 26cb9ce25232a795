"""Verification as a reader meets it: any file, any policy, one report, no traceback."""

import importlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, Exit, UsageError
from pp4.receipts.build import seal
from pp4.receipts.verify import Policy, verify, verify_bytes
from tests.unit.receipts import samples

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)

# The package exports a function of the same name, which hides the module.
module = importlib.import_module("pp4.receipts.verify")


def failed(report):
    return {check.name: check for check in report.failures}


def stored(tmp_path, raw, name="r.json"):
    path = tmp_path / name
    path.write_bytes(raw)
    return path


def test_every_single_byte_of_a_small_receipt_counts():
    raw = samples.sample("refusal")
    for position in range(len(raw)):
        for flip in (0x01, 0x20, 0x80):
            broken = bytearray(raw)
            broken[position] ^= flip
            report = verify_bytes([("r", bytes(broken))])
            assert report.exit in (Exit.WRONG, Exit.REFUSED), (position, flip)


@given(st.sampled_from(samples.KINDS), st.data())
def test_one_byte_changed_anywhere_in_any_kind_is_found(kind, data):
    raw = bytearray(samples.sample(kind))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255).filter(lambda value: value != raw[position]))
    report = verify_bytes([("r", bytes(raw))])
    assert report.exit in (Exit.WRONG, Exit.REFUSED)
    assert all(check.expected and check.found for check in report.failures)


@given(st.sampled_from(samples.KINDS), st.data())
def test_a_byte_put_in_or_taken_out_is_found(kind, data):
    raw = samples.sample(kind)
    position = data.draw(st.integers(0, len(raw) - 1))
    longer = raw[:position] + data.draw(st.binary(min_size=1, max_size=3)) + raw[position:]
    for broken in (longer, raw[:position], raw[:position] + raw[position + 1 :]):
        assert verify_bytes([("r", broken)]).exit in (Exit.WRONG, Exit.REFUSED)


@given(st.binary(max_size=300) | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_bytes_end_in_a_refusal(raw):
    report = verify_bytes([("r", raw)])
    assert report.exit is Exit.REFUSED
    json.dumps(report.as_dict())


def test_a_changed_value_with_its_digest_left_is_tampering():
    raw = samples.sample("rehearsal").replace(b'"repetitions":3', b'"repetitions":4', 1)
    report = verify_bytes([("r", raw)])
    check = failed(report)["digest"]
    assert check.code is Code.DIGEST_MISMATCH
    assert check.found == json.loads(raw)["digest"]
    assert report.exit is Exit.WRONG


@pytest.mark.parametrize("more", [b" ", b"\n", b"\t"])
@pytest.mark.parametrize("front", [True, False])
def test_added_white_space_is_not_canonical_and_nothing_else(more, front):
    raw = samples.sample("rehearsal")
    report = verify_bytes([("r", more + raw if front else raw + more)])
    assert {c.name: c.code for c in report.failures} == {"canonical-bytes": Code.NOT_CANONICAL}
    assert report.exit is Exit.WRONG


def test_a_byte_order_mark_is_not_canonical_and_nothing_else():
    report = verify_bytes([("r", b"\xef\xbb\xbf" + samples.sample("rehearsal"))])
    assert {c.name: c.code for c in report.failures} == {"canonical-bytes": Code.NOT_CANONICAL}


def test_one_failure_does_not_hide_another():
    body = samples.rehearsal()
    body["hold"]["journal_head"] = "f" * 64
    body["gates"][0]["arms"][0]["repetitions"] = 0
    tree = {**json.loads(samples.sample("rehearsal")), **body}
    raw = seal(tree).replace(b'"strict":true', b'"strict":false') + b"\n"
    assert set(failed(verify_bytes([("r", raw)]))) == {
        "canonical-bytes",
        "digest",
        "journal-head",
        "arm-numbers",
    }


def changed(**members):
    return seal({**json.loads(samples.sample("rehearsal")), **members})


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.NOT_JSON),
        (b"[1,2]", Code.SCHEMA),
        (b"7", Code.SCHEMA),
        (b"{}", Code.UNKNOWN_VERSION),
        (b'{"a":1,"a":2}', Code.DUPLICATE_KEY),
        (b'{"a":NaN}', Code.NOT_FINITE),
        (b'{"a":' + b"7" * 400 + b"}", Code.NUMBER_RANGE),
        (b"[" * 10**6, Code.TOO_DEEP),
        (b"\x00\x01\x02\xff", Code.NOT_UTF8),
        (b'{"a":"\\udc00"}', Code.NOT_UTF8),
        (changed(schema="pp4-receipt/2"), Code.UNKNOWN_VERSION),
        (changed(kind="promise"), Code.UNKNOWN_KIND),
        (changed(kind=["rehearsal"]), Code.UNKNOWN_KIND),
        (changed(kind="solo"), Code.SCHEMA),
        (changed(note=1), Code.SCHEMA),
    ],
)
def test_what_is_no_receipt_is_refused_with_its_own_code(raw, code):
    report = verify_bytes([("r", raw)])
    assert [check.code for check in report.failures] == [code]
    assert report.exit is Exit.REFUSED
    assert report.files[0].shows == ()


def make_pipe(path):
    os.mkfifo(path)


def make_big(path):
    with path.open("wb") as stream:
        stream.truncate(2**30)


@pytest.mark.parametrize(
    ("make", "code", "found"),
    [
        (lambda p: None, Code.UNREADABLE, "No such file or directory"),
        (lambda p: p.mkdir(), Code.UNREADABLE, "a directory"),
        (make_pipe, Code.UNREADABLE, "a named pipe"),
        (make_big, Code.TOO_LARGE, "1073741824 bytes"),
        (lambda p: p.symlink_to(p), Code.UNREADABLE, "Too many levels of symbolic links"),
        (lambda p: p.write_bytes(os.urandom(64) + b"\xff"), Code.NOT_UTF8, "byte 0x"),
    ],
)
def test_a_path_that_is_no_receipt_is_refused_and_others_are_still_checked(
    tmp_path, make, code, found
):
    path = tmp_path / "thing"
    make(path)
    good = stored(tmp_path, samples.sample("solo"), "good.json")
    report = verify([path, good])
    assert [(check.code, check.file) for check in report.failures] == [(code, str(path))]
    assert found in report.failures[0].found
    assert report.exit is Exit.REFUSED
    assert report.files[1].kind == "solo"
    assert report.files[1].intact


def test_no_file_at_all_is_a_usage_error():
    with pytest.raises(UsageError):
        verify([])


def test_a_fault_in_a_check_is_a_refusal_and_no_traceback(monkeypatch):
    def broken(receipt):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(module, "cross_checks", broken)
    report = verify_bytes([("r", samples.sample("solo"))])
    assert failed(report)["cross-checks"].code is Code.INTERNAL
    assert "planted" in failed(report)["cross-checks"].found
    assert report.exit is Exit.REFUSED


def test_tampering_weighs_more_than_a_refusal():
    raw = samples.sample("solo") + b" "
    assert verify_bytes([("r", raw)], Policy(kind="rehearsal")).exit is Exit.WRONG


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("member", "value"), [("kernels", {}), ("limits", 1), ("gates", [{}])])
def test_a_file_full_of_mistakes_is_answered_without_listing_them(member, value, monkeypatch):
    def listed(*_, **__):
        raise AssertionError("every mistake was spelled out")

    monkeypatch.setattr("pp4.receipts.models._listed", listed)
    tree = {**json.loads(samples.sample("rehearsal")), member: [value] * 60_000}
    check = failed(verify_bytes([("r", seal(tree))]))["schema"]
    assert check.code is Code.SCHEMA
    assert check.found.endswith("places that do not fit")


def test_a_long_name_is_told_in_full(tmp_path):
    directory = tmp_path.joinpath(*["d" * 50] * 4)
    directory.mkdir(parents=True)
    path = stored(directory, samples.sample("rehearsal"))
    assert verify([path]).as_dict()["files"][0]["file"] == str(path)
