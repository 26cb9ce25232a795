"""``pp4 receipts``: many at a glance, chains with what is missing, copies for others."""

import json

import pytest

from pp4 import cli
from pp4.errors import Exit
from pp4.receipts.digests import file_digest
from pp4.receipts.verify import verify
from tests.unit.receipts.samples import KINDS, UUIDS, sample


@pytest.fixture
def samples(tmp_path):
    directory = tmp_path / "some"
    directory.mkdir()
    for kind in KINDS:
        (directory / f"{kind}.json").write_bytes(sample(kind))
    return directory


def run(capsys, *arguments):
    code = cli.main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def test_every_kind_is_listed_with_its_verdict_subject_and_hold(capsys, samples):
    code, out, _ = run(capsys, "receipts", "table", samples, "--json")
    assert code == Exit.DONE
    rows = {row["kind"]: row for row in json.loads(out)["receipts"]}
    assert set(rows) == set(KINDS)
    assert rows["qualification"]["verdict"] == "qualified"
    assert rows["qualification"]["subject"] == "full, 2 H200"
    assert rows["qualification"]["hold"] == "hold-1, fence 7"
    assert rows["measurement"]["verdict"] == "complete"
    assert rows["measurement"]["subject"] == "A1B1, 2 H200"
    assert rows["refusal"]["verdict"] == "EVIDENCE_MISSING"
    assert rows["incident"]["verdict"] == "quarantined"
    assert rows["solo"]["subject"] == "solo, 1 H200"
    assert rows["rehearsal"]["subject"] == "kernels, no GPU"


def test_receipts_of_this_machine_are_the_default(capsys, tmp_path):
    code, out, _ = run(capsys, "receipts", "table")
    assert (code, out) == (Exit.DONE, "no receipts\n")
    kept = tmp_path / "pp4-state" / "receipts"
    kept.mkdir(parents=True)
    (kept / "one.json").write_bytes(sample("budget"))
    code, out, _ = run(capsys, "receipts", "table")
    assert code == Exit.DONE
    assert out.splitlines()[1].split()[:2] == ["budget", "fits"]


def test_what_does_not_verify_is_listed_as_such(capsys, samples):
    raw = sample("budget")
    (samples / "budget.json").write_bytes(raw.replace(b'"fits"', b'"over"'))
    (samples / "none.json").write_text("{")
    code, out, _ = run(capsys, "receipts", "table", samples)
    assert code == Exit.WRONG
    assert "does not verify: DIGEST_MISMATCH" in out
    assert "does not verify: NOT_JSON" in out
    (samples / "budget.json").unlink()
    assert run(capsys, "receipts", "table", samples)[0] == Exit.REFUSED


def test_a_chain_is_a_tree_of_what_is_found(capsys, chain):
    code, out, _ = run(capsys, "receipts", "tree", chain["B2A2"], chain["B2A2"].parent)
    assert code == Exit.DONE
    lines = out.splitlines()
    assert lines[0] == "measurement FASTER"
    assert lines[1] == f"|   sha256 {file_digest(chain['B2A2'].read_bytes())}"
    assert "|-- budget fits" in lines
    assert "`-- first_half: measurement complete" in lines
    assert "    |-- budget fits" in lines
    assert sum(line.strip(" |`-") == "budget fits" for line in lines) == 2
    assert "MISSING" not in out
    # solo and whole_worker below both qualifications and the first half, the budget below it
    assert out.count(", told above") == 7


def test_a_missing_link_is_said(capsys, chain):
    code, out, _ = run(capsys, "receipts", "tree", chain["B2A2"], chain["A1B1"])
    assert code == Exit.INCONCLUSIVE
    assert out.splitlines()[0] == "measurement FASTER"
    assert "MISSING: no given file has this digest" in out
    code, out, _ = run(capsys, "receipts", "tree", chain["B2A2"], "--json")
    assert code == Exit.INCONCLUSIVE
    below = json.loads(out)["chain"][0]["below"]
    assert [link["file"] for link in below] == [None] * len(below)


def test_evidence_that_is_found_and_does_not_verify_is_said(capsys, tmp_path):
    from pp4.receipts.build import build
    from tests.unit.receipts.samples import body

    broken = sample("solo").replace(b'"qualified"', b'"wrong"', 1)
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / "solo.json").write_bytes(broken)
    made = body("qualification")
    made["evidence"][0]["sha256"] = file_digest(broken)
    (tmp_path / "pair.json").write_bytes(build(made))
    code, out, _ = run(capsys, "receipts", "tree", tmp_path / "pair.json", tmp_path / "around")
    assert code == Exit.WRONG
    assert "solo.json, DOES NOT VERIFY" in out


def test_a_named_receipt_that_does_not_verify_has_no_tree(capsys, tmp_path):
    path = tmp_path / "one.json"
    path.write_bytes(sample("budget").replace(b'"fits"', b'"over"'))
    code, out, err = run(capsys, "receipts", "tree", path)
    assert (code, out) == (Exit.WRONG, "")
    assert "DIGEST_MISMATCH" in err


def test_a_redacted_copy_verifies_and_names_no_machine(capsys, tmp_path):
    path, copy = tmp_path / "one.json", tmp_path / "copy.json"
    path.write_bytes(sample("qualification"))
    code, out, _ = run(capsys, "receipts", "export", "--redact", path, "--out", copy)
    assert code == Exit.DONE
    assert file_digest(copy.read_bytes()) in out
    assert UUIDS[0].encode() in path.read_bytes()
    for uuid in UUIDS:
        assert uuid.encode() not in copy.read_bytes()
    report = verify([copy])
    assert report.exit == Exit.DONE
    assert report.files[0].receipt.digest == verify([path]).files[0].receipt.digest
    # To black out twice changes nothing.
    again = tmp_path / "again.json"
    run(capsys, "receipts", "export", "--redact", copy, "--out", again)
    assert again.read_bytes() == copy.read_bytes()


def test_an_open_copy_has_equal_bytes(capsys, tmp_path):
    path, copy = tmp_path / "one.json", tmp_path / "copy.json"
    path.write_bytes(sample("budget"))
    assert run(capsys, "receipts", "export", path, "--out", copy)[0] == Exit.DONE
    assert copy.read_bytes() == path.read_bytes()
    code, _, err = run(capsys, "receipts", "export", path, "--out", copy)
    assert code == Exit.REFUSED
    assert "EXISTS" in err


@pytest.mark.parametrize(
    ("place", "change"),
    [
        ("hold.id", lambda body, name: body["hold"].update(id=f"window on {name}")),
        ("limits[0]", lambda body, name: body.update(limits=[f"seen on {name}, and nowhere"])),
        ("settings.", lambda body, name: body["settings"].update({f"host {name}": 1})),
    ],
)
def test_a_name_that_stands_elsewhere_too_cannot_be_blacked_out(capsys, tmp_path, place, change):
    from pp4.receipts.build import build
    from pp4.receipts.private import open_leaf
    from tests.unit.receipts.samples import body

    made = body("qualification")
    made["private"]["host.name"] = open_leaf("host-a17", salt="5" * 64)
    change(made, "host-a17")
    path, copy = tmp_path / "one.json", tmp_path / "copy.json"
    path.write_bytes(build(made))
    code, _, err = run(capsys, "receipts", "export", "--redact", path, "--out", copy)
    assert code == Exit.REFUSED
    assert place in err
    assert "private.host.name" in err
    assert not copy.exists()


def test_a_short_name_inside_of_a_word_is_no_name(capsys, tmp_path):
    from pp4.receipts.build import build
    from pp4.receipts.private import open_leaf
    from tests.unit.receipts.samples import body

    made = body("qualification")
    made["private"]["host.name"] = open_leaf("ml", salt="5" * 64)
    made["settings"]["source"] = "nvml"
    path, copy = tmp_path / "one.json", tmp_path / "copy.json"
    path.write_bytes(build(made))
    assert run(capsys, "receipts", "export", "--redact", path, "--out", copy)[0] == Exit.DONE


def test_what_does_not_verify_is_not_copied(capsys, tmp_path):
    path, copy = tmp_path / "one.json", tmp_path / "copy.json"
    path.write_bytes(sample("budget").replace(b'"fits"', b'"over"'))
    for options in ([], ["--redact"]):
        code, _, err = run(capsys, "receipts", "export", *options, path, "--out", copy)
        assert code == Exit.WRONG
        assert "DIGEST_MISMATCH" in err
        assert not copy.exists()
