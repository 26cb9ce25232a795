"""What NVML said at the end of each round, arm after arm: clocks, power, temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.figure import Figure

from pp4.report.arms import ArmFigures
from pp4.report.palette import OF_SWITCH, RULE
from pp4.report.plots.sheet import Drawing, Size, drawn, name_of, panel, rules

_STYLES: Final = ("solid", (0, (1.5, 1.8)))
_GAP: Final = 0.06
"""Of the longest arm, between two arms."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity.

    Attributes:
        name: of the fact.
        title: for people.
        unit: that is shown.
        per_unit: how many of the fact's unit are one of it.
        drawn: whether it has a figure; the others have a row in the table.
    """

    name: str
    title: str
    unit: str
    per_unit: int
    drawn: bool = True


KNOWN: Final = (
    Quantity("sm_mhz", "SM clock", "MHz", 1),
    Quantity("power_mw", "Power", "W", 1000),
    Quantity("temperature_c", "Temperature", "\N{DEGREE SIGN}C", 1),
    Quantity("memory_mhz", "Memory clock", "MHz", 1, drawn=False),
)


def quantities(arms: Sequence[ArmFigures]) -> list[Quantity]:
    """Return the quantities that some round has, those with a known unit first."""
    found = {one.name for arm in arms for one in arm.clocks}
    known = [one for one in KNOWN if one.name in found]
    named = {one.name for one in known}
    return [*known, *(Quantity(name, name, "", 1, drawn=False) for name in sorted(found - named))]


def draw(name: str, quantity: Quantity, arms: Sequence[ArmFigures]) -> Drawing:
    """Draw one quantity of all GPUs.

    Args:
        name: of the figure in the page.
        quantity: which.
        arms: in the order in which they ran.
    """
    label = (
        f"{name_of(quantity.title)} in {quantity.unit or 'its own unit'} by round: "
        + "; ".join(
            f"{arm.arm} GPU {one.rank} from {min(told):g} to {max(told):g}"
            for arm in arms
            for one in arm.clocks
            if one.name == quantity.name
            for told in [[v / quantity.per_unit for v in one.values if v is not None]]
            if told
        )
    )
    longest = max([1, *(arm.headline + arm.profiled for arm in arms)])
    step = longest * (1 + _GAP)

    def draw_on(figure: Figure) -> None:
        axes = panel(figure, (46, 24, 294, 136))
        rules(axes, "y")
        for place, arm in enumerate(arms):
            for one in (one for one in arm.clocks if one.name == quantity.name):
                axes.plot(
                    [place * step + at for at in range(len(one.values))],
                    [float("nan") if v is None else v / quantity.per_unit for v in one.values],
                    color=OF_SWITCH[arm.switch],
                    linestyle=_STYLES[min(one.rank, 1)],
                    linewidth=1.3,
                )
            axes.annotate(
                f"{arm.arm} {arm.switch}",
                (place * step + longest / 2, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color=OF_SWITCH[arm.switch],
                weight="bold",
            )
            if place:
                axes.axvline((place - _GAP / 2) * step, color=RULE, linewidth=1)
        axes.set_xlim(-_GAP * longest / 2, len(arms) * step - _GAP * longest / 2)
        low, high = axes.get_ylim()
        # Clocks that stand still must not look like noise that fills the panel.
        middle, least = (low + high) / 2, 0.04 * abs(high)
        axes.set_ylim(min(low, middle - least), max(high, middle + least))
        axes.locator_params(axis="y", nbins=4, integer=True)
        axes.set_xticks([])
        axes.set_xlabel("rounds of each arm, in their order", labelpad=6)

    return Drawing(drawn(name, label, Size(300, 160), draw_on))
