"""Tokens per second of every cell, ON against OFF, with intervals: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pp4.receipts.figures import Cell
from pp4.report.palette import BAND, INK, MUTED, ON, PAPER
from pp4.report.plots.sheet import Drawing, Size, in_two_widths, name_of, panel, rules
from pp4.report.words import change, position

_ROW: Final = 25
_NAME: Final = 18
"""Signs of a cell's name that have room."""
_GAP: Final = 0.55
"""Of a row, where the temperature changes."""


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    text: str
    primary: bool
    at: float
    low: float
    high: float
    place: float


def draw(name: str, cells: Sequence[Cell], noise: float) -> Drawing | None:
    """Draw the change of each cell.

    Args:
        name: of the figure in the page.
        cells: in the order in which they are told.
        noise: threshold as a ratio.

    Returns:
        the figure; None where no cell has both sides.
    """
    rows = _rows(cells)
    if not rows:
        return None
    height = round(34 + _ROW * (rows[-1].place + 1) + 44)
    label = "Change of tokens per second, ON against OFF: " + "; ".join(
        f"{row.name}{' (primary)' if row.primary else ''}: {row.text}" for row in rows
    )

    def draw_on(figure: Figure, narrow: bool) -> None:
        width = 348 if narrow else 900
        axes = panel(figure, (126, 26, width - (14 if narrow else 236), height - 44))
        axes.set_ylim(rows[-1].place + 0.6, -0.6)
        axes.axvspan(-100 * noise, 100 * noise, color=BAND, linewidth=0)
        rules(axes, "x")
        axes.axvline(0, color=MUTED, linewidth=0.8)
        for row in rows:
            _mark(axes, row)
            _beside(axes, row, row.name, 0, -10)
            if not narrow:
                _beside(axes, row, row.text, 1, 226)
        reach = max(100 * noise, *(max(abs(row.low), abs(row.high)) for row in rows))
        lowest = min(row.low for row in rows)
        axes.set_xlim(min(-2.2 * 100 * noise, lowest - 0.08 * reach), 1.08 * reach)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
        axes.locator_params(axis="x", nbins=5 if narrow else 8)
        what = "change" if narrow else "change of tokens per second"
        axes.set_xlabel(f"{what}, ON against OFF", labelpad=6)
        axes.text(0, -0.8, f"noise ±{100 * noise:g} %", ha="center", va="bottom", color=MUTED)

    return in_two_widths(name, label, Size(900, height), Size(348, height), draw_on)


def _rows(cells: Sequence[Cell]) -> list[_Row]:
    rows: list[_Row] = []
    ordered = sorted(cells, key=lambda cell: (Decimal(cell.temperature), cell.batch))
    last, place = None, 0.0
    for cell in ordered:
        if cell.log_ratio is None:
            continue
        if last is not None:
            place += 1 + (_GAP if last != cell.temperature else 0)
        last = cell.temperature
        ends = (cell.interval.low, cell.interval.high) if cell.interval else (cell.log_ratio,) * 2
        at, low, high = (position(float(text)) for text in (cell.log_ratio, *ends))
        name = name_of(f"T {cell.temperature}, batch {cell.batch}", _NAME)
        rows.append(_Row(name, change(cell), cell.primary, at, low, high, place))
    return rows


def _mark(axes: Axes, row: _Row) -> None:
    colour = ON if row.primary else INK
    axes.plot(
        [row.low, row.high],
        [row.place, row.place],
        color=colour,
        linewidth=3 if row.primary else 1.4,
    )
    axes.plot(
        [row.at],
        [row.place],
        "D" if row.primary else "o",
        color=colour,
        markersize=6.5 if row.primary else 5.5,
        markerfacecolor=ON if row.primary else PAPER,
        markeredgecolor=PAPER if row.primary else INK,
    )


def _beside(axes: Axes, row: _Row, text: str, edge: int, away: float) -> None:
    """Write a text beside a row, its end so many pixels from the left or the right edge."""
    axes.annotate(
        text,
        (edge, row.place),
        xycoords=("axes fraction", "data"),
        xytext=(away, 0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        weight="bold" if row.primary else "normal",
    )
