"""What steps waited for their drafts, OFF against ON: one distribution a batch size, one scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from pp4.report.latency import Distribution
from pp4.report.palette import OF_SWITCH, PAPER
from pp4.report.plots.sheet import NORMAL, Drawing, Size, drawn, panel, rules
from pp4.report.words import NS_PER_MS, milliseconds

_POINTS: Final = 240
_STYLE: Final = {"OFF": (0, (4, 2)), "ON": "solid"}


def bounds(all_of_them: Sequence[Distribution]) -> tuple[float, float]:
    """Return the ends of the one scale, in milliseconds."""
    values = [
        value
        for one in all_of_them
        for samples in one.samples.values()
        if samples
        for value in (samples[0], samples[-1])
    ]
    low, high = _ms(min(values)), _ms(max(values))
    # On the left there has to be room for a name beside the first curve.
    return low / max(1.06, (high / low) ** 0.22), high * 1.06


def draw(name: str, one: Distribution, scale: tuple[float, float]) -> Drawing:
    """Draw one batch size.

    Args:
        name: of the figure in the page.
        one: with at least one sample.
        scale: see :func:`bounds`.
    """
    label = f"Draft latency at batch {one.batch}: " + "; ".join(
        f"{switch} median {milliseconds(samples[(len(samples) - 1) // 2])}"
        for switch, samples in one.samples.items()
        if samples
    )

    def draw_on(figure: Figure) -> None:
        axes = panel(figure, (44, 12, 296, 160))
        axes.set_xscale("log")
        axes.set_xlim(*scale)
        axes.set_ylim(0, 104)
        rules(axes, "y")
        middles: dict[str, float] = {}
        for switch, samples in one.samples.items():
            if not samples:
                continue
            shares, places = _curve(samples)
            axes.plot(
                places,
                shares,
                color=OF_SWITCH[switch],
                linestyle=_STYLE[switch],
                linewidth=1.8,
                drawstyle="steps-post",
            )
            middles[switch] = _ms(samples[(len(samples) - 1) // 2])
        _names(axes, middles)
        tight = scale[1] / scale[0] < 12
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5) if tight else (1, 3)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        axes.set_yticks([0, 25, 50, 75, 100])
        axes.set_xlabel("milliseconds for the drafts of a step", labelpad=5)

    return Drawing(drawn(name, label, Size(300, 204), draw_on))


def _curve(samples: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return shares in percent and the smallest wait that such a share does not exceed."""
    count = len(samples)
    ranks = sorted({math.ceil(count * point / _POINTS) for point in range(1, _POINTS + 1)})
    ranks = [1, *(rank for rank in ranks if rank > 1)]
    return [100 * rank / count for rank in ranks], [_ms(samples[rank - 1]) for rank in ranks]


def _ms(ns: int) -> float:
    """Return milliseconds; the scale, which is one of powers, begins at a microsecond."""
    return max(1000, ns) / NS_PER_MS


def _names(axes: Axes, middles: Mapping[str, float]) -> None:
    """Write each switch beside its own curve, on the side where the other is not."""
    ordered = sorted(middles, key=lambda switch: middles[switch])
    for switch in ordered:
        left = switch == ordered[0] and len(ordered) > 1
        # A curve at the right edge has its name on the left, lower than another one there.
        low, high = map(math.log, axes.get_xlim())
        edge = not left and (math.log(middles[switch]) - low) / (high - low) > 0.84
        axes.annotate(
            switch,
            (middles[switch], 22 if edge else 50),
            xytext=(-9 if left or edge else 9, 0),
            textcoords="offset points",
            ha="right" if left or edge else "left",
            va="center_baseline",
            color=OF_SWITCH[switch],
            weight="bold",
            size=NORMAL,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1, "alpha": 0.85},
        )
