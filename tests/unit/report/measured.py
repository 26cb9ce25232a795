"""Two halves of a measurement that never took place, of the size of a real one.

Every number is drawn from a seeded generator: equal arguments give equal receipts.  ``effect`` and
``drift`` are put into the elapsed times, so that a test knows what a figure has to say.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pp4.measure.summary import summarise
from pp4.receipts.build import build
from pp4.receipts.digests import file_digest, sha256_hex, tree_digest
from pp4.receipts.models import read_model
from tests.unit.receipts import samples
from tests.unit.receipts.samples import Body

MIB = 1 << 20
S = 10**9
BATCHES = (1, 8, 32)
TEMPERATURES = ("0", "0.7", "1.0")
PRIMARY = (8, "0.7")
NEW_TOKENS = 64
SOURCES = {
    "nvml.gpu.0": 14_532 * MIB,
    "nvml.gpu.1": 9_871 * MIB,
    "rss.engine": 2_204 * MIB,
    "rss.rank0": 3_310 * MIB,
    "rss.rank1": 3_297 * MIB,
    "torch.allocated": 6_120 * MIB,
}
LIMITS = [
    "one pair of GPUs, one model, one set of prompts; another pair was not measured",
    "a common runtime at fixed depth 5, not a production server: no scheduler, no paging, no "
    "other users",
    "unsigned: integrity, not authorship",
]
ACCEPTED = {
    ("OFF", "0"): (0.71, 0.47, 0.30, 0.19, 0.11),
    ("ON", "0"): (0.71, 0.47, 0.30, 0.19, 0.11),
    ("OFF", "0.7"): (0.57, 0.33, 0.19, 0.11, 0.06),
    ("ON", "0.7"): (0.64, 0.41, 0.25, 0.15, 0.09),
    ("OFF", "1.0"): (0.49, 0.26, 0.14, 0.08, 0.04),
    ("ON", "1.0"): (0.61, 0.38, 0.23, 0.13, 0.08),
}
"""Of drafted rows, how many accept at least so many tokens."""


@dataclass(frozen=True)
class Made:
    """The chain of evidence as files: names to bytes, in the order in which they come to be."""

    files: dict[str, bytes]

    def write(self, directory: Path) -> dict[str, Path]:
        """Write all files and return their paths by name."""
        paths = {name: directory / f"{name}.json" for name in self.files}
        for name, path in paths.items():
            path.write_bytes(self.files[name])
        return paths


@cache
def made(
    *,
    effect: float = 0.048,
    drift: float = 0.0016,
    seed: int = 8,
    primary: int = 128,
    headline: int = 24,
) -> Made:
    """Both halves and all that they rest on.

    Args:
        effect: natural logarithm of ON over OFF of the primary cell.
        drift: half A1B1 minus half B2A2 of the same.
        seed: of every draw.
        primary: headline rounds of the primary cell.
        headline: headline rounds of every other cell.
    """
    dice = random.Random(seed)
    files = {"solo": samples.sample("solo"), "whole_worker": samples.sample("whole_worker")}
    files["budget"] = build(budget(primary, headline))
    files["qualification-1"] = build(qualification(1, dice))
    schedule = _schedule(primary, headline, dice)
    files["A1B1"] = build(_half("A1B1", effect + drift / 2, files, schedule, dice))
    files["qualification-2"] = build(qualification(2, dice))
    second = _half("B2A2", effect - drift / 2, files, schedule, dice)
    halves = [read_model(raw, "a half") for raw in (files["A1B1"], build(second))]
    summary = summarise(*halves, file_digest(files["A1B1"]))
    second["summary"] = summary.model_dump(mode="json")
    files["B2A2"] = build(second)
    return Made(files)


def qualification(number: int, dice: random.Random) -> Body:
    """A qualification of scope full in the HOLD of that number."""
    body = samples.qualification("full")
    body["gpus"] = _gpus(body["gpus"])
    body["hold"].update(_hold(number))
    body["limits"] = ["this pair, this driver and this source; no speed"]
    for gate in body["gates"]:
        for arm in gate["arms"]:
            arm["elapsed_ns"] = str(round(dice.uniform(0.2, 9.0) * S))
            arm["limit_ns"] = str(60 * S)
    return samples.with_journal(body)


def budget(primary: int = 128, headline: int = 24) -> Body:
    """A budget with the parts of a window."""
    body = samples.budget()
    body["gpus"] = _gpus(body["gpus"])
    rows = [
        ("staging", 8.4, 1, 50),
        ("qualification", 405.0, 1, 25),
        ("worker-start", 41.2, 2, 25),
        ("engine-start", 6.1, 2, 25),
        ("warm-up", 3.9, 2, 25),
        ("greedy", 2.2, 2, 25),
        *(
            (f"{phase}.b{batch}.t{temperature}", _elapsed(batch), count, 25)
            for phase, number in (("headline", headline), ("profiled", 2))
            for batch in BATCHES
            for temperature in TEMPERATURES
            for count in (
                2
                * (primary if phase == "headline" and (batch, temperature) == PRIMARY else number),
            )
        ),
        ("closing", 60.0, 1, 0),
    ]
    body["parts"] = [
        samples.part(name, round(worst * S), times, margin) for name, worst, times, margin in rows
    ]
    body["shapes"] = {k: v for k, v in settings(primary, headline).items() if k != "seed"}
    body["projected_ns"] = str(sum(int(part["projected_ns"]) for part in body["parts"]))
    body["bound_ns"] = str(5400 * S)
    body["limits"] = ["what the window will take, not how fast anything is"]
    return body


def _hold(number: int) -> Body:
    return {"id": f"hold-{number}", "fence": str(40 + number), "transport": "ssh"}


def _gpus(rows: list[Body]) -> list[Body]:
    return [{**row, "name": "NVIDIA H200", "driver": "580.159.04"} for row in rows]


def _elapsed(batch: int) -> float:
    return {1: 0.24, 8: 0.31, 32: 0.52}[batch]


@dataclass(frozen=True)
class _Planned:
    index: int
    phase: str
    batch: int
    temperature: str
    outputs: str
    common: float


def _schedule(primary: int, headline: int, dice: random.Random) -> list[_Planned]:
    """Rounds of all cells, interleaved; what both arms of every half have in common."""
    cells = [(batch, t) for batch in BATCHES for t in TEMPERATURES]
    due = [
        (slot / count, cell)
        for cell in cells
        for count in (primary if cell == PRIMARY else headline,)
        for slot in range(count)
    ]
    rows = [("headline", cell) for _, cell in sorted(due, key=lambda one: one[0])]
    rows += [("profiled", cell) for cell in cells for _ in range(2)]
    planned = []
    for number, (phase, (batch, temperature)) in enumerate(rows):
        index = number if phase == "headline" else number - len(due)
        outputs = sha256_hex(f"{phase} {index}".encode())
        planned.append(_Planned(index, phase, batch, temperature, outputs, dice.gauss(0, 0.012)))
    return planned


def settings(primary: int, headline: int) -> Body:
    """The numbers that were fixed beforehand, by the names of a schedule."""
    return {
        "batches": list(BATCHES),
        "temperatures": list(TEMPERATURES),
        "depth": 5,
        "new_tokens": NEW_TOKENS,
        "seed": 20261130,
        "warm_up": 2,
        "greedy": 2,
        "headline": headline,
        "primary": primary,
        "profiled": 2,
    }


def _half(
    half: str,
    effect: float,
    files: dict[str, bytes],
    schedule: list[_Planned],
    dice: random.Random,
) -> Body:
    second = half == "B2A2"
    number = 2 if second else 1
    body = samples.measurement("A1B1")
    names = (("B2", "ON"), ("A2", "OFF")) if second else (("A1", "OFF"), ("B1", "ON"))
    cells: dict[tuple[int, str], int] = {}
    for one in schedule:
        if one.phase == "headline":
            key = (one.batch, one.temperature)
            cells[key] = cells.get(key, 0) + 1
    arms = [
        _arm(name, switch, effect, schedule, dice, at) for at, (name, switch) in enumerate(names)
    ]
    body.update(
        half=half,
        made_at=f"2026-03-01T1{2 + number}:40:00Z",
        hold=samples.hold(**_hold(number)),
        settings=settings(cells[PRIMARY], min(cells.values())),
        gpus=_gpus(body["gpus"]),
        limits=list(LIMITS),
        arms=arms,
        evidence=_evidence(files, number),
        **_timeline(names, arms, dice),
    )
    if second:
        closed = {"hold_id": "hold-1", "fence": "41", "sha256": samples.digest("8")}
        body["first_half_closed"] = {**closed, "restore": "done"}
    return ended(body)


def ended(body: Body) -> Body:
    """The same with a journal in which its arms end as it says."""
    steps = [(f"arm-{arm['arm']}", arm["verdict"]) for arm in body["arms"]]
    written = samples.written_in_hold(*steps)
    body["journal"] = written["journal"]
    body["hold"]["journal_head"] = written["hold"]["journal_head"]
    return body


def _evidence(files: dict[str, bytes], number: int) -> list[Body]:
    roles = [
        ("identity_reference", "solo", "solo"),
        ("identity_reference", "whole_worker", "whole_worker"),
        ("budget", "budget", "budget"),
        ("qualification", "qualification", f"qualification-{number}"),
    ]
    if number == 2:
        roles.append(("first_half", "measurement", "A1B1"))
    return [
        {"role": role, "kind": kind, "sha256": file_digest(files[name])}
        for role, kind, name in roles
    ]


def _arm(
    name: str,
    switch: str,
    effect: float,
    schedule: list[_Planned],
    dice: random.Random,
    place: int,
) -> Body:
    walk = 0.0
    rounds = []
    for at, planned in enumerate(schedule):
        walk = 0.5 * walk + dice.gauss(0, 0.0055)
        common = planned.common + 0.003 * place * at / len(schedule)
        rounds.append(_round(planned, switch, effect, common + walk, at, dice))
    traces = {source: [] for source in SOURCES}
    for at, row in enumerate(rounds):
        row["memory_bytes"] = {source: str(_memory(source, at, dice)) for source in SOURCES}
        for source in SOURCES:
            traces[source].append(row["memory_bytes"][source])
    labels = {"baseline": 0, "headline": len(rounds) - 19, "profiled": -1, "final": -1}
    snapshots = [
        {
            "label": label,
            "failed_rounds": {"timeout": "0", "late": "1"},
            "counters": {"dropped_replies": "0", "worker_refused.stale_fence": "0"},
            "memory_bytes": {
                source: str(size if label == "baseline" else traces[source][at])
                for source, size in SOURCES.items()
            },
            "unsupported": {"torch.reserved": "a CPU has no caching allocator"},
        }
        for label, at in labels.items()
    ]
    return {
        "arm": name,
        "switch": switch,
        "verdict": "complete",
        "baseline_sha256": tree_digest(snapshots[0]),
        "snapshots": snapshots,
        "rounds": rounds,
    }


def _memory(source: str, at: int, dice: random.Random) -> int:
    size = SOURCES[source]
    if source == "rss.engine":
        return size + (5 * MIB if at > 30 else 0) + dice.randrange(3) * 4096
    if source == "torch.allocated":
        return size + (at % 17) * MIB // 4
    if source.startswith("rss"):
        return size + min(at, 40) * 90_000
    return size + (2 * MIB if at > 8 else 0)


def _round(
    planned: _Planned, switch: str, effect: float, noise: float, at: int, dice: random.Random
) -> Body:
    batch, temperature = planned.batch, planned.temperature
    rates = ACCEPTED[(switch, temperature)]
    steps = round(NEW_TOKENS / (1 + sum(rates)))
    drafted = steps * batch
    draft = {1: 0.92e6, 8: 1.06e6, 32: 1.71e6}[batch] * (
        1.06 if switch == "ON" and temperature != "0" else 1.0
    )
    drafts = [round(draft * math.exp(abs(dice.gauss(0, 0.05)))) for _ in range(steps)]
    if at % 9 == 4:
        drafts[at % steps] = round(draft * dice.uniform(1.4, 2.1))
    gain = effect * {"0": 0.0, "0.7": 1.0, "1.0": 1.6}[temperature] if switch == "ON" else 0.0
    gain *= {1: 1.15, 8: 1.0, 32: 0.7}[batch]
    # At a low temperature the outputs are equal in both arms, and so is the work.
    keyed = planned.outputs if temperature == "0" else sha256_hex(f"{switch}{at}".encode())
    profiled = planned.phase == "profiled"
    watts = 412_000 + (9_000 if switch == "ON" else 0) + dice.randrange(-6_000, 6_000)
    return {
        "index": planned.index,
        "phase": planned.phase,
        "batch": batch,
        "temperature": temperature,
        "tokens": batch * NEW_TOKENS,
        "elapsed_ns": str(round(_elapsed(batch) * S * math.exp(noise - gain))),
        "drafted": drafted,
        "accepted_by_position": [round(drafted * rate) for rate in rates],
        "outputs_sha256": keyed,
        "draft_ns": drafts,
        "target_ns": [round(2.4e6) for _ in drafts] if profiled else [],
        "verify_ns": [round(0.11e6) for _ in drafts] if profiled else [],
        "memory_bytes": {},
        "facts": {
            "gpu.0.sm_mhz": 1980 - 15 * (at % 23 == 7),
            "gpu.0.memory_mhz": 3201,
            "gpu.0.power_mw": watts,
            "gpu.0.temperature_c": 46 + min(at // 25, 6),
            "gpu.0.slowed_by": ["sw_power_cap"] if at % 71 == 40 else [],
            "gpu.1.sm_mhz": 1980,
            "gpu.1.memory_mhz": 3201,
            "gpu.1.power_mw": watts - 121_000,
            "gpu.1.temperature_c": 43 + min(at // 30, 5),
            "gpu.1.slowed_by": [],
        },
    }


def _timeline(names: tuple[tuple[str, str], ...], arms: list[Body], dice: random.Random) -> Body:
    spans: list[Body] = []

    def add(kind: str, name: str, begin: float, seconds: float) -> float:
        moments = (str(round(begin * S)), str(round((begin + seconds) * S)))
        spans.append({"kind": kind, "name": name, "begin_ns": moments[0], "end_ns": moments[1]})
        return begin + seconds

    now = add("step", "staging", 0.0, 7.9)
    began = now + 1.2
    now = began
    gates = (14.2, 31.0, 121.0, 96.0, 40.0, 55.0, 44.0, 6.0)
    for number, seconds in enumerate(gates):
        now = add("gate", f"gate-{number}", now, seconds)
    add("step", "gates", began, now - began)
    began = now + 2.0
    now = began
    for (name, _), arm in zip(names, arms, strict=True):
        start = now
        for phase, seconds in _phases(arm):
            now = add("phase", f"{name} {phase}", now, seconds)
        add("arm", name, start, now - start)
        now += 1.5
    add("step", "measure", began, now - began)
    now = add("step", "closing", now, 21.0)
    return {"timeline": spans, "heartbeats_ns": list(_heartbeats(now, dice))}


def _phases(arm: Body) -> Iterator[tuple[str, float]]:
    yield "worker-start", 41.0
    yield "engine-start", 6.0
    yield "warm-up", 7.0
    yield "greedy", 3.0
    for phase in ("headline", "profiled"):
        rounds = [row for row in arm["rounds"] if row["phase"] == phase]
        yield phase, 0.3 + sum(int(row["elapsed_ns"]) for row in rounds) / S * 1.4
    yield "teardown", 4.0


def _heartbeats(until: float, dice: random.Random) -> Iterator[str]:
    at = 2.0
    while at < until:
        yield str(round(at * S))
        at += 11.4 if 300 < at < 305 else dice.uniform(4.8, 5.3)


def changed(raw: bytes, change: Callable[[Body], None]) -> bytes:
    """Make a receipt of the members of another one, after a change."""
    body = json.loads(raw)
    del body["digest"]
    change(body)
    return build(ended(body))
