"""Numbers and outcomes as a person reads them: one spelling for the terminal and the page."""

from __future__ import annotations

import math
import re
from typing import Final

from pp4.receipts.figures import Cell

MIB: Final = 1 << 20
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
_HYPHEN: Final = re.compile(r"(?<![\w.)-])-(?=[0-9])")
_LARGEST: Final = 9.0
NONE: Final = "\N{EN DASH}"
"""Stands where there is no number."""


def position(change: float) -> float:
    """Return a natural logarithm of a ratio as a change in percent, for a figure.

    A receipt may state any number: what lies beyond a factor of 8,000 is drawn there.
    """
    return 100 * math.expm1(min(change, _LARGEST))


def percent(change: float, digits: int = 1) -> str:
    """Spell a natural logarithm of a ratio as a signed change in percent: ``+4.9 %``."""
    if change > _LARGEST:
        return f"more than +{position(change):,.0f} %"
    return f"{signed(100 * math.expm1(change), digits)} %"


def signed(value: float, digits: int) -> str:
    """Spell a number with its sign; what rounds to zero has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def share(value: float, digits: int = 1) -> str:
    """Spell a part of one as a percentage: ``57.1 %``."""
    return f"{100 * value:.{digits}f} %"


def interval(low: float, high: float, digits: int = 1) -> str:
    """Spell two logarithms as the ends of an interval: ``+4.3 % to +5.5 %``."""
    return f"{percent(low, digits)} to {percent(high, digits)}"


def change(cell: Cell) -> str:
    """Spell the change of a cell with its interval, as far as both are known."""
    if cell.log_ratio is None:
        return "no pairs"
    effect = percent(float(cell.log_ratio))
    if cell.interval is None:
        return effect
    return f"{effect} ({interval(float(cell.interval.low), float(cell.interval.high))})"


def milliseconds(ns: float) -> str:
    """Spell nanoseconds as milliseconds, three digits that count."""
    value = ns / NS_PER_MS
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} ms"


def span(ns: float) -> str:
    """Spell nanoseconds as a person says them: ``7.9 s``, ``38 min 12 s``, ``1 h 4 min``."""
    seconds = ns / NS_PER_S
    if seconds < 1:
        return milliseconds(ns)
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: float) -> str:
    """Spell bytes in MiB."""
    return f"{count / MIB:,.1f} MiB"


def growth(count: float) -> str:
    """Spell bytes in MiB with their sign."""
    return f"{signed(count / MIB, 1)} MiB"


def rate(value: float) -> str:
    """Spell tokens per second: no digit that noise would change."""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def typeset(text: str) -> str:
    """Set numbers as print does: a minus for a hyphen, and no break before a percent sign."""
    return _HYPHEN.sub("\N{MINUS SIGN}", text).replace(" %", "\N{NO-BREAK SPACE}%")


def brief(digest: str) -> str:
    """Shorten a digest for a line that has it in full elsewhere."""
    return digest[:12]
