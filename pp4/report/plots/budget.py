"""The parts of a projected window one after another, and its bound."""

from __future__ import annotations

from matplotlib.figure import Figure

from pp4.receipts.runs import Budget
from pp4.report.palette import BAD, BAND, INK, MUTED, PAPER, RULE
from pp4.report.plots.sheet import Drawing, Size, fits, in_two_widths, name_of, panel
from pp4.report.words import NS_PER_S, span


def draw(name: str, budget: Budget) -> Drawing:
    """Draw one bar of all parts, as the figure of that name in the page."""
    bound, total = int(budget.bound_ns), int(budget.projected_ns)
    label = f"Projected window {span(total)} of a bound of {span(bound)}"

    def draw_on(figure: Figure, narrow: bool) -> None:
        width = 348 if narrow else 900
        axes = panel(figure, (10, 24, width - 16, 58))
        end = 1.04 * max(bound, total) / NS_PER_S / 60
        axes.set_xlim(0, end)
        axes.set_ylim(-0.5, 0.5)
        at = 0.0
        for place, part in enumerate(budget.parts):
            minutes = int(part.projected_ns) / NS_PER_S / 60
            colour = RULE if place % 2 else BAND
            axes.barh(0, minutes, left=at, height=0.9, color=colour, edgecolor=PAPER, linewidth=0.8)
            text = name_of(part.name)
            if fits(text, minutes * (width - 26) / end - 5):
                axes.text(at + minutes / 2, 0, text, ha="center", va="center_baseline")
            at += minutes
        axes.axvline(bound / NS_PER_S / 60, color=BAD if total > bound else INK, linewidth=1.6)
        axes.annotate(
            f"bound {span(bound)}",
            (bound / NS_PER_S / 60, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-4, 5),
            textcoords="offset points",
            ha="right",
            color=INK,
        )
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=5 if narrow else 10)
        axes.set_xlabel("minutes", labelpad=4, color=MUTED)

    return in_two_widths(name, label, Size(900, 98), Size(348, 98), draw_on)
