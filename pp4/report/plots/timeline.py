"""One HOLD from its opening to its close: heartbeats, steps, gates, arms and their phases."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from statistics import median
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pp4.receipts.runs import Measurement, Span
from pp4.report.palette import BAD, BAND, INK, MUTED, OF_SWITCH, PAPER, RULE
from pp4.report.plots.sheet import SMALL, Drawing, Size, fits, in_two_widths, name_of, panel, rules
from pp4.report.words import NS_PER_S, span

_LANES: Final = ("step", "gate", "arm", "phase")
_ROW: Final = 27
_DRAWN: Final = 300
_MOST: Final = 3
"""Lanes of one kind where spans overlap; a host that tells more is drawn over itself."""
_SILENT: Final = 2
"""A gap between heartbeats of so many medians is marked."""


def longest(half: Measurement) -> int:
    """Return the last moment of a half's HOLD in nanoseconds."""
    ends = [int(one.end_ns) for one in half.timeline]
    return max([1, *ends, *map(int, half.heartbeats_ns)])


def described(half: Measurement) -> str:
    """Say in one line how often the host answered."""
    beats = [int(beat) for beat in half.heartbeats_ns]
    if len(beats) < 2:
        return f"{len(beats)} heartbeats"
    gap = max(later - earlier for earlier, later in itertools.pairwise(beats))
    return f"{len(beats):,} heartbeats, longest gap {span(gap)}"


def draw(name: str, half: Measurement, end_ns: int) -> Drawing:
    """Draw a HOLD.

    Args:
        name: of the figure in the page.
        half: whose HOLD it was.
        end_ns: end of the scale, one for all HOLDs of a page.
    """
    lanes = [
        (kind, row)
        for kind in _LANES
        for row in _rows(longest_spans([one for one in half.timeline if one.kind == kind]))
    ]
    height = 34 + _ROW * (len(lanes) + 1) + 28
    arms = ", ".join(
        f"{name_of(one.name)} {span(int(one.end_ns) - int(one.begin_ns))}"
        for one in half.timeline
        if one.kind == "arm"
    )
    label = (
        f"Timeline of the HOLD of {half.half}: {span(longest(half))}; {described(half)}; "
        f"arms: {arms or 'none'}"
    )
    switches: dict[str, str] = {arm.arm: arm.switch for arm in half.arms}

    def draw_on(figure: Figure, narrow: bool) -> None:
        width = 348 if narrow else 900
        axes = panel(figure, (78, 6, width - 16, height - 40))
        end = end_ns / NS_PER_S / 60
        axes.set_xlim(0, end)
        axes.set_ylim(len(lanes) + 0.55, -0.5)
        rules(axes, "x")
        _heartbeats(axes, half)
        scale = (width - 94) / end
        for place, (_, row) in enumerate(lanes, start=1):
            free = 0
            for one in row:
                # What lies over another one is not named.
                room = scale if int(one.begin_ns) >= free else 0
                free = max(free, int(one.end_ns))
                _bar(axes, one, place, room, switches)
        names = ["heartbeats", *(f"{kind}s" for kind, _ in lanes)]
        axes.set_yticks(range(len(names)), _once(names))
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=4 if narrow else 10)
        axes.set_xlabel("minutes since the HOLD was opened", labelpad=5)

    return in_two_widths(name, label, Size(900, height), Size(348, height), draw_on)


def longest_spans(spans: Sequence[Span]) -> list[Span]:
    """Return what of one kind is drawn: all of it, up to more than any HOLD has."""
    taken = sorted(spans, key=lambda one: int(one.begin_ns) - int(one.end_ns))
    return taken[:_DRAWN]


def _rows(spans: Sequence[Span]) -> list[list[Span]]:
    """Lay spans that overlap into rows of their own."""
    rows: list[list[Span]] = []
    for one in sorted(spans, key=lambda other: int(other.begin_ns)):
        free = next((row for row in rows if int(row[-1].end_ns) <= int(one.begin_ns)), None)
        if free is not None:
            free.append(one)
        elif len(rows) < _MOST:
            rows.append([one])
        else:
            rows[-1].append(one)
    return rows


def _once(names: Sequence[str]) -> list[str]:
    """Name a lane where its kind begins."""
    return ["" if place and names[place - 1] == name else name for place, name in enumerate(names)]


def _heartbeats(axes: Axes, half: Measurement) -> None:
    beats = [int(beat) / NS_PER_S / 60 for beat in half.heartbeats_ns]
    if not beats:
        return
    across = [x for beat in beats for x in (beat, beat, float("nan"))]
    axes.plot(across, [-0.22, 0.22, float("nan")] * len(beats), color=MUTED, linewidth=0.5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(beats)]
    usual = median(gaps) if gaps else 0
    silent = [
        x
        for begin, gap in zip(beats, gaps, strict=False)
        if gap >= _SILENT * usual > 0
        for x in (begin, begin + gap, float("nan"))
    ]
    axes.plot(silent, [0] * len(silent), color=BAD, linewidth=3)


def _bar(axes: Axes, one: Span, place: int, scale: float, switches: dict[str, str]) -> None:
    begin, end = int(one.begin_ns) / NS_PER_S / 60, int(one.end_ns) / NS_PER_S / 60
    switch = next((on for arm, on in switches.items() if one.name.split(" ")[0] == arm), None)
    arm = one.kind == "arm" and switch is not None
    colour = OF_SWITCH[switch] if switch else RULE
    axes.barh(
        place,
        end - begin,
        left=begin,
        height=0.74,
        color=colour if arm or not switch else BAND,
        edgecolor=PAPER if arm or not switch else colour,
        linewidth=1,
    )
    text = _short(one, switch)
    if fits(text, (end - begin) * scale - 5):
        axes.text(
            (begin + end) / 2,
            place,
            text,
            ha="center",
            va="center_baseline",
            size=SMALL,
            color=PAPER if arm else INK,
            weight="bold" if arm else "normal",
        )


def _short(one: Span, switch: str | None) -> str:
    """Name a span as briefly as its lane allows."""
    name = name_of(one.name)
    if one.kind == "gate" and (match := re.fullmatch(r"gate[- ]([0-9]+)\b.*", name)):
        return match[1]
    if one.kind == "arm" and switch:
        return f"{name} {switch}"
    if one.kind == "phase" and switch:
        return name.partition(" ")[2] or name
    return name
