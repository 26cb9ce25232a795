"""Evidence for measurements of the installed source, made up: receipts in a directory."""

from datetime import UTC, datetime, timedelta
from functools import cache

from pp4.measure import budgeting, schedule
from pp4.measure.admitting import model_digest
from pp4.receipts.build import build
from pp4.receipts.canonical import dump
from pp4.receipts.digests import installed_source
from pp4.receipts.journal import head, next_line
from pp4.run.bundled import bundled, pair_there
from pp4.wire.measuring import Sampled
from tests.unit.receipts import samples

BOUND_NS = 90 * 60 * 10**9
HOLD, FENCE = "00000000000000a1", 7
TOMBSTONE = {"hold": HOLD, "fence": str(FENCE), "why": "done", "survivors": [], "restored": []}
PLAN = schedule.STANDARD.model_copy(update={"batches": (8,), "temperatures": ("0.7",)})
"""One cell, the primary one."""
FEW = PLAN.model_copy(update={"primary": 24, "profiled": 1})
"""As few rounds as can be summed up."""
MODEL = "[model]\nbatch_sizes = [8]\ntemperatures = [0.7]\n"
"""What a HOLD file says for it."""


def plain(facts):
    return {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}


@cache
def source():
    return installed_source().as_dict()


def current(body, **changes):
    return {**body, "source": source(), **changes}


def solo(**changes):
    return current(samples.solo(), **changes)


def whole_worker(**changes):
    found = samples.whole_worker()
    return current(found, checkpoint_sha256=bundled().checkpoint_sha256, **changes)


def budget(each_ns=10**6, plan=PLAN, **changes):
    """A budget in which every part takes the same time."""
    wanted = budgeting.times(plan)
    taken = [Sampled(name=name, worst_ns=each_ns, samples=3) for name in wanted]
    projected = budgeting.project(taken, plan, BOUND_NS)
    later = datetime.now(UTC) + timedelta(days=7)
    more = {
        "expires_at": later.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "model_sha256": model_digest(plan, pair_there(), bundled()),
        "shapes": plain(schedule.shapes(plan)),
        **projected.members(),
        **changes,
    }
    return current(samples.budget(), **more)


def written(**hold):
    """A HOLD and a journal that ends where it says."""
    lines = [next_line(None, "hold", "granted")]
    for name in ("A1", "B1"):
        lines.append(next_line(lines[-1], f"arm-{name}", "begin"))
        lines.append(next_line(lines[-1], f"arm-{name}", "end", "complete"))
    return {"hold": {**samples.hold(**hold), "journal_head": head(lines)}, "journal": lines}


def arm(name, switch, faster=1.0, plan=PLAN):
    """An arm with every round of a plan; its rounds take less where it is faster."""
    made = samples.measured_arm(name, switch)
    rounds = []
    for phase in schedule.TIMED:
        for one in schedule.rounds(plan, phase):
            batch, temperature = one.cell.batch, one.cell.temperature
            found = samples.measured_round(phase, one.index, batch, temperature)
            elapsed = str(int(10**8 * (1 + one.index % 7 / 1000) / faster))
            rounds.append({**found, "tokens": plan.new_tokens * batch, "elapsed_ns": elapsed})
    return {**made, "rounds": rounds}


def first_half(**changes):
    more = {
        "model_sha256": model_digest(PLAN, pair_there(), bundled()),
        "settings": plain(schedule.settings(PLAN)),
        "arms": [arm("A1", "OFF"), arm("B1", "ON", 1.03)],
        **written(id=HOLD, fence=str(FENCE)),
        **changes,
    }
    return current(samples.measurement(), **more)


BODIES = {
    "solo": solo,
    "whole_worker": whole_worker,
    "budget": budget,
    "first_half": first_half,
}
OPTIONS = {
    "solo": "--solo",
    "whole_worker": "--whole-worker",
    "budget": "--budget",
    "first_half": "--first",
}
NEEDED = {
    "budget": ("solo", "whole_worker"),
    "A1B1": ("solo", "whole_worker", "budget"),
    "B2A2": ("solo", "whole_worker", "budget", "first_half"),
}


@cache
def usual(name, plan):
    """The bytes of a receipt without changes."""
    return build(BODIES[name](**({"plan": plan} if name == "budget" else {})))


def write(place, name, body=None, closed=TOMBSTONE, plan=PLAN):
    """Write one receipt, and beside a first half the tombstone of its HOLD; -> its path.

    Args:
        place: directory.
        name: which receipt.
        body: makes members of another than the usual one.
        closed: the tombstone.
        plan: that a budget is about.
    """
    path = place / f"{name}.json"
    path.write_bytes(usual(name, plan) if body is None else build(body()))
    if name == "first_half" and closed is not None:
        path.with_suffix(".closed").write_bytes(dump(closed))
    return path


def options(place, work, without=(), plan=PLAN, **bodies):
    """Write what a command needs; -> its options."""
    given = []
    for name in NEEDED[work]:
        if name not in without:
            given += [OPTIONS[name], str(write(place, name, bodies.get(name), plan=plan))]
    return given
