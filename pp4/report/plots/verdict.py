"""The primary endpoint's effect and the drift on one scale, with the noise threshold as a band."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pp4.report.palette import BAND, INK, MUTED, ON, PAPER
from pp4.report.plots.sheet import NORMAL, Drawing, Size, in_two_widths, panel
from pp4.report.verdict import Verdict
from pp4.report.words import percent, position


def draw(name: str, verdict: Verdict) -> Drawing | None:
    """Draw effect and drift; None without a summary."""
    effect, low, high, drift = verdict.effect, verdict.low, verdict.high, verdict.drift
    if effect is None or low is None or high is None or drift is None:
        return None
    label = f"Scale of the change of ON against OFF: {verdict.figures}"

    def draw_on(figure: Figure, narrow: bool) -> None:
        width = 340 if narrow else 620
        axes = panel(figure, (52, 22, width - 14, 84))
        places = [position(value) for value in (effect, low, high, drift)]
        noise = 100 * verdict.noise
        reach = 1.18 * max(*map(abs, places), 2 * noise)
        axes.set_xlim(-reach, reach)
        axes.set_ylim(-0.6, 1.6)
        axes.axvspan(-noise, noise, color=BAND, linewidth=0)
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.plot(places[1:3], [1, 1], color=ON, linewidth=3)
        axes.plot([places[0]], [1], "D", color=ON, markersize=6.5, markeredgecolor=PAPER)
        axes.plot([places[3]], [0], "^", color=INK, markersize=7, markerfacecolor=PAPER)
        # Each name stands where its row is empty: towards the middle, but not on the line there.
        _name(axes, percent(effect), places[1] if places[0] > 0 else places[2], 1, places[0] <= 0)
        far = abs(places[3]) > reach / 3
        _name(axes, percent(drift), places[3], 0, (places[3] <= 0) == far)
        axes.set_yticks([0, 1], ["drift", "effect"])
        axes.tick_params(axis="y", labelsize=NORMAL)
        axes.spines["left"].set_visible(False)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
        axes.locator_params(axis="x", nbins=4 if narrow else 8)
        axes.text(0, 1.75, f"noise threshold ±{noise:g} %", ha="center", va="bottom", color=MUTED)

    return in_two_widths(name, label, Size(620, 110), Size(340, 110), draw_on)


def _name(axes: Axes, text: str, x: float, row: int, right: bool) -> None:
    axes.annotate(
        text,
        (x, row),
        xytext=(10 if right else -10, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center_baseline",
        size=NORMAL,
        weight="bold" if row else "normal",
    )
