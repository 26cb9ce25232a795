"""No launcher, example or page of this repository turns a switch of the sampled path on."""

import configparser
import re
from pathlib import Path

import pytest

from pp4.config import SWITCHES

ROOT = Path(__file__).parents[2]
PLACES = ("launch", "docs", "benchmarks", ".ci", "README.md", "CONTRIBUTING.md", "Makefile")
SERVICE = ROOT / "launch" / "pp4-worker.service"
# `X=1`, `X: "1"`, `X = '1'`, `"X": "1"`, `-e X=1`, `setenv X 1`; also with nothing behind the sign,
# since a shell or a template would fill it in
ON = re.compile(rf"\b({'|'.join(SWITCHES)})[\"'`]?\s*(?:[=:]\s*+(?![\"'`]?0\b)|\s[\"']?[1-9])")


def files():
    for name in PLACES:
        place = ROOT / name
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def test_nothing_enables_a_switch():
    found = list(files())
    assert SERVICE in found
    assert [str(path) for path in found if ON.search(path.read_text("utf-8"))] == []


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize(
    "text",
    ["{}=1", "{}: '1'", 'Environment={}="1"', "{} = 1", "'{}': '1'", "setenv {} 1", "{}=$ON"],
)
def test_a_planted_one_is_found(switch, text):
    assert ON.search(text.format(switch))


@pytest.mark.parametrize("text", ["{}=0", "unset {}", "`{}` is off by default", "{}: '0'", "{}"])
def test_what_enables_nothing_is_not_flagged(text):
    assert not ON.search(text.format(SWITCHES[0]))


def test_the_service_is_one_that_systemd_understands():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(SERVICE.read_text("utf-8"))
    service = unit["Service"]
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert "pp4 worker serve" in service["ExecStart"]
    # a machine that refuses is not tried again and again
    assert "3" in service["RestartPreventExitStatus"].split()
    assert not any(switch in SERVICE.read_text("utf-8") for switch in SWITCHES)
