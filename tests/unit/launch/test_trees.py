"""A tree has one digest, and what another machine would see otherwise is refused by its name."""

import os
import re
import socket
import subprocess
import sys
import tempfile

import pytest

from pp4.errors import Code, RefusedError
from pp4.launch import trees
from pp4.launch.trees import survey
from pp4.receipts.digests import sha256_hex, tree_digest
from tests.unit.launch.subjects import ROOT


def refused(root, code=Code.BAD_TREE):
    with pytest.raises(RefusedError) as raised:
        survey(root)
    refusal = raised.value.refusal
    assert refusal.code is code
    assert refusal.where.isprintable()
    assert refusal.found.isprintable()
    return refusal


def test_the_digest_is_that_of_the_documented_list(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.py").write_bytes(b"1")
    (tmp_path / "a.sh").write_bytes(b"2")
    (tmp_path / "a.sh").chmod(0o755)
    (tmp_path / "b.py").symlink_to("b/x.py")
    (tmp_path / "empty").mkdir()
    rows = [
        ["a.sh", "program", sha256_hex(b"2")],
        ["b.py", "link", sha256_hex(b"b/x.py")],
        ["b/x.py", "file", sha256_hex(b"1")],
    ]
    tree = survey(tmp_path)
    assert tree.sha256 == tree_digest(rows)
    assert [entry.row for entry in tree.entries.values()] == rows
    assert tree.part_sha256("b") == survey(tmp_path / "b").sha256
    assert tree.directories == {"b", "empty"}
    assert tree.entries["b.py"].leads_to == "b/x.py"


def test_a_needle_is_found_wherever_two_reads_meet(tmp_path):
    file, size = tmp_path / "a", 1 << 20
    for before in range(size - 7, size + 2):
        file.write_bytes(b"-" * before + b"needle" + b"-" * 9)
        assert survey(tmp_path, needles=(b"needle", b"other")).entries["a"].mentions
    file.write_bytes(b"-" * (size - 3) + b"need-le")
    assert not survey(tmp_path, needles=(b"needle",)).entries["a"].mentions
    assert not survey(tmp_path).entries["a"].mentions


def test_content_is_what_was_surveyed_or_nothing(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    tree = survey(tmp_path)
    assert tree.content("a") == b"1"
    (tmp_path / "a").write_bytes(b"2")
    with pytest.raises(RefusedError) as raised:
        tree.content("a")
    assert raised.value.refusal.code is Code.NOT_REVIEWED


def test_the_recipe_of_the_page_gives_that_digest(monkeypatch, capsys):
    page = (ROOT / "docs" / "prepare.md").read_text("utf-8")
    runner = ROOT / "launch" / "runner"
    monkeypatch.setattr(sys, "argv", ["recipe", str(runner)])
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    assert capsys.readouterr().out.strip() == survey(runner).sha256


GOOD_LINKS = ["x", "./x", "d/y", "d/../x", "d", "d/", "l", "d/up/x", ".", "d/back/d/y"]
BAD_LINKS = {
    "/etc/passwd": "absolute",
    "../out": "leaves the tree",
    "d/../../tree/x": "leaves the tree",
    "d/up/../x": "leaves the tree",
    "gone": "ends nowhere",
    "x/y": "ends nowhere",
    "d/gone": "ends nowhere",
    "self": "leads back",
    "__pycache__/z": "ends nowhere",
    "d/out": "absolute",
}


@pytest.fixture
def linked(tmp_path):
    """A tree with links of its own, and something beside it."""
    root = tmp_path / "tree"
    for place in ("d", "__pycache__"):
        (root / place).mkdir(parents=True)
    for file in ("x", "d/y", "__pycache__/z", "../out"):
        (root / file).write_text(file)
    (root / "l").symlink_to("x")
    (root / "d" / "up").symlink_to("..")
    (root / "d" / "back").symlink_to("../.")
    return root


def test_a_link_that_stays_inside_is_kept(linked):
    for target in GOOD_LINKS:
        (linked / "self").symlink_to(target)
        entry = survey(linked).entries["self"]
        assert (entry.type, entry.target) == ("link", target)
        real = os.path.realpath(linked / "self")
        assert os.path.normpath(linked / entry.leads_to) == real
        (linked / "self").unlink()


@pytest.mark.parametrize("target", BAD_LINKS)
def test_a_link_that_does_not_is_refused_by_its_name(linked, target):
    if target == "d/out":
        (linked / "d" / "out").symlink_to("/etc")
    (linked / "self").symlink_to(target)
    refusal = refused(linked)
    assert BAD_LINKS[target] in refusal.found
    assert refusal.where.startswith(f"{linked}/")


def test_names_that_differ_only_in_case_or_in_the_form_of_accents(tmp_path):
    pairs = [("Makefile", "makefile"), ("stra\u00dfe", "STRASSE"), ("\u00e9", "e\u0301")]
    pairs.append(("d", "D"))
    for number, (first, second) in enumerate(pairs):
        root = tmp_path / str(number)
        root.mkdir()
        (root / first).touch()
        (root / second).mkdir() if second == "D" else (root / second).touch()
        refusal = refused(root)
        assert ascii(first)[1:-1] in refusal.found
    (tmp_path / "same" / "a").mkdir(parents=True)
    (tmp_path / "same" / "a" / "A").touch()
    assert list(survey(tmp_path / "same").entries) == ["a/A"]


@pytest.mark.parametrize("name", [b"caf\xe9", b"a\nb", b"a\\b", b"a\x1b[2J", b"\x7f\xff"])
def test_a_name_that_no_receipt_can_hold(tmp_path, name):
    (tmp_path / os.fsdecode(name)).touch()
    refused(tmp_path)


def test_a_link_to_a_name_that_is_no_text(tmp_path):
    os.symlink(b"\xe9", os.fsencode(tmp_path / "a"))
    assert refused(tmp_path).where == f"{tmp_path}/a"


def test_a_path_that_is_too_long(tmp_path):
    place = tmp_path
    for _ in range(6):
        place = place / ("d" * 200)
        place.mkdir()
    (place / "file").touch()
    refused(tmp_path)


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "p")
    assert refused(tmp_path).found == "a named pipe"
    (tmp_path / "p").unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "s"))
        assert refused(tmp_path).found == "a socket"


def test_more_files_than_a_receipt_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(trees, "MOST_FILES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    survey(tmp_path)
    (tmp_path / "d").touch()
    refused(tmp_path)


def test_no_tree_at_all(tmp_path):
    assert refused(tmp_path / "gone", Code.UNREADABLE).found == "No such file or directory"
    (tmp_path / "file").touch()
    assert refused(tmp_path / "file", Code.UNREADABLE).found == "Not a directory"
    assert survey(tmp_path, without=("file",)).entries == {}


AS_NOBODY = """
import os, sys
from pathlib import Path
from pp4.errors import Pp4Error
from pp4.launch.prepare import prepare
from pp4.receipts import build, digests
# Everything is loaded first: nobody need not be able to read this installation.
source = digests.installed_source()
build.installed_source = lambda: source
manifest, warm = map(Path, sys.argv[1:])
prepare(manifest, None, warm)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65_534)
    os.setuid(65_534)
for line in sys.stdin:
    try:
        prepare(manifest, None, Path(line.strip()))
    except Pp4Error as error:
        print(error.refusal.code, error.refusal.where, error.refusal.left, flush=True)
    else:
        print("done", flush=True)
"""


@pytest.fixture
def as_nobody(subject, tmp_path):
    """Prepares as a user who may not read and write everything; -> what is said."""
    # under xdist there is one directory more on the way
    shared = len(tmp_path.relative_to(tempfile.gettempdir()).parts) - 1
    for place in (*tmp_path.parents[:shared], tmp_path):
        place.chmod(place.stat().st_mode | 0o055)
    argv = [sys.executable, "-B", "-c", AS_NOBODY, str(subject.manifest), str(tmp_path / "warm")]
    env, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, text=True) as run:

        def asked(out):
            run.stdin.write(f"{out}\n")
            run.stdin.flush()
            return run.stdout.readline().strip()

        yield asked
        run.stdin.close()


def test_trees_that_may_not_be_written_or_read(subject, tmp_path, as_nobody):
    theirs, closed = tmp_path / "theirs", tmp_path / "closed"
    theirs.mkdir()
    theirs.chmod(0o777)
    closed.mkdir()
    closed.chmod(0o555)
    # a source that may only be read is like any other
    for place in (subject.source, *subject.source.rglob("*")):
        place.chmod(place.stat().st_mode & ~0o222)
    assert as_nobody(theirs / "first") == "done"
    # and what was staged from it is its owner's to change and to take away
    assert (theirs / "first" / "dspark_runner").stat().st_mode & 0o200
    before = sorted(theirs.rglob("*"))
    assert as_nobody(closed / "out") == f"UNWRITABLE {closed / 'out'} nothing"
    for path in ("start.sh", "dspark_runner"):
        place = subject.source / path
        mode = place.stat().st_mode
        place.chmod(0)
        said = as_nobody(theirs / "second")
        assert said.startswith("UNREADABLE ")
        assert said.endswith(f"/runner/{path} nothing")
        place.chmod(mode)
    assert sorted(theirs.rglob("*")) == before
