"""From the numbers of a schedule to its rounds, in an order that every arm has.

Pure: equal schedules give equal rounds, and nothing here depends on the arm or on what it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from pp4.config.holds import Model
from pp4.errors import Code, Refusal, RefusedError
from pp4.measure.declared import OTHER_ROUNDS, PRIMARY_ROUNDS
from pp4.receipts.envelope import Fact
from pp4.receipts.ratios import ENDPOINT
from pp4.wire.measuring import Schedule

Phase = Literal["warm-up", "greedy", "headline", "profiled"]
Timed = Literal["headline", "profiled"]
TIMED: Final[tuple[Timed, ...]] = ("headline", "profiled")
GREEDY: Final = "0"
DEPTH: Final = 5
_WHERE: Final = "[model] of the HOLD file"
_MOST_VALUES: Final = 210_000
"""Of an arm's rounds: both arms of a half have to fit into one receipt, and as evidence of the
second half into one frame."""
_OF_ROUND: Final = 50
"""Values of a round but for the parts of its steps: on GPUs about 45."""

STANDARD: Final = Schedule(
    batches=(1, 8, 32),
    temperatures=("0", "0.7", "1"),
    depth=5,
    new_tokens=128,
    seed=20_260_704,
    warm_up=2,
    greedy=2,
    headline=OTHER_ROUNDS,
    primary=PRIMARY_ROUNDS,
    profiled=4,
)
"""What is measured where the HOLD file says nothing."""

REHEARSED: Final = Schedule(
    batches=(1, 8),
    temperatures=("0", "0.7"),
    depth=5,
    new_tokens=6,
    seed=20_260_704,
    warm_up=1,
    greedy=1,
    headline=1,
    primary=2,
    profiled=1,
)
"""A few rounds, for a rehearsal on a CPU: they show that every phase runs, and time nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One batch size and temperature.

    Attributes:
        batch: requests side by side.
        temperature: of all of them, in its shortest spelling.
    """

    batch: int
    temperature: str

    @property
    def primary(self) -> bool:
        """Whether the primary endpoint is about it."""
        return (self.batch, self.temperature) == (ENDPOINT.batch, ENDPOINT.temperature)

    @property
    def name(self) -> str:
        """Word for it in names of parts."""
        return f"b{self.batch}.t{self.temperature}"


@dataclass(frozen=True, slots=True)
class Planned:
    """One round before it is decoded.

    Attributes:
        phase: what it is for.
        index: in its phase, from 0, over all cells.
        cell: what is decoded.
    """

    phase: Phase
    index: int
    cell: Cell


def cells(schedule: Schedule) -> tuple[Cell, ...]:
    """Every cell, batch sizes first."""
    return tuple(
        Cell(batch, temperature)
        for batch in schedule.batches
        for temperature in schedule.temperatures
    )


def counts(schedule: Schedule, phase: Phase) -> Mapping[Cell, int]:
    """Rounds of each cell in a phase."""
    if phase == "greedy":
        return {Cell(batch, GREEDY): schedule.greedy for batch in schedule.batches}
    plain = {
        "warm-up": schedule.warm_up,
        "headline": schedule.headline,
        "profiled": schedule.profiled,
    }[phase]
    more = schedule.primary if phase == "headline" else plain
    return {cell: more if cell.primary else plain for cell in cells(schedule)}


def rounds(schedule: Schedule, phase: Phase) -> tuple[Planned, ...]:
    """The rounds of a phase in their order, those of all cells evenly interleaved."""
    wanted = counts(schedule, phase)
    order = interleaved(tuple(wanted.values()))
    known = tuple(wanted)
    return tuple(Planned(phase, index, known[place]) for index, place in enumerate(order))


def interleaved(sizes: Sequence[int]) -> tuple[int, ...]:
    """Spread each kind over the whole, so that a drift touches all kinds alike.

    The k-th of n stands where its middle would lie on a line, at (2k + 1) / 2n; of equal ones the
    earlier kind comes first.  In the first m of N places a kind of n has m n / N members, give or
    take 1 / 2 and, of K kinds, K n / 2 N more.

    Args:
        sizes: how many there are of each kind.

    Returns:
        Kinds by their number, one for each place.
    """
    return tuple(kind for _, kind in sorted(_middles(sizes)))


def _middles(sizes: Sequence[int]) -> Iterator[tuple[Fraction, int]]:
    for kind, size in enumerate(sizes):
        for number in range(size):
            yield Fraction(2 * number + 1, 2 * size), kind


def settings(schedule: Schedule) -> dict[str, Fact]:
    """Every number that is fixed beforehand, as receipts have them."""
    return {name: _fact(value) for name, value in schedule}


def shapes(schedule: Schedule) -> dict[str, Fact]:
    """What decides how long a window takes: all of it but the seed."""
    return {name: fact for name, fact in settings(schedule).items() if name != "seed"}


def _fact(value: object) -> Fact:
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, int | str):
        return value
    raise TypeError(f"a number, a text or several, not {type(value).__name__}")


def from_model(model: Model | None) -> Schedule:
    """The schedule for what a HOLD file says is measured.

    Args:
        model: its section; None for the bundled pair.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``, the depth is not 5, the cell of the primary endpoint is
            not among those that are measured, or there are more rounds than a receipt holds.
    """
    if model is None:
        return STANDARD
    temperatures = tuple(format(one, "f") for one in model.temperatures)
    if model.depth != DEPTH:
        found = str(model.depth)
        raise _refused("depth", f"{DEPTH}, at which both arms are compared", found)
    if ENDPOINT.batch not in model.batch_sizes:
        found = ", ".join(map(str, model.batch_sizes))
        raise _refused("batch_sizes", f"{ENDPOINT.batch} among them: {_DECLARED}", found)
    if ENDPOINT.temperature not in temperatures:
        found = ", ".join(temperatures)
        raise _refused("temperatures", f"{ENDPOINT.temperature} among them: {_DECLARED}", found)
    chosen = {"batches": model.batch_sizes, "temperatures": temperatures}
    schedule = STANDARD.model_copy(update=chosen)
    most = most_values(schedule)
    if most > _MOST_VALUES:
        expected = f"so few of both that an arm's rounds have at most {_MOST_VALUES} values"
        found = f"{len(cells(schedule))} cells, up to {most} values"
        raise _refused("batch_sizes and temperatures", expected, found)
    return schedule


def most_values(schedule: Schedule) -> int:
    """How many values the timed rounds of an arm have at most, each step with one new token."""
    of_phase = {"headline": 1, "profiled": 3}
    return sum(
        len(rounds(schedule, phase)) * (_OF_ROUND + of_phase[phase] * schedule.new_tokens)
        for phase in TIMED
    )


_DECLARED: Final = "the primary endpoint is declared before anything is measured"


def _refused(key: str, expected: str, found: str) -> RefusedError:
    where = f"{_WHERE}, {key}"
    return RefusedError(Refusal(Code.BAD_HOLD_FILE, where, expected, found))
