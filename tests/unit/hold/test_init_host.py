"""The directory of a host: made, found again, mended or refused."""

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest

from pp4.errors import Code, RefusedError
from pp4.hold.exclusion import open_exclusion
from pp4.hold.upkeep import init_host
from pp4.receipts.canonical import shown
from tests.unit.hold.holds import (
    NOBODY,
    as_nobody,
)
from tests.unit.hold.looking import refused

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a host's directory")


@as_root
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_root_makes_the_directory_and_finds_it_the_next_time(tmp_path, mask):
    host = tmp_path / "host"
    before = os.umask(mask)
    try:
        made = init_host(host)
    finally:
        os.umask(before)
    names = [host, host / "gpu", host / "fence", host / "holds"]
    modes = ["0755", "0777", "0777", "1777"]
    assert made == tuple(f"made: {n}, mode {m}" for n, m in zip(names, modes, strict=True))
    assert [f"{stat.S_IMODE(name.stat().st_mode):04o}" for name in names] == modes
    (host / "gpu" / "kept").write_text("kept")
    there = tuple(f"was there: {n}, mode {m}" for n, m in zip(names, modes, strict=True))
    assert init_host(host) == there
    assert (host / "gpu" / "kept").read_text() == "kept"
    assert open_exclusion(host, tmp_path / "state", boot="b").kind == "host"


@as_root
def test_what_is_missing_of_a_directory_is_made(tmp_path):
    host = tmp_path / "host"
    init_host(host)
    (host / "fence").rmdir()
    words = [line.split(":")[0] for line in init_host(host)]
    assert words == ["was there", "was there", "made", "was there"]


@as_root
@pytest.mark.parametrize(
    ("name", "mode"), [("", 0o700), ("gpu", 0o700), ("fence", 0o755), ("holds", 0o1700)]
)
def test_a_directory_that_keeps_users_out_is_refused_with_its_repair(tmp_path, name, mode):
    """A kill between the making of a directory and its mode leaves one."""
    host = tmp_path / "host"
    init_host(host)
    (host / name).chmod(mode)
    refusal = refused(init_host, host, kind=RefusedError)
    assert (refusal.code, refusal.where) == (Code.EXCLUSION, shown(str(host / name)))
    assert refusal.found == f"mode {mode:04o}"
    subprocess.run(shlex.split(refusal.next), check=True)
    assert {line.split(":")[0] for line in init_host(host)} == {"was there"}


@as_root
def test_a_directory_of_somebody_else_is_refused(tmp_path):
    host = tmp_path / "host"
    init_host(host)
    os.chown(host, NOBODY, NOBODY)
    assert refused(init_host, host, kind=RefusedError).code is Code.EXCLUSION


@as_root
@pytest.mark.parametrize(
    ("path", "again"),
    [
        ("/var/lib/pp4", "sudo pp4 host init"),
        ("/var/lib/x y/pp4", "sudo env PP4_HOST_DIR='/var/lib/x y/pp4' pp4 host init"),
    ],
)
def test_a_user_is_told_what_the_administrator_types(path, again):
    def action():
        try:
            return init_host(Path(path))
        except RefusedError as error:
            return error.refusal.as_dict()

    found = as_nobody(action)
    assert (found["code"], found["next"]) == ("UNWRITABLE", again)
    assert found["found"] == f"user {NOBODY}"
    assert not Path("/var/lib/x y").exists()
