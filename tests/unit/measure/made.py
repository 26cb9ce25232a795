"""Halves with made-up rounds, for tests alone."""

import copy
import json
from collections.abc import Callable

from pp4.receipts.build import build
from pp4.receipts.digests import file_digest
from pp4.receipts.models import read_model
from pp4.receipts.runs import Measurement
from tests.unit.receipts import samples

BASE_NS = 1_000_000_000
Change = Callable[[dict], object]


def half(name, primary=24, slowed=None, **changes):
    """The body of a half whose primary cell has so many headline rounds.

    Args:
        name: of the half.
        primary: rounds.
        slowed: arm and number of the primary round to nanoseconds that it took more.
        changes: of the body.
    """
    body = samples.measurement(name)
    body["settings"] = {**samples.SETTINGS, "primary": primary}
    body["summary"] = None
    for arm in body["arms"]:
        order = [samples.CELLS[3]] * (primary - 1) + list(samples.CELLS)
        arm["rounds"] = [
            samples.measured_round(phase, number, *cell)
            for phase, cells in (("headline", order), ("profiled", samples.CELLS))
            for number, cell in enumerate(cells)
        ]
        number = 0
        for one in arm["rounds"]:
            one["elapsed_ns"] = str(BASE_NS)
            if (one["phase"], one["batch"], one["temperature"]) == ("headline", 8, "0.7"):
                more = 0 if slowed is None else slowed(arm["arm"], number)
                one["elapsed_ns"] = str(BASE_NS + more)
                number += 1
    return {**body, **changes}


def halves(primary=24, slowed=None, change: Change = lambda body: None, change_first=None):
    """Two halves that belong together, and the sha256 of the first one's file.

    Args:
        primary: as in :func:`half`.
        slowed: likewise.
        change: what is done to the body of the second half before it is built.
        change_first: what is done to the body of the first one.
    """
    first = half("A1B1", primary, slowed)
    if change_first is not None:
        change_first(first)
    raw = build(samples.ended(first))
    second = half("B2A2", primary, slowed)
    second["evidence"][0]["sha256"] = file_digest(raw)
    change(second)
    return model(raw), model(build(samples.ended(second))), file_digest(raw)


def model(raw) -> Measurement:
    read = read_model(raw, "test")
    assert isinstance(read, Measurement)
    return read


def tree(raw):
    return copy.deepcopy(json.loads(raw))
