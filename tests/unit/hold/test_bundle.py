"""A bundle is its files and nothing else, whatever else is true of them."""

import dataclasses
import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.hold.bundle import bundle
from pp4.hold.staged_files import members
from pp4.receipts.canonical import shown
from pp4.receipts.digests import Source, installed_source, sha256_hex, source_digest
from tests.unit.hold.staging_host import FILES, ROOT, package


def refused(source, root):
    with pytest.raises(RefusedError) as caught:
        bundle(source, root)
    return caught.value.refusal


def test_the_same_files_make_the_same_bytes_whatever_else_is_true_of_them(tmp_path):
    source, root = package(tmp_path / "one")
    old = os.umask(0o077)
    try:
        again, other = package(tmp_path / "two", dict(reversed(FILES.items())))
    finally:
        os.umask(old)
    for number, file in enumerate(sorted(other.rglob("*.py"))):
        os.utime(file, (number, 10**9 + number))
        file.chmod(0o700)
    (other / "notes.txt").write_text("no source")
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "say.cpython-311.pyc").write_bytes(b"stale")
    assert again == source
    backwards = dataclasses.replace(source, files=source.files[::-1])
    assert bundle(source, root) == bundle(again, other) == bundle(backwards, root)


def test_a_bundle_holds_the_installed_source_and_nothing_else():
    root = ROOT / "pp4"
    source = installed_source()
    found = dict(members(bundle(source, root)))
    assert {name: sha256_hex(content) for name, content in found.items()} == {
        f"pp4/{name}": digest for name, digest in source.files
    }
    assert found["pp4/errors.py"] == (root / "errors.py").read_bytes()
    # what is not source is not staged: nothing that runs on a host may need it
    files = {path.relative_to(root) for path in root.rglob("*") if path.is_file()}
    left = files - {Path(name) for name, _ in source.files}
    drawn = Path("report", "templates")
    left = {path for path in left if path.suffix != ".pyc" and path.parent != drawn}
    assert left == {Path("py.typed")}


def test_a_member_says_nothing_of_who_packed_it_and_when(tmp_path):
    source, root = package(tmp_path)
    data = bundle(source, root)
    assert data[4:8] == b"\0\0\0\0", "the time in the header of gzip"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
        found = archive.getmembers()
    assert [member.name for member in found] == sorted(f"pp4/{name}" for name in FILES)
    said = {(m.mode, m.uid, m.gid, m.uname, m.gname, m.mtime, m.type) for m in found}
    assert said == {(0o644, 0, 0, "", "", 0, tarfile.REGTYPE)}


def test_a_file_that_changed_since_it_was_hashed_is_refused(tmp_path):
    source, root = package(tmp_path)
    (root / "say.py").write_text("x = 2\n")
    refusal = refused(source, root)
    assert refusal.code == Code.NOT_STAGED
    assert refusal.where == str(root / "say.py")
    assert dict(source.files)["say.py"] in refusal.expected
    assert refusal.found == f"sha256 {sha256_hex(b'x = 2' + bytes([10]))}"


def test_a_file_that_is_gone_is_refused(tmp_path):
    source, root = package(tmp_path)
    (root / "say.py").unlink()
    assert refused(source, root).code == Code.UNREADABLE


@pytest.mark.parametrize("name", ["a b.py", "x-y.py", "é.py", "../out.py", f"{'n' * 94}.py"])
def test_a_name_that_no_host_would_take_is_refused_here(tmp_path, name):
    _, root = package(tmp_path)
    (root / name).write_text("")
    refusal = refused(Source("0" * 64, ((name, sha256_hex(b"")),)), root)
    assert (refusal.code, refusal.where) == (Code.NOT_STAGED, shown(str(root / name)))


def test_the_longest_name_fits(tmp_path):
    source, root = package(tmp_path, {f"{'n' * 93}.py": "x = 1\n"})
    assert source == source_digest(root)
    assert dict(members(bundle(source, root))) == {f"pp4/{'n' * 93}.py": b"x = 1\n"}
