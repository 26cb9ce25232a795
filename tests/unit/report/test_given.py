"""Nothing of a receipt that does not verify is drawn, by any of the three ways."""

import pytest

from pp4 import cli
from pp4.errors import Code, Exit, RefusedError, WrongError
from pp4.report.given import look, read
from tests.unit.receipts.samples import sample
from tests.unit.report.measured import made


def tampered(name):
    raw = made().files[name]
    return raw.replace(b'"effect":"0.0', b'"effect":"0.9', 1) if name == "B2A2" else raw[:-1]


def test_a_receipt_that_contradicts_itself_is_refused_with_the_command_that_tells_why(tmp_path):
    path = tmp_path / "B2A2.json"
    path.write_bytes(tampered("B2A2"))
    with pytest.raises(WrongError) as refused:
        read([path])
    assert refused.value.refusal.code is Code.DIGEST_MISMATCH
    assert refused.value.refusal.next == f"pp4 verify-receipt {path}"


def test_what_is_no_receipt_is_refused(tmp_path):
    path = tmp_path / "none.json"
    path.write_text("{}")
    with pytest.raises(RefusedError):
        read([path])


def test_evidence_that_was_swapped_is_refused(tmp_path, chain):
    other = tmp_path / "other.json"
    other.write_bytes(sample("measurement"))
    with pytest.raises(WrongError) as refused:
        read([chain["B2A2"], other])
    assert refused.value.refusal.code is Code.EVIDENCE_MISMATCH


def test_equal_files_are_one_receipt(tmp_path, chain):
    copy = tmp_path / "copy.json"
    copy.write_bytes(chain["A1B1"].read_bytes())
    assert [one.file for one in read([chain["A1B1"], copy])] == [str(copy)]


def test_looking_passes_over_what_is_no_receipt_and_says_what_is_not_intact(tmp_path):
    (tmp_path / "a.json").write_text("no")
    (tmp_path / "b.json").write_bytes(tampered("B2A2"))
    (tmp_path / "c.json").write_bytes(made().files["budget"])
    found = look(sorted(tmp_path.iterdir()))
    assert [(one.receipt.kind, one.intact) for one in found] == [
        ("measurement", False),
        ("budget", True),
    ]


@pytest.mark.parametrize("options", [[], ["--json"], ["--html", "page.html"]])
def test_nothing_is_drawn_and_no_page_is_written(tmp_path, monkeypatch, capsys, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "B2A2.json").write_bytes(tampered("B2A2"))
    assert cli.main(["report", "B2A2.json", *options]) == Exit.WRONG
    out, err = capsys.readouterr()
    assert "FASTER" not in out + err
    assert "DIGEST_MISMATCH" in out + err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["B2A2.json"]
