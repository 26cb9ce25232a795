"""Memory over the sealed baseline by round: one panel a source, its allowance as a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.figure import Figure

from pp4.report.arms import ArmFigures, Memory
from pp4.report.palette import BAD, INK, MUTED, OF_SWITCH, RULE
from pp4.report.plots.sheet import Drawing, Size, drawn, name_of, panel, rules
from pp4.report.words import MIB, growth

_LARGE: Final = 4096 * MIB
_OVER: Final = 1.28
"""The scale ends so far above the allowance, which therefore lies at one height in all panels."""


def draw(name: str, source: str, arms: Sequence[tuple[ArmFigures, Memory]]) -> Drawing:
    """Draw one source.

    Args:
        name: of the figure in the page.
        source: its name.
        arms: each arm with what it says of the source, in the order in which they ran.
    """
    allowance = min(memory.allowance for _, memory in arms)
    label = f"Growth of {name_of(source)} over the baseline, allowance {growth(allowance)}: " + (
        "; ".join(f"{arm.arm} at most {growth(memory.most)}" for arm, memory in arms)
    )

    def draw_on(figure: Figure) -> None:
        axes = panel(figure, (50, 22, 292, 124))
        most = max(memory.most for _, memory in arms)
        least = min((one or 0 for _, memory in arms for one in memory.growth), default=0)
        large = max(most, allowance, -least) >= _LARGE
        unit = MIB * 1024 if large else MIB
        top = max(_OVER * allowance, 1.1 * most) / unit
        axes.set_ylim(min(-0.06 * top, 1.15 * least / unit), top)
        rules(axes, "y")
        axes.axhline(0, color=RULE, linewidth=1)
        over = most > allowance
        axes.axhline(
            allowance / unit,
            color=BAD if over else INK,
            linewidth=1.6 if over else 0.9,
            linestyle=(0, (1, 2)),
        )
        for arm, memory in arms:
            axes.plot(
                range(1, len(memory.growth) + 1),
                [float("nan") if one is None else one / unit for one in memory.growth],
                color=OF_SWITCH[arm.switch],
                linestyle=(0, (4, 2)) if arm.switch == "OFF" else "solid",
                linewidth=1.5,
            )
        axes.annotate(
            f"allowance {growth(allowance)}",
            (0, allowance / unit),
            xycoords=("axes fraction", "data"),
            xytext=(4, 3),
            textcoords="offset points",
            va="bottom",
            color=INK,
        )
        axes.annotate(
            "GiB" if large else "MiB",
            (0, 1),
            xycoords="axes fraction",
            xytext=(-6, 5),
            textcoords="offset points",
            ha="right",
            color=MUTED,
        )
        longest = max([2, *(len(memory.growth) for _, memory in arms)])
        axes.set_xlim(1, longest)
        axes.locator_params(axis="y", nbins=4)
        axes.locator_params(axis="x", nbins=5, integer=True)
        axes.set_xlabel("rounds of the arm", labelpad=3)

    return Drawing(drawn(name, label, Size(300, 164), draw_on))
