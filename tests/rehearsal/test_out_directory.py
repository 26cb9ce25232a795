"""Where the receipt goes: refused before the run or not at all, and never over another file."""

import json
from pathlib import Path

import pytest

from pp4.errors import Code, Exit, RefusedError
from pp4.run import receipt
from tests.unit.qualify.fakes import passing


def receipts(tmp_path):
    directory = tmp_path / "out"
    return sorted(directory.iterdir()) if directory.is_dir() else []


def refused(rehearse, out):
    """Refuse before any arm runs; -> the refusal."""
    with pytest.raises(RefusedError) as caught:
        rehearse(passing("good", lambda _: pytest.fail("ran"), gate=0), out=out)
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert caught.value.refusal.where == str(out)
    return caught.value.refusal


@pytest.mark.parametrize("below", ["", "below", "below/it"])
def test_a_file_in_the_place_of_the_directory_refuses_at_once(rehearse, tmp_path, temporary, below):
    (tmp_path / "file").write_text("mine")
    refused(rehearse, tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "mine"
    assert list(temporary.iterdir()) == []


def test_a_directory_that_takes_no_file_refuses_at_once(rehearse, temporary):
    # exists, and takes no file from anybody, the administrator included
    refused(rehearse, Path("/proc/self"))
    assert list(temporary.iterdir()) == []


def test_a_dangling_link_in_the_place_of_the_directory_refuses(rehearse, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    refused(rehearse, tmp_path / "link")


def test_directories_are_made_and_other_files_are_left_alone(rehearse, tmp_path):
    out = tmp_path / "a" / "b"
    first = rehearse(out=out)
    (out / "notes.txt").write_text("mine")
    second = rehearse(out=out)
    assert first.receipt_path != second.receipt_path
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [first.receipt_path.name, second.receipt_path.name, "notes.txt"]
    )
    assert json.loads(first.receipt_path.read_text()) == first.receipt


def test_a_receipt_is_never_written_over(rehearse, tmp_path, monkeypatch):
    from pp4.hold import rehearsal as holds

    monkeypatch.setattr(holds.secrets, "token_hex", lambda size: "ab" * size)
    first = rehearse()
    before = first.receipt_path.read_bytes()
    with pytest.raises(RefusedError) as caught:
        rehearse()
    assert caught.value.refusal.code is Code.EXISTS
    assert first.receipt_path.read_bytes() == before
    assert receipts(tmp_path) == [first.receipt_path]


def test_packages_that_are_missing_are_named_before_anything_starts(
    rehearse, tmp_path, monkeypatch
):
    monkeypatch.setattr(receipt, "find_spec", lambda name: None if name == "triton" else object())
    with pytest.raises(RefusedError) as caught:
        rehearse()
    refusal = caught.value.refusal
    assert (refusal.code, caught.value.exit) == (Code.MISSING_PACKAGE, Exit.REFUSED)
    assert "no triton" in refusal.found
    assert receipts(tmp_path) == []


@pytest.mark.parametrize(("system", "next_word"), [("Linux", "pip"), ("Darwin", "pp4")])
def test_what_still_works_is_said_where_there_is_no_triton(
    rehearse, monkeypatch, system, next_word
):
    monkeypatch.setattr(receipt, "find_spec", lambda name: None)
    monkeypatch.setattr(receipt.platform, "system", lambda: system)
    with pytest.raises(RefusedError) as caught:
        rehearse()
    assert caught.value.refusal.next.split()[0] == next_word


@pytest.mark.parametrize("below", ["out", "a/b/c"])
def test_directories_for_a_receipt_that_does_not_come_are_removed(rehearse, tmp_path, below):
    def stopped(_):
        raise KeyboardInterrupt

    (tmp_path / "kept").mkdir()
    with pytest.raises(KeyboardInterrupt):
        rehearse(passing("stopped", stopped, gate=0), out=tmp_path / "kept" / below)
    assert list((tmp_path / "kept").iterdir()) == []
