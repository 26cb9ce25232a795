"""The archive: every receipt intact as history, every row of the index about one of them."""

import json
import shutil
from pathlib import Path

import pytest

from pp4.errors import Code, Exit, RefusedError
from pp4.receipts.archive import BEGIN, END, INDEX, index_row, read_archive, write_index
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest
from pp4.receipts.private import redact
from tests.unit.receipts import samples

ARCHIVE = Path(__file__).parents[3] / "receipts"
EMPTY = (ARCHIVE / INDEX).read_text("utf-8").split(BEGIN)[0] + f"{BEGIN}\n{END}\nbehind\n"


def test_every_archived_receipt_is_intact_and_indexed():
    report = read_archive(ARCHIVE)
    assert report.failures == ()
    assert len(report.files) == len(list(ARCHIVE.glob("*.json")))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An archive of three receipts, two of which rest on the others, as it should be."""
    directory = tmp_path_factory.mktemp("archive")
    for kind in ("solo", "whole_worker", "qualification"):
        (directory / f"{kind}.json").write_bytes(samples.sample(kind))
    (directory / INDEX).write_text(EMPTY)
    write_index(directory)
    assert read_archive(directory).failures == ()
    return directory


@pytest.fixture
def archive(written, tmp_path):
    """A copy of it, which a test may spoil."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def failures(archive):
    report = read_archive(archive)
    assert (report.exit is Exit.DONE) is (not report.failures)
    return {(check.file, check.name): check for check in report.failures}


def rewrite(archive, old, new):
    path = archive / INDEX
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_index_says_what_the_receipts_say(archive):
    text = (archive / INDEX).read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [
        "qualification.json", "solo.json", "whole_worker.json",
    ]  # fmt: skip
    for row in rows:
        name = row.split("`")[1]
        assert file_digest((archive / name).read_bytes()) in row
        assert samples.SOURCE["digest"] in row
        assert "nothing but an example" in row
    assert "qualification: scope full; verdict qualified; on H200, H200" in rows[0]
    assert text.startswith("# Archived receipts")
    assert text.endswith(f"{END}\nbehind\n")


def test_writing_the_index_again_changes_nothing(archive):
    before = (archive / INDEX).read_bytes()
    write_index(archive)
    assert (archive / INDEX).read_bytes() == before


def test_evidence_is_resolved_within_the_archive(archive):
    resolved = [c for c in read_archive(archive).overall if c.name.startswith("evidence")]
    assert [(c.status, c.file) for c in resolved] == [("pass", "qualification.json")] * 2


def test_an_older_source_stays_valid_as_history(archive):
    checks = [c for c in read_archive(archive).checks if c.name == "source"]
    assert len(checks) == 3
    assert {c.status for c in checks} == {"skipped"}
    assert all(c.found.startswith("historical") for c in checks)


def test_an_edited_receipt_is_found(archive):
    path = archive / "solo.json"
    path.write_bytes(path.read_bytes().replace(b"nothing but", b"anything but"))
    found = failures(archive)
    assert found["solo.json", "digest"].code is Code.DIGEST_MISMATCH
    assert (INDEX, "index-row solo.json") in found
    # What rests on it no longer finds the file that it names.
    assert ("qualification.json", "evidence identity_reference") in found


def test_a_receipt_that_was_edited_and_sealed_anew_is_found_by_its_file(archive):
    tree = json.loads(samples.sample("solo"))
    (archive / "solo.json").write_bytes(seal({**tree, "made_at": "2026-03-01T12:00:01Z"}))
    found = failures(archive)
    assert set(found) == {
        (INDEX, "index-row solo.json"),
        ("qualification.json", "evidence identity_reference"),
    }
    assert "sha256 of the file" in found[INDEX, "index-row solo.json"].expected


def test_a_receipt_without_a_row_is_found(archive):
    (archive / "more.json").write_bytes(samples.sample("rehearsal"))
    found = failures(archive)
    assert set(found) == {(INDEX, "index-files")}
    assert "more.json" in found[INDEX, "index-files"].expected


def test_a_row_without_a_receipt_is_found(archive):
    (archive / "qualification.json").unlink()
    assert set(failures(archive)) == {(INDEX, "index-files")}


def test_evidence_that_is_not_archived_is_found(archive):
    (archive / "whole_worker.json").unlink()
    write_index(archive)
    found = failures(archive)
    assert set(found) == {("qualification.json", "evidence identity_reference")}
    (check,) = found.values()
    assert check.code is Code.EVIDENCE_MISSING


def test_a_row_twice_is_found(archive):
    row = next(r for r in (archive / INDEX).read_text().splitlines() if r.startswith("| `solo"))
    rewrite(archive, row, f"{row}\n{row}")
    assert set(failures(archive)) == {(INDEX, "index-files")}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("verdict qualified", "verdict excellent"),
        ("nothing but an example", "no limits"),
        (samples.SOURCE["digest"], "0" * 64),
        ("solo: scope solo", "qualification: scope full"),
    ],
)
def test_a_row_that_says_something_else_is_found(archive, old, new):
    rewrite(archive, old, new)
    (name,) = {name for _, name in failures(archive)}
    assert name.startswith("index-row ")


@pytest.mark.parametrize("name", ["notes.txt", "other.json.sig", "old"])
def test_nothing_else_lies_in_the_archive(archive, name):
    (archive / name).mkdir() if name == "old" else (archive / name).touch()
    found = failures(archive)
    assert set(found) == {("", "archive")}
    assert name in found["", "archive"].found


def test_a_file_that_is_no_receipt_is_found(archive):
    (archive / "junk.json").write_bytes(b"{")
    assert ("junk.json", "json") in failures(archive)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (BEGIN, "", Code.SCHEMA),
        (END, "", Code.SCHEMA),
        (END, f"{END}\n{BEGIN}\n{END}", Code.SCHEMA),
        ("| file |", "| name |", Code.SCHEMA),
        ("|---|---|---|---|---|", "| a | b | c | d | e |", Code.SCHEMA),
        (" | executed", "", Code.SCHEMA),
        ("| `solo.json` |", "`solo.json` |", Code.SCHEMA),
        ("| `solo.json` |", "|", Code.SCHEMA),
    ],
)
def test_an_index_that_cannot_be_read_is_found(archive, old, new, code):
    rewrite(archive, old, new)
    found = failures(archive)
    assert set(found) == {(INDEX, "index")}
    assert found[INDEX, "index"].code is code


def test_an_index_that_is_missing_or_no_text_is_found(archive):
    (archive / INDEX).write_bytes(b"\xff")
    assert failures(archive)[INDEX, "index"].code is Code.NOT_UTF8
    (archive / INDEX).unlink()
    assert failures(archive)[INDEX, "index"].code is Code.UNREADABLE
    with pytest.raises(RefusedError):
        write_index(archive)


def test_a_directory_that_is_not_there_refuses(tmp_path):
    with pytest.raises(RefusedError) as caught:
        read_archive(tmp_path / "gone")
    assert caught.value.refusal.code is Code.UNREADABLE


def test_no_row_is_written_for_what_is_not_intact(archive):
    before = (archive / INDEX).read_bytes()
    (archive / "bad.json").write_bytes(samples.sample("solo") + b"\n")
    with pytest.raises(RefusedError) as caught:
        write_index(archive)
    assert caught.value.refusal.code is Code.NOT_CANONICAL
    assert (archive / INDEX).read_bytes() == before


def test_a_redacted_copy_may_be_archived(archive):
    raw = seal(redact(json.loads(samples.sample("solo"))))
    (archive / "solo.json").write_bytes(raw)
    write_index(archive)
    report = read_archive(archive)
    assert report.failures == ()
    skipped = [c for c in report.overall if c.status == "skipped"]
    assert [c.file for c in skipped] == ["qualification.json"]


def test_an_unrelated_receipt_of_a_wanted_kind_is_no_swapped_original(archive):
    body = {**samples.solo(), "made_at": "2026-03-01T12:00:01Z"}
    (archive / "another.json").write_bytes(build(body))
    raw = seal(redact(json.loads(samples.sample("solo"))))
    (archive / "solo.json").write_bytes(raw)
    write_index(archive)
    assert failures(archive) == {}


def test_a_limit_may_hold_any_sign(archive):
    body = {**samples.solo(), "limits": ["a | b \\| c\n\x00 d"]}
    (archive / "odd.json").write_bytes(build(body))
    write_index(archive)
    assert failures(archive) == {}
    file = next(f for f in read_archive(archive).files if f.file == "odd.json")
    assert "\n" not in index_row(file)
