"""Every colour of a page, once: light, dark, and the stand-ins that plots are drawn with.

OFF is ochre and ON is blue, which people with any of the common colour deficiencies tell apart; in
figures each also has a shape of its own (OFF hollow and dashed, ON filled and solid).
"""

from __future__ import annotations

from typing import Final

LIGHT: Final = {
    "paper": "#fdfdfb",
    "ink": "#1b1c1d",
    "muted": "#5a5d61",
    "rule": "#d6d7d4",
    "band": "#e9eae6",
    "off": "#8a5800",
    "on": "#0b59a8",
    "bad": "#a3201d",
}
DARK: Final = {
    "paper": "#15171a",
    "ink": "#e9e7e2",
    "muted": "#a8abaf",
    "rule": "#3b3f45",
    "band": "#2a2e33",
    "off": "#e6ad52",
    "on": "#79b8f8",
    "bad": "#ff938b",
}
STAND_INS: Final = {name: f"#0b0c{number:02x}" for number, name in enumerate(LIGHT, start=1)}
"""A plot is drawn with these, and each becomes the variable of its name in the page."""

PAPER, INK, MUTED = STAND_INS["paper"], STAND_INS["ink"], STAND_INS["muted"]
RULE, BAND, BAD = STAND_INS["rule"], STAND_INS["band"], STAND_INS["bad"]
OFF, ON = STAND_INS["off"], STAND_INS["on"]
OF_SWITCH: Final = {"OFF": OFF, "ON": ON}


def variables(colours: dict[str, str]) -> str:
    """Return declarations of the variables of one scheme."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
