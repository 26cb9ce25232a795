"""Settings from the environment."""

from pathlib import Path

import pytest

from pp4.config import (
    INTERPRETED,
    ON_GPUS,
    SWITCHES,
    child_environment,
    load_settings,
    visible_gpus,
)
from pp4.errors import Code, RefusedError

HOME = {"HOME": "/home/u"}


def test_defaults():
    settings = load_settings(HOME)
    assert settings.debug is False
    assert settings.color is True
    assert settings.state_dir == Path("/home/u/.local/state/pp4")
    assert settings.host_dir == Path("/var/lib/pp4")


@pytest.mark.parametrize(("text", "debug"), [("1", True), ("0", False), ("", False)])
def test_debug(text, debug):
    assert load_settings(HOME | {"PP4_DEBUG": text}).debug is debug


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"NO_COLOR": "0"}, {"TERM": "dumb"}])
def test_colour_off(env):
    assert load_settings(HOME | env).color is False


def test_an_empty_no_color_does_not_count():
    assert load_settings(HOME | {"NO_COLOR": ""}).color is True


def test_directories(tmp_path):
    env = {"PP4_STATE_DIR": str(tmp_path), "PP4_HOST_DIR": "/srv/pp4"}
    settings = load_settings(env)
    assert (settings.state_dir, settings.host_dir) == (tmp_path, Path("/srv/pp4"))


@pytest.mark.parametrize(
    ("base", "state"),
    [("/s", "/s/pp4"), ("s", "/home/u/.local/state/pp4"), ("", "/home/u/.local/state/pp4")],
)
def test_the_base_directory_counts_only_if_absolute(base, state):
    assert load_settings(HOME | {"XDG_STATE_HOME": base}).state_dir == Path(state)


def test_without_a_home_the_account_answers(monkeypatch):
    monkeypatch.setattr("pp4.config._account_home", lambda: "/accounts/u")
    assert load_settings({}).state_dir == Path("/accounts/u/.local/state/pp4")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PP4_DEBUG", "yes"),
        ("PP4_DEBUG", " 1"),
        ("PP4_STATE_DIR", "state"),
        ("PP4_HOST_DIR", "./x"),
        ("PP4_STATE_DIR", __file__),
        ("HOME", "u"),
    ],
)
def test_a_value_without_sense_refuses_and_names_the_variable(name, text):
    with pytest.raises(RefusedError) as caught:
        load_settings(HOME | {name: text})
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_SETTING
    assert name in refusal.where
    assert text in refusal.found


def test_nowhere_to_live_refuses(monkeypatch):
    monkeypatch.setattr("pp4.config._account_home", lambda: "")
    with pytest.raises(RefusedError) as caught:
        load_settings({})
    assert caught.value.refusal.found == "nothing"
    assert caught.value.refusal.next == "export PP4_STATE_DIR=/absolute/path"


def test_a_child_inherits_neither_switch():
    env = dict.fromkeys(SWITCHES, "1") | {"PATH": "/bin"}
    assert child_environment({"A": "1"}, env) == {"PATH": "/bin", "A": "1"}


def test_a_child_gets_a_switch_only_when_told():
    assert child_environment({SWITCHES[0]: "1"}, {}) == {SWITCHES[0]: "1"}


def test_a_child_inherits_from_this_process(monkeypatch):
    monkeypatch.setenv("PP4_TEST_MARK", "x")
    monkeypatch.setenv(SWITCHES[1], "1")
    env = child_environment({})
    assert env["PP4_TEST_MARK"] == "x"
    assert SWITCHES[1] not in env


def test_a_temporary_directory_is_looked_for_only_where_it_is_used(monkeypatch, tmp_path):
    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    settings = load_settings(HOME)
    with pytest.raises(RefusedError) as caught:
        _ = settings.temp_dir
    refusal = caught.value.refusal
    assert (refusal.code, refusal.next) == (Code.BAD_SETTING, "export TMPDIR=/absolute/path")


@pytest.mark.parametrize("text", [__file__, "/nowhere/at/all", "/" + "x" * 300])
def test_a_temporary_directory_that_is_none_refuses_where_it_is_used(text):
    settings = load_settings(HOME | {"TMPDIR": text})
    with pytest.raises(RefusedError) as caught:
        _ = settings.temp_dir
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_SETTING
    assert "TMPDIR" in refusal.where


def test_a_temporary_directory_that_serves(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert load_settings(HOME | {"TMPDIR": str(tmp_path)}).temp_dir == tmp_path
    assert load_settings(HOME).temp_dir == tmp_path


def test_a_directory_whose_name_is_too_long_refuses():
    with pytest.raises(RefusedError) as caught:
        load_settings(HOME | {"PP4_STATE_DIR": "/" + "x" * 300})
    assert caught.value.refusal.code is Code.BAD_SETTING


def test_a_directory_that_may_not_be_looked_at_refuses(monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(RefusedError) as caught:
        load_settings(HOME | {"PP4_HOST_DIR": "/root/x"})
    refusal = caught.value.refusal
    assert refusal.code is Code.BAD_SETTING
    assert "Permission denied" in refusal.found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("", ()),
        ("0", ("0",)),
        ("0, 1 ,", ("0", "1")),
        ("GPU-a,GPU-b", ("GPU-a", "GPU-b")),
    ],
)
def test_visible_gpus(text, names):
    env = HOME if text is None else HOME | {"CUDA_VISIBLE_DEVICES": text}
    assert visible_gpus(env) == names


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_LAUNCH_BLOCKING",
        "TRITON_ALWAYS_COMPILE",
        "TRITON_DEBUG",
        "TRITON_KERNEL_DUMP",
        "TRITON_KERNEL_OVERRIDE",
    ],
)
def test_a_debugging_session_makes_no_other_kernels(name):
    env = HOME | {name: "1", "TRITON_CACHE_DIR": "/kept"}
    found = child_environment({"A": "1"}, env)
    assert found == {**HOME, "TRITON_CACHE_DIR": "/kept", "A": "1"}


def test_interpreted_and_on_gpus_are_never_mixed_up():
    assert (INTERPRETED["TRITON_INTERPRET"], ON_GPUS["TRITON_INTERPRET"]) == ("1", "0")
    # where multicast fails it takes every GPU of the host with it
    assert ON_GPUS["NCCL_NVLS_ENABLE"] == "0"
    assert ON_GPUS["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
    # whatever the shell says
    for settings in (INTERPRETED, ON_GPUS):
        env = child_environment(settings, HOME | dict.fromkeys(settings, "other"))
        assert {name: env[name] for name in settings} == settings
        # the path of a source would be in the digest of its kernel
        assert settings["TRITON_DISABLE_LINE_INFO"] == "1"
