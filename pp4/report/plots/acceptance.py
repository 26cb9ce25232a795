"""Acceptance by position, OFF against ON: one panel a temperature, one scale."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pp4.report.acceptance import Acceptance, Switch
from pp4.report.palette import OF_SWITCH, PAPER
from pp4.report.plots.sheet import NORMAL, Drawing, Size, drawn, panel, rules
from pp4.report.words import share

_SAME = 0.005
"""Curves that are nowhere further apart than half a percent are named once."""


def draw(name: str, one: Acceptance) -> Drawing:
    """Draw one temperature, as the figure of that name in the page."""
    label = f"Acceptance by position at T = {one.temperature}: " + "; ".join(
        f"{switch}: {', '.join(share(rate, 0) for rate in rates) or 'nothing drafted'}"
        for switch, rates in one.rates.items()
    )

    def draw_on(figure: Figure) -> None:
        axes = panel(figure, (44, 12, 292, 160))
        # Above 100 % there is room for a name.
        axes.set_ylim(0, 114)
        rules(axes, "y")
        longest = max([1, *map(len, one.rates.values())])
        axes.set_xlim(0.6, longest + 0.4)
        for switch, rates in one.rates.items():
            off = switch == "OFF"
            axes.plot(
                range(1, len(rates) + 1),
                [100 * rate for rate in rates],
                color=OF_SWITCH[switch],
                linestyle=(0, (4, 2)) if off else "solid",
                marker="o" if off else "s",
                markersize=6 if off else 4.5,
                markerfacecolor=PAPER if off else OF_SWITCH[switch],
                linewidth=1.8,
                zorder=3 if off else 2,
            )
        _names(axes, one)
        axes.set_xticks(range(1, longest + 1))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_xlabel("position in the draft", labelpad=5)

    return Drawing(drawn(name, label, Size(300, 204), draw_on))


def _names(axes: Axes, one: Acceptance) -> None:
    off, on = one.rates["OFF"], one.rates["ON"]
    if off and on:
        apart = [mine - theirs for mine, theirs in zip(on, off, strict=False)]
        # Not at the first position, where a name would meet the scale.
        place = max(range(1 if len(apart) > 1 else 0, len(apart)), key=lambda at: abs(apart[at]))
        if max(map(abs, apart)) < _SAME:
            _name(axes, "OFF = ON", "ON", 1, on[0], above=True)
            return
        _name(axes, "ON", "ON", place + 1, on[place], above=apart[place] > 0)
        _name(axes, "OFF", "OFF", place + 1, off[place], above=apart[place] < 0)
        return
    known: Switch = "OFF" if off else "ON"
    if one.rates[known]:
        _name(axes, known, known, 1, one.rates[known][0], above=True)


def _name(axes: Axes, text: str, switch: Switch, place: int, rate: float, *, above: bool) -> None:
    axes.annotate(
        text,
        (place, 100 * rate),
        xytext=(7, 7) if above else (-7, -7),
        textcoords="offset points",
        ha="left" if above else "right",
        va="bottom" if above else "top",
        color=OF_SWITCH[switch],
        weight="bold",
        size=NORMAL,
    )
