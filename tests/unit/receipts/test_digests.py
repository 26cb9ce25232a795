"""Digests of content, files and source; private leaves and their redaction."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.receipts.build import build, seal
from pp4.receipts.digests import (
    file_digest,
    installed_source,
    receipt_digest,
    source_digest,
    source_list_digest,
)
from pp4.receipts.private import closed, leaf_hash, open_leaf, opened, redact
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples


def test_the_digest_can_be_recomputed_with_the_standard_library_alone():
    # An independent road to the same number: sorted names, no spaces, ASCII content.
    tree = json.loads(samples.sample("qualification"))
    claimed = tree.pop("digest")
    for name, leaf in tree["private"].items():
        text = json.dumps([leaf["salt"], name, leaf["value"]], separators=(",", ":"))
        tree["private"][name] = {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == claimed


def test_the_file_digest_is_plain_sha256():
    raw = samples.sample("solo")
    assert file_digest(raw) == hashlib.sha256(raw).hexdigest()


def test_a_redacted_copy_verifies_with_the_same_digest_and_tells_no_secret():
    raw = samples.sample("qualification")
    tree = json.loads(raw)
    copy = seal(redact(tree))
    assert json.loads(copy)["digest"] == tree["digest"]
    assert verify_bytes([("copy", copy)]).failures == ()
    for uuid in samples.UUIDS:
        assert uuid.encode() in raw
        assert uuid.encode() not in copy
    assert '"value":' not in copy.decode()


def test_redacting_twice_changes_nothing_more():
    once = redact(json.loads(samples.sample("solo")))
    assert redact(once) == once


@pytest.mark.parametrize("change", ["salt", "value", "name", "extra"])
def test_every_part_of_an_open_leaf_is_covered(change):
    tree = json.loads(samples.sample("solo"))
    before = receipt_digest(tree)
    leaf = tree["private"].pop("gpu.0.uuid")
    name = "gpu.1.uuid" if change == "name" else "gpu.0.uuid"
    if change in ("salt", "value"):
        leaf[change] += "0"
    if change == "extra":
        leaf["note"] = "smuggled"
    tree["private"][name] = leaf
    assert receipt_digest(tree) != before


def test_a_leaf_hash_separates_its_parts():
    assert leaf_hash("ab", "c", "d") != leaf_hash("a", "bc", "d")
    assert leaf_hash("a", "b", "cd") != leaf_hash("a", "bc", "d")


def test_salts_are_fresh_and_long():
    first, second = open_leaf("x"), open_leaf("x")
    assert first["salt"] != second["salt"]
    assert len(first["salt"]) == 64
    assert set(opened({"host": "h"})["host"]) == {"salt", "value"}


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)))
def test_closed_leaves_match_their_hashes(values):
    try:
        for name, value in values.items():
            (name + value).encode()
    except UnicodeEncodeError:
        return
    private = opened(values)
    shut = closed(private)
    for name, leaf in private.items():
        assert shut[name] == {"sha256": leaf_hash(leaf["salt"], name, leaf["value"])}


def write_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_source_digest_lists_sorted_python_files_only(tmp_path):
    write_tree(
        tmp_path,
        {
            "b.py": "1",
            "a/c.py": "2",
            "a.txt": "3",
            "a/__pycache__/c.py": "4",
            "a/__pycache__/c.pyc": "5",
        },
    )
    source = source_digest(tmp_path)
    assert [path for path, _ in source.files] == ["a/c.py", "b.py"]
    assert source.files[1][1] == hashlib.sha256(b"1").hexdigest()
    assert source.digest == source_list_digest(source.files)


@pytest.mark.parametrize("files", [{"a.py": "2"}, {"b.py": "1"}, {"a.py": "1", "b.py": ""}])
def test_source_digest_depends_on_content_names_and_number(tmp_path, files):
    write_tree(tmp_path / "one", {"a.py": "1"})
    write_tree(tmp_path / "two", files)
    assert source_digest(tmp_path / "one").digest != source_digest(tmp_path / "two").digest


def test_source_digest_does_not_depend_on_the_place(tmp_path):
    for name in ("one", "two"):
        write_tree(tmp_path / name, {"a.py": "1", "k/b.py": "2"})
    assert source_digest(tmp_path / "one") == source_digest(tmp_path / "two")


def test_a_directory_without_source_is_refused(tmp_path):
    with pytest.raises(RefusedError) as caught:
        source_digest(tmp_path)
    assert caught.value.refusal.code is Code.UNREADABLE


def test_the_installed_source_holds_this_package_and_goes_into_receipts():
    source = installed_source()
    names = [path for path, _ in source.files]
    assert "receipts/digests.py" in names
    assert "errors.py" in names
    body = samples.refusal()
    del body["source"]
    assert json.loads(build(body))["source"] == source.as_dict()
