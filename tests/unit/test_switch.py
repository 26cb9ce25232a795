"""What the environment says to a worker, and on which file systems it keeps its files."""

import os
import subprocess
from pathlib import Path

import pytest

from pp4.config import (
    SWITCHES,
    Service,
    engine_switch,
    file_systems,
    sampled_switch,
    service,
)
from pp4.config.file_systems import file_system, require_local
from pp4.errors import Code, Exit, RefusedError

SWITCH = "DSPARK_SAMPLED_TOP32"


READERS = [(sampled_switch, SWITCHES[0]), (engine_switch, SWITCHES[1])]


def test_each_switch_has_its_own_variable():
    assert SWITCHES == (SWITCH, "VLLM_DSPARK_SAMPLED_TOP32")


@pytest.mark.parametrize(("reader", "name"), READERS)
def test_a_switch_is_off_unless_it_is_1(reader, name):
    assert reader({}) is False
    assert reader({name: "0"}) is False
    assert reader({name: "1"}) is True


@pytest.mark.parametrize(("reader", "name"), READERS)
@pytest.mark.parametrize("text", ["", " 1", "1 ", "01", "true", "on", "yes", "2", "-1", "\u0661"])
def test_anything_else_refuses(reader, name, text):
    with pytest.raises(RefusedError) as caught:
        reader({name: text})
    refusal = caught.value.refusal
    assert (refusal.code, caught.value.exit) == (Code.BAD_SETTING, Exit.REFUSED)
    assert name in refusal.where
    assert refusal.next == f"unset {name}"


@pytest.mark.parametrize(("reader", "name"), READERS)
def test_neither_looks_at_the_others(reader, name):
    (other,) = set(SWITCHES) - {name}
    assert reader({other: "1"}) is False
    assert reader({other: "nonsense"}) is False


def test_the_switch_of_this_process(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    assert (sampled_switch(), engine_switch()) == (True, False)
    monkeypatch.setenv(SWITCHES[1], "1")
    assert engine_switch() is True


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ({}, Service()),
        ({"NOTIFY_SOCKET": ""}, Service()),
        ({"NOTIFY_SOCKET": "/run/n"}, Service("/run/n")),
        ({"NOTIFY_SOCKET": "@n", "WATCHDOG_USEC": "2500000"}, Service("@n", 2.5)),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, Service(None, 2.0)),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid() + 1)}, Service()),
        ({"WATCHDOG_USEC": "0"}, Service()),
        ({"WATCHDOG_USEC": "soon"}, Service()),
        ({"WATCHDOG_USEC": "9" * 5000}, Service()),
    ],
)
def test_what_a_service_manager_says(env, found):
    assert service(env) == found


def test_a_local_directory_will_do_whether_or_not_it_is_there(tmp_path):
    require_local(tmp_path, "state", "export X=")
    require_local(tmp_path / "not" / "there", "state", "export X=")


def test_the_kind_is_the_one_that_the_kernel_names(tmp_path):
    said = subprocess.run(
        ["stat", "-f", "-c", "%t", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert file_system(tmp_path) == int(said.stdout, 16)


# NFS, SMB2, FUSE, Lustre, 9p, and one that nobody has heard of
@pytest.mark.parametrize("magic", [0x6969, 0xFE534D42, 0x65735546, 0x0BD00BD0, 0x01021997, 7])
def test_a_network_is_refused_with_what_to_set(tmp_path, monkeypatch, magic):
    monkeypatch.setattr(file_systems, "file_system", lambda _: magic)
    with pytest.raises(RefusedError) as caught:
        require_local(tmp_path, "directory of compiled kernels", "export PP4_STATE_DIR=/x")
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_SETTING
    assert refusal.where.startswith("directory of compiled kernels /")
    assert f"0x{magic:x}" in refusal.found
    assert refusal.next == "export PP4_STATE_DIR=/x"


def test_the_nearest_directory_above_is_looked_at(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(file_systems, "file_system", lambda path: looked.append(path) or 0xEF53)
    require_local(tmp_path / "a" / "b", "state", "")
    assert looked == [tmp_path]


def test_a_file_system_that_cannot_be_asked_is_refused(monkeypatch):
    def gone(path):
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr(file_systems, "file_system", gone)
    with pytest.raises(RefusedError) as caught:
        require_local(Path("/"), "state", "")
    assert caught.value.refusal.found == "Input/output error"
