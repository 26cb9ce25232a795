"""Which steps are priced, in the order of a position.  No torch is imported here."""

from dataclasses import dataclass, field
from typing import Any

from benchmarks.racing.field import PAIR, SOLO

TILES = (512, 1024, 2048, 4096)
WARPS = (4, 8)


@dataclass(frozen=True)
class Step:
    """One probe.

    ``make``: the function of :mod:`benchmarks.racing.probing` that builds it from ``given``;
    ``what``: what one number of it is the time of; ``batched``: whether it depends on the rows.
    """

    name: str
    make: str
    what: str
    given: dict[str, Any] = field(default_factory=dict)
    seats: str = SOLO
    batched: bool = False


def _steps():
    for loads, name, what in (
        (False, "empty", "an empty kernel"),
        (True, "relay", "a word handed on"),
    ):
        for pdl, tail, how in ((False, "", ""), (True, "_pdl", ", dependents launched early")):
            given = {"loads": loads, "pdl": pdl}
            yield Step(f"{name}{tail}", "relay", f"{what}{how}: one of five graph nodes", given)
    yield Step("retire", "retire", "a node whose 32 blocks a row only retire", batched=True)
    yield Step("dependent_l2", "dependent", "one row after a token, from L2", {"rows": 64})
    yield Step("dependent_hbm", "dependent", "one row after a token, from HBM", {"rows": 1 << 18})
    for tile in TILES:
        for warps in WARPS:
            given = {"tile": tile, "warps": warps}
            what = f"32 best groups of each tile, tile {tile}, {warps} warps"
            yield Step(f"select_{tile}_{warps}", "select", what, given, batched=True)
    yield Step("products", "products", "bias of a shard's columns, two rows a block", batched=True)
    yield Step("merge", "merge", "32 best of 32 lists of 32", batched=True)
    yield Step("look_into", "look_into", "top 32 of 32 groups", {"tile": 2048}, batched=True)
    yield Step("draw", "draw", "union of 64, tickets, draw", batched=True)
    yield Step("exchange_flag", "flag", "32 words one way, flag by release and acquire", {}, PAIR)
    yield Step("exchange_word", "word", "32 words one way, epoch inside the words", {}, PAIR)


STEPS = tuple(_steps())
BY_NAME = {step.name: step for step in STEPS}
