"""The program of the receiving host: what it takes for whole, and what it leaves alone."""

import fcntl
import gzip
import io
import json
import os
import signal
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.hold import staged_files, unpack
from pp4.hold.bundle import bundle
from pp4.hold.staged_files import DamagedError, damage, members, source_digest
from pp4.receipts.digests import sha256_hex, source_list_digest
from tests.unit.hold.staging_host import (
    FILES,
    HOLD,
    OTHER,
    as_root,
    asked,
    flip,
    mounted,
    names,
    package,
    program,
    unpacked,
    uploaded,
)

DAY = 86_400


@pytest.fixture
def source(tmp_path):
    return package(tmp_path / "here")[0]


@pytest.fixture
def root(tmp_path, source):
    return tmp_path / "here" / "pp4"


@pytest.fixture
def there(tmp_path):
    """The directory of the receiving host."""
    return tmp_path / "there"


@pytest.fixture
def tree(there, source, root):
    tree, answer = unpacked(there, source, root)
    assert answer == {"path": str(tree), "source": source.digest}
    return tree


# --- names and members


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.text("0123456789abcdef"))))
def test_the_digest_of_a_source_is_that_of_receipts(files):
    assert source_digest(files) == source_list_digest(files)


def archive(*entries):
    """A bundle made by somebody who means no good."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, content in entries:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "pp4/__init__.py"
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue())


BAD_NAMES = [
    "/pp4/x.py",
    "/etc/x.py",
    "../x.py",
    "pp4/../../x.py",
    "pp4/../x.py",
    "pp4/./x.py",
    "./pp4/x.py",
    "pp4//x.py",
    "x.py",
    "json.py",
    "pp5/x.py",
    "pp4/x.so",
    "pp4/x.pyc",
    "pp4/x",
    "pp4/.py",
    "pp4/a b.py",
    "pp4/x.py\n",
    "pp4/\\x.py",
    "pp4/~x.py",
    "pp4/é.py",
    "pp4/a.b/x.py",
]
BAD_KINDS = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "directory": tarfile.DIRTYPE,
    "contiguous": tarfile.CONTTYPE,
    "unknown": b"Z",
}
ATTACKS = {
    **{repr(name): archive((name, tarfile.REGTYPE, b"x = 1\n")) for name in BAD_NAMES},
    **{kind: archive(("pp4/x.py", number, b"")) for kind, number in BAD_KINDS.items()},
    "twice": archive(*[("pp4/x.py", tarfile.REGTYPE, b"x = 1\n")] * 2),
    "no gzip": b"pp4",
    "empty": b"",
    "no tar": gzip.compress(b"pp4" * 1000),
    "cut gzip": archive(("pp4/x.py", tarfile.REGTYPE, b"x = 1\n"))[:-20],
    "cut tar": gzip.compress(
        gzip.decompress(archive(("pp4/x.py", tarfile.REGTYPE, b"x" * 999)))[:900]
    ),
    "a bomb": gzip.compress(bytes(staged_files.LARGEST + 1)),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_bundle_with_anything_but_files_of_source_is_refused(name, there, source, root, tmp_path):
    with pytest.raises(DamagedError):
        dict(members(ATTACKS[name]))
    before = sorted(tmp_path.rglob("*"))
    uploaded(there, source, root, ATTACKS[name])
    sha = sha256_hex(ATTACKS[name])
    refusal = asked(there, source, "unpack", f"{sha}.tar.gz", sha)["refusal"]
    assert (refusal["code"], refusal["again"]) == ("NOT_STAGED", False)
    made = {path.name for path in set(tmp_path.rglob("*")) - set(before)}
    assert made == {"there", "staged", f"{sha}.tar.gz"}


@pytest.mark.parametrize("entry", BAD_NAMES)
def test_a_bad_name_behind_good_ones_leaves_nothing(entry, there, source, root):
    data = archive(("pp4/x.py", tarfile.REGTYPE, b"1"), (entry, tarfile.REGTYPE, b"2"))
    name, _ = uploaded(there, source, root, data)
    assert "refusal" in asked(there, source, "unpack", name, sha256_hex(data))
    assert names(there) == [name]


def test_a_bundle_of_another_source_is_refused(there, source, tmp_path):
    other, root = package(tmp_path / "other", {"__init__.py": "x = 1\n"})
    name, data = uploaded(there, other, root)
    refusal = asked(there, source, "unpack", name, sha256_hex(data))["refusal"]
    assert source.digest in refusal["expected"]
    assert other.digest in refusal["found"]
    assert names(there) == [name]


def test_every_flipped_byte_of_an_upload_is_seen_and_the_upload_deleted(there, source, root):
    data = bundle(source, root)
    name = f"{sha256_hex(data)}.tar.gz"
    for at in range(0, len(data), 7):
        flipped = data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]
        asked(there, source, "prepare")
        (there / "staged" / name).write_bytes(flipped)
        refusal = asked(there, source, "unpack", name, sha256_hex(data))["refusal"]
        assert (refusal["code"], refusal["again"]) == ("NOT_STAGED", True)
        assert names(there) == []


def test_an_upload_that_is_not_there_may_be_sent_again(there, source):
    asked(there, source, "prepare")
    refusal = asked(there, source, "unpack", f"{'0' * 64}.tar.gz", "0" * 64)["refusal"]
    assert (refusal["found"], refusal["again"]) == ("none", True)


# --- trees


def test_a_tree_is_the_files_with_permissions_that_no_umask_decides(there, source, root):
    old = os.umask(0o000)
    try:
        tree, _ = unpacked(there, source, root)
    finally:
        os.umask(old)
    found = {path.relative_to(tree / "pp4").as_posix(): path for path in tree.rglob("*.py")}
    assert {name: path.read_text() for name, path in found.items()} == FILES
    assert {path.stat().st_mode & 0o7777 for path in found.values()} == {0o644}
    directories = [tree, tree / "pp4", tree / "pp4" / "deep"]
    assert {path.stat().st_mode & 0o7777 for path in directories} == {0o755}
    assert {path.stat().st_mode & 0o7777 for path in (there, there / "staged")} == {0o700}
    assert names(there) == [source.digest]


def swap(path):
    """Put a link to the same content in its place."""
    kept = path.parent.parent.parent / "kept"
    path.rename(kept)
    path.symlink_to(kept)


def give_away(path):
    os.chown(path, 65534, 65534)


def fifo(path):
    path.unlink()
    os.mkfifo(path, 0o644)


def planted(path, name):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text("")


DAMAGE = {
    "a byte": lambda tree: flip(tree / "pp4/say.py"),
    "a file more": lambda tree: planted(tree, "pp4/more.py"),
    "a module beside pp4": lambda tree: planted(tree, "json.py"),
    "bytecode": lambda tree: planted(tree, "pp4/__pycache__/say.cpython-311.pyc"),
    "a name with a blank": lambda tree: planted(tree, "pp4/a b.py"),
    "a hidden file": lambda tree: planted(tree, ".pth"),
    "an empty directory": lambda tree: (tree / "pp4/more").mkdir(),
    "a file less": lambda tree: (tree / "pp4/deep/inner.py").unlink(),
    "an empty file less": lambda tree: (tree / "pp4/deep/__init__.py").unlink(),
    "another package": lambda tree: (tree / "pp4").rename(tree / "pp5"),
    "another name": lambda tree: (tree / "pp4/say.py").rename(tree / "pp4/sax.py"),
    "nothing in it": lambda tree: (tree / "pp4").rename(tree.parent / "away"),
    "a linked file": lambda tree: swap(tree / "pp4/say.py"),
    "a linked directory": lambda tree: swap(tree / "pp4/deep"),
    "a linked package": lambda tree: swap(tree / "pp4"),
    "a link in place of the tree": lambda tree: swap(tree),
    "a file in place of the tree": lambda tree: (
        tree.rename(tree.parent / "away"),
        tree.write_text(""),
    ),
    "a pipe": lambda tree: fifo(tree / "pp4/say.py"),
    "a file for all": lambda tree: (tree / "pp4/say.py").chmod(0o646),
    "a file for the group": lambda tree: (tree / "pp4/say.py").chmod(0o664),
    "a directory for all": lambda tree: (tree / "pp4/deep").chmod(0o757),
    "a tree for all": lambda tree: tree.chmod(0o1777),
    "a file too large": lambda tree: os.truncate(tree / "pp4/say.py", staged_files.LARGEST + 1),
    "a file of another": lambda tree: give_away(tree / "pp4/say.py"),
    "a directory of another": lambda tree: give_away(tree / "pp4/deep"),
    "a tree of another": lambda tree: give_away(tree),
}


def damaged(how, tree):
    if "of another" in how and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    DAMAGE[how](tree)


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_seen_and_mended(how, tree, there, source, root):
    assert damage(str(tree), source.digest) is None
    damaged(how, tree)
    looked = asked(there, source, "look")
    assert looked["path"] is None
    assert looked["damage"]
    assert "refusal" in asked(there, source, "take", HOLD)
    assert unpacked(there, source, root)[1] == {"path": str(tree), "source": source.digest}
    assert asked(there, source, "look")["path"] == str(tree)
    assert [name for name in names(there) if name.startswith(".")] == []


@pytest.mark.parametrize("how", [how for how in DAMAGE if "link" in how])
def test_what_a_link_leads_to_is_not_removed_with_it(how, tree, there, source, root, tmp_path):
    damaged(how, tree)
    said = "a link or something else that does not belong there"
    assert asked(there, source, "look")["damage"].endswith(f": {said}")
    (kept,) = tmp_path.rglob("kept")
    before = sorted(kept.rglob("*"))
    unpacked(there, source, root)
    assert kept.exists()
    assert sorted(kept.rglob("*")) == before


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_tree_that_a_hold_runs_from_is_left_alone(how, tree, there, source, root):
    asked(there, source, "take", HOLD)
    damaged(how, tree)
    before = sorted(path.name for path in tree.parent.rglob("*"))
    name, _ = uploaded(there, source, root)
    refusal = asked(there, source, "unpack", name, name[:64])["refusal"]
    assert (refusal["code"], refusal["where"]) == ("NOT_STAGED", str(tree))
    assert refusal["found"].endswith(f"in use by HOLD {HOLD}")
    after = sorted(path.name for path in tree.parent.rglob("*") if path.name != name)
    assert after == before


def test_an_intact_tree_is_shared_and_the_upload_not_even_read(tree, there, source):
    inode = tree.stat().st_ino
    (there / "staged" / f"{'0' * 64}.tar.gz").write_bytes(b"anything")
    answer = asked(there, source, "unpack", f"{'0' * 64}.tar.gz", "1" * 64)
    assert answer == {"path": str(tree), "source": source.digest}
    assert tree.stat().st_ino == inode
    assert names(there) == [source.digest]


# --- others at the same time, and ends in the middle

LATE = """
import json, os, signal, sys
from pp4.hold import unpack
locked = unpack.Place.locked
def late(place):
    os.write(1, b"r")
    os.read(0, 1)
    return locked(place)
unpack.Place.locked = late
print(json.dumps(unpack.main(sys.argv[1:])))
"""


def test_two_that_unpack_the_same_at_once_both_succeed(there, source, root):
    name, data = uploaded(there, source, root)
    tree = there / "staged" / source.digest
    argv = ["unpack", there, source.digest, "60", name, sha256_hex(data)]
    with program(LATE, *argv) as first, program(LATE, *argv) as second:
        # both have unpacked, and both found nothing in the tree's place
        assert (first.stdout.read(1), second.stdout.read(1)) == (b"r", b"r")
        said = [json.loads(first.communicate(b"g", timeout=60)[0])]
        inode = tree.stat().st_ino
        said.append(json.loads(second.communicate(b"g", timeout=60)[0]))
    assert said == [{"path": str(tree), "source": source.digest}] * 2
    assert tree.stat().st_ino == inode, "the second put its own in the place of an intact one"
    assert names(there) == [source.digest]


# as a kill from outside would, at a moment that is known
KILLED = """
import os, signal, sys
from pp4.hold import unpack
left = int(sys.argv.pop(1))
def killing(step):
    def killed(*arguments):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*arguments)
    return killed
for name in ("fchmod", "chmod", "rename", "fsync"):
    setattr(os, name, killing(getattr(os, name)))
unpack.main(sys.argv[1:])
"""
# each file, each directory, what takes an old tree away, the rename
WRITES = len(FILES) + 3 + 2


@pytest.mark.parametrize("at", range(1, WRITES + 2))
def test_kill_9_in_the_middle_leaves_nothing_that_is_taken_for_whole(at, there, source, root):
    name, data = uploaded(there, source, root)
    argv = ["unpack", there, source.digest, "60", name, sha256_hex(data)]
    with program(KILLED, at, *argv) as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    tree = there / "staged" / source.digest
    # only the last one comes after the rename
    assert tree.exists() == (at > WRITES)
    assert (asked(there, source, "look")["path"] is None) == (at <= WRITES)
    assert "refusal" not in asked(there, source, "unpack", name, sha256_hex(data))
    assert damage(str(tree), source.digest) is None
    left = [entry for entry in names(there) if entry.startswith(".new.")]
    assert len(left) == (1 if at <= WRITES else 0)
    assert asked(there, source, "sweep", "-1") == {"removed": left}
    assert names(there) == [source.digest]


def test_who_keeps_the_lock_is_waited_for_only_so_long(tree, there, source):
    with open(there / "staged" / "lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refusal = asked(there, source, "take", HOLD, limit_s="0.05")["refusal"]
        assert refusal["code"] == "NOT_STAGED"
        assert refusal["found"] == "a program that keeps it for more than 0.05 s"
    assert "refusal" not in asked(there, source, "take", HOLD, limit_s="0.05")


@as_root
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, source, root):
    with mounted(tmp_path / "small", "size=64k,mode=0700") as disk:
        there = disk / "there"
        name, data = uploaded(there, source, root)
        filler = there / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(1 << 20))
        # one page: the tree needs more
        os.truncate(filler, filler.stat().st_size - os.sysconf("SC_PAGE_SIZE"))
        refusal = asked(there, source, "unpack", name, sha256_hex(data))["refusal"]
        assert refusal["code"] == "UNWRITABLE"
        assert "No space left on device" in refusal["found"]
        assert " bytes free)" in refusal["found"]
        assert names(there) == [name]
        filler.unlink()
        assert "refusal" not in asked(there, source, "unpack", name, sha256_hex(data))
        assert asked(there, source, "look")["path"] == str(there / "staged" / source.digest)


# --- uses


def test_the_tree_goes_with_the_last_hold_that_uses_it(tree, there, source):
    for hold in (HOLD, OTHER, HOLD):
        assert asked(there, source, "take", hold) == {"path": str(tree), "source": source.digest}
    assert sorted(os.listdir(f"{tree}.uses")) == [HOLD, OTHER]
    assert asked(there, source, "drop", HOLD) == {"removed": []}
    assert asked(there, source, "drop", HOLD) == {"removed": []}
    assert asked(there, source, "look")["path"] == str(tree)
    gone = [source.digest, f"{source.digest}.uses"]
    assert asked(there, source, "drop", OTHER) == {"removed": gone}
    assert names(there) == []
    assert asked(there, source, "drop", OTHER) == {"removed": []}


def test_what_is_not_there_cannot_be_taken_and_can_be_dropped(there, source):
    assert asked(there, source, "drop", HOLD) == {"removed": []}
    asked(there, source, "prepare")
    refusal = asked(there, source, "take", HOLD)["refusal"]
    assert (refusal["code"], refusal["found"]) == (
        "NOT_STAGED",
        f"{there}/staged/{source.digest}: No such file or directory",
    )
    assert names(there) == []


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


HERE = os.uname().nodename
USES = {
    "of this boot": (lambda boot: [boot, HERE, now()], True),
    "nearly too old": (lambda boot: [boot, HERE, now() - unpack.USE_S + 600], True),
    "too old": (lambda boot: [boot, HERE, now() - unpack.USE_S - 1], False),
    "of another boot": (lambda boot: ["another", HERE, now()], False),
    "of another machine": (lambda boot: ["another", "elsewhere", now()], True),
    "of a container that had another name": (
        lambda boot: [boot, "elsewhere", now() - unpack.USE_S - 1],
        False,
    ),
    "that nobody can read": (lambda boot: "?", True),
}


@pytest.mark.parametrize("kind", USES)
def test_a_use_that_no_hold_can_still_have_is_void(kind, tree, there, source, root):
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    content, live = USES[kind]
    asked(there, source, "take", HOLD)
    use = there / "staged" / f"{source.digest}.uses" / HOLD
    assert json.loads(use.read_text())[:2] == [boot, HERE]
    use.write_text(json.dumps(content(boot)))
    flip(tree / "pp4/say.py")
    name, _ = uploaded(there, source, root)
    assert ("refusal" in asked(there, source, "unpack", name, name[:64])) == live


@pytest.mark.parametrize("hold", ["", "..", "../x", "0123456789ABCDEF", HOLD + "\n", HOLD + "0"])
@pytest.mark.parametrize("verb", ["take", "drop"])
def test_what_is_no_id_of_a_hold_reaches_no_file(verb, hold, tree, there, source):
    with pytest.raises(ValueError, match="no id of a HOLD"):
        asked(there, source, verb, hold)
    assert names(there) == [source.digest]


# --- sweep


def test_a_sweep_takes_what_is_old_and_of_no_use(tree, there, source):
    staged = there / "staged"
    asked(there, source, "take", HOLD)
    used, unused, void, young = ("1" * 64, "2" * 64, "3" * 64, "4" * 64)
    for digest in (used, unused, void, young):
        (staged / digest).mkdir()
        planted(staged / digest, "pp4")
    (staged / f"{used}.uses").mkdir()
    (staged / f"{used}.uses" / OTHER).write_bytes((staged / f"{tree}.uses" / HOLD).read_bytes())
    (staged / f"{void}.uses").mkdir()
    (staged / f"{void}.uses" / OTHER).write_text(json.dumps(["another", HERE, 0]))
    parts = [
        f"{'a' * 64}.tar.gz",
        f"{'a' * 64}.tar.gz.part",
        f"{'a' * 64}.{'b' * 16}.tar.gz",
        f"{'a' * 64}.{'b' * 16}.tar.gz.part",
        f".new.{'c' * 16}",
        f".old.{'d' * 16}",
    ]
    strangers = ["notes.txt", "a.tar.gz", ".new.x"]
    for name in (*parts[:4], *strangers):
        (staged / name).write_text("")
    for name in parts[4:]:
        (staged / name).mkdir()
    for entry in staged.iterdir():
        if entry.name != young:
            os.utime(entry, (time.time() - DAY - 60,) * 2)
    gone = {*parts, unused, void, f"{void}.uses"}
    assert set(asked(there, source, "sweep", str(DAY))["removed"]) == gone
    kept = [source.digest, f"{source.digest}.uses", used, f"{used}.uses", young, *strangers]
    assert names(there) == sorted(kept)
    assert asked(there, source, "sweep", str(DAY)) == {"removed": []}


def test_a_sweep_of_nothing_makes_nothing(there, source):
    assert asked(there, source, "sweep", "0") == {"removed": []}
    assert not there.exists()


# --- the directory


def test_a_look_changes_nothing_and_says_what_could_be(there, source):
    looked = asked(f"{there}/a/b/", source, "look")
    assert not there.exists()
    assert (looked["directory"], looked["path"]) == (f"{there}/a/b", None)
    assert (looked["damage"], looked["writable"]) == (None, True)
    status = os.statvfs(there.parent)
    assert 0 < looked["free"] <= status.f_blocks * status.f_frsize


BAD_PLACES = {
    "for all": lambda there: there.chmod(0o777),
    "for the group": lambda there: (there / "staged").chmod(0o770),
    "linked": lambda there: (there.rename(f"{there}.x"), there.symlink_to(f"{there}.x")),
    "linked inside": lambda there: (
        (there / "staged").rename(there / "x"),
        (there / "staged").symlink_to(there / "x"),
    ),
}


@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("how", BAD_PLACES)
def test_a_directory_that_others_could_change_is_not_believed(how, end, tree, there, source):
    BAD_PLACES[how](there)
    verbs = {
        "look": (),
        "prepare": (),
        "unpack": (f"{'0' * 64}.tar.gz", "0" * 64),
        "take": (HOLD,),
        "drop": (HOLD,),
        "sweep": ("0",),
    }
    for verb, arguments in verbs.items():
        refusal = asked(f"{there}{end}", source, verb, *arguments)["refusal"]
        expected = "a directory of this account, writable by it alone"
        assert (refusal["code"], refusal["expected"]) == ("NOT_STAGED", expected), verb
        assert (": a link or" if "linked" in how else ": mode 07") in refusal["found"], verb
