"""Paired changes of the primary cell by round, one panel a HOLD: here a drift is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pp4.report.palette import BAND, INK, MUTED, ON, PAPER
from pp4.report.plots.sheet import NORMAL, Drawing, Size, in_two_widths, panel, rules
from pp4.report.words import percent, position


@dataclass(frozen=True, slots=True)
class Paired:
    """One HOLD.

    Attributes:
        title: of the half, with its order.
        changes: ln(ON/OFF) of each pair, in the order of rounds.
    """

    title: str
    changes: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of all pairs."""
        return math.fsum(self.changes) / len(self.changes)


def draw(name: str, holds: Sequence[Paired], noise: float) -> Drawing | None:
    """Draw the pairs of each HOLD on one scale; None where there is none."""
    shown = [one for one in holds if one.changes]
    if not shown:
        return None
    label = "Change of each pair of rounds of the primary cell: " + "; ".join(
        f"{one.title}: {len(one.changes)} pairs, mean {percent(one.mean)}" for one in shown
    )
    values = [position(value) for one in shown for value in one.changes]
    low, high = min([*values, -100 * noise]), max([*values, 100 * noise])
    edge = 0.08 * (high - low)

    def draw_on(figure: Figure, narrow: bool) -> None:
        wide = (900 - 56 - 20 * (len(shown) - 1) - 12) / len(shown)
        for number, one in enumerate(shown):
            left, top = (56, 28 + 230 * number) if narrow else (56 + (wide + 20) * number, 28)
            right = 348 - 10 if narrow else left + wide
            axes = panel(figure, (left, top, right, top + 168))
            axes.set_ylim(low - edge, high + edge)
            _pairs(axes, one, noise, first=shown[0] if number else None)
            if number and not narrow:
                axes.tick_params(axis="y", labelleft=False)
            _title(axes, one)

    tall = 28 + 230 * (len(shown) - 1) + 210
    return in_two_widths(name, label, Size(900, 238), Size(348, tall), draw_on)


def _pairs(axes: Axes, one: Paired, noise: float, first: Paired | None) -> None:
    axes.axhspan(-100 * noise, 100 * noise, color=BAND, linewidth=0)
    rules(axes, "y")
    axes.axhline(0, color=MUTED, linewidth=0.8)
    numbers = range(1, len(one.changes) + 1)
    places = [position(value) for value in one.changes]
    axes.set_xlim(0, len(one.changes) + 1)
    axes.plot(numbers, places, "o", color=INK, markersize=3.6, markerfacecolor=PAPER)
    mean = position(one.mean)
    if first is not None:
        axes.axhline(position(first.mean), color=ON, linewidth=1.2, linestyle=(0, (2, 3)))
    axes.axhline(mean, color=ON, linewidth=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
    axes.locator_params(axis="y", nbins=6)
    axes.locator_params(axis="x", nbins=6, integer=True)
    axes.set_xlabel("pair of rounds, in the order in which they ran", labelpad=5)


def _title(axes: Axes, one: Paired) -> None:
    """Write which HOLD it is at the left, and its mean at the right, where no mark can be."""
    rows = (("left", one.title, INK, 0), ("right", f"mean {percent(one.mean)}", ON, 1))
    for side, text, colour, edge in rows:
        axes.annotate(
            text,
            (edge, 1),
            xycoords="axes fraction",
            xytext=(0, 9),
            textcoords="offset points",
            ha=side,
            color=colour,
            weight="bold",
            size=NORMAL,
        )
