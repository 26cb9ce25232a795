"""Small valid receipts of every kind, made by the public builder.

``body(kind)`` returns a fresh body to change; ``sample(kind)`` its bytes.  Nothing in them is
random, so that a test which fails can be run again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from pp4.receipts.build import build
from pp4.receipts.digests import file_digest, sha256_hex, tree_digest
from pp4.receipts.hardware_checks import WORKER_BIAS, WORKER_PAIR, WORKER_SOLO
from pp4.receipts.journal import head, next_line
from tests.unit.receipts.parts import (
    CELLS,
    DEFINITION,
    FILES,
    LIBRARIES,
    MADE,
    NOW,
    PLACES,
    SETTINGS,
    SHAPES,
    SOURCE,
    UUIDS,
    Body,
    arm,
    common,
    digest,
    gate_body,
    gates,
    gpus,
    hold,
    journal,
    kernels,
    subject,
    with_journal,
)

__all__ = [
    "CELLS", "DEFINITION", "FILES", "KINDS", "LIBRARIES", "MADE", "NOW", "PLACES", "SETTINGS",
    "SHAPES", "SOURCE", "UUIDS", "Body", "arm", "body", "budget", "common", "digest", "ended",
    "gate_body", "gates", "gpus", "head", "hold", "incident", "journal", "kernels", "measured_arm",
    "measured_round", "measurement", "next_line", "output", "part", "preparation", "qualification",
    "refusal", "rehearsal", "sample", "snapshot", "solo", "subject", "whole_worker", "with_engines",
    "with_journal",
    "worker_arm", "written_in_hold",
]  # fmt: skip


def rehearsal() -> Body:
    return gate_body("rehearsal", "kernels", "rehearsed", 0)


def qualification(scope: str = "full") -> Body:
    made = gate_body("qualification", scope, "qualified", 2)
    if scope == "full":
        made["kernels"] += kernels(2, WORKER_PAIR, WORKER_BIAS)
        inputs = {"checkpoint_sha256": digest("3"), "input_set_sha256": digest("4")}
        made.update(inputs)
        worker_arm(made)["facts"].update(inputs)
        made["evidence"] = [
            {
                "role": "identity_reference",
                "kind": kind,
                "sha256": file_digest(sample(kind)),
            }
            for kind in ("solo", "whole_worker")
        ]
    return made


def worker_arm(made: Body) -> Body:
    """The arm of a qualification of scope full that runs a worker."""
    arms = (row for gate in made["gates"] if gate["gate"] == 6 for row in gate["arms"])
    return next(row for row in arms if row["arm"] == "worker-equals-archive")


def solo() -> Body:
    return gate_body("solo", "solo", "qualified", 1)


def output(batch: int, n_out: int, *blocks: str, depth: int = 5) -> Body:
    whole = sha256_hex("".join(blocks).encode())
    return {
        "batch": batch,
        "depth": depth,
        "n_out": n_out,
        "blocks": list(blocks),
        "sha256": whole,
    }


def whole_worker(mode: str = "solo") -> Body:
    ranks = 1 if mode == "solo" else 2
    return {
        **common("whole_worker"),
        "mode": mode,
        "verdict": "recorded",
        "hardware_executed": True,
        "hold": hold(),
        "definition": dict(DEFINITION),
        "query_block": 5,
        "n_out": 4,
        "checkpoint_sha256": digest("3"),
        "input_set_sha256": digest("4"),
        "outputs": [output(1, 4, digest("5")), output(1, 5, digest("6"), digest("7"))],
        "settings": {"rounds": 2},
        "kernels": kernels(ranks, WORKER_SOLO if mode == "solo" else WORKER_PAIR, WORKER_BIAS),
        "libraries": copy.deepcopy(LIBRARIES),
        "elapsed_ns": "18446744073709551615",
        **gpus(ranks),
    }


def written_in_hold(*steps: tuple[str, str], **changes: object) -> Body:
    """A HOLD and its journal: each step with what it found."""
    lines: list[Body] = []
    for step, found in steps or (("measure", "pass"),):
        lines.append(next_line(lines[-1] if lines else None, step, "begin"))
        lines.append(next_line(lines[-1], step, "end", found))
    return {"hold": {**hold(**changes), "journal_head": head(lines)}, "journal": lines}


def part(name: str, worst: int, times: int, margin: int = 10) -> Body:
    return {
        "name": name,
        "worst_ns": str(worst),
        "times": times,
        "margin_percent": margin,
        "samples": 5,
        "projected_ns": str(-(-worst * times * (100 + margin) // 100)),
    }


def budget() -> Body:
    parts = [
        part("warm-up", 101, 2),
        part("staging", 1000, 1),
        part("qualification", 1000, 1),
        part("engine-start", 1000, 2),
        part("worker-start", 1000, 2),
        part("greedy", 1000, 2),
        *(part(f"headline.b{b}.t{t}", 10, 4 if (b, t) == (8, "0.7") else 2, 0) for b, t in CELLS),
        *(part(f"profiled.b{b}.t{t}", 20, 2, 0) for b, t in CELLS),
        part("closing", 1000, 1, 0),
    ]
    return {
        **common("budget"),
        "verdict": "fits",
        "hardware_executed": True,
        "expires_at": "2026-04-01T00:00:00Z",
        "bound_ns": "5400000000000",
        **written_in_hold(),
        "parts": parts,
        "projected_ns": str(sum(int(one["projected_ns"]) for one in parts)),
        "model_sha256": digest("6"),
        "shapes": copy.deepcopy(SHAPES),
        "kernels": kernels(2),
        "libraries": copy.deepcopy(LIBRARIES),
        **gpus(2),
    }


def snapshot(label: str, failed: int = 0, memory: int = 10**9) -> Body:
    return {
        "label": label,
        "failed_rounds": {"timeout": str(failed)},
        "counters": {"dropped_replies": "0"},
        "memory_bytes": {"gpu.nvml": str(memory)},
        "unsupported": {},
    }


def measured_round(phase: str, index: int, batch: int, temperature: str) -> Body:
    parts = [100, 200] if phase == "profiled" else []
    return {
        "index": index,
        "phase": phase,
        "batch": batch,
        "temperature": temperature,
        "tokens": 5 * batch,
        "elapsed_ns": "123456",
        "drafted": 2 * batch,
        "accepted_by_position": [2 * batch, batch, batch, 1, 0],
        "outputs_sha256": digest("7"),
        "draft_ns": [600, 700],
        "target_ns": parts,
        "verify_ns": parts,
        "memory_bytes": {"gpu.nvml": str(10**9)},
        "facts": {"gpu.0.sm_mhz": 1980},
    }


def measured_arm(name: str, switch: str) -> Body:
    first = snapshot("baseline", failed=1)
    order = {"headline": [CELLS[3], *CELLS], "profiled": CELLS}
    return {
        "arm": name,
        "switch": switch,
        "verdict": "complete",
        "baseline_sha256": tree_digest(first),
        "snapshots": [first, *(snapshot(s, failed=1) for s in ("headline", "profiled", "final"))],
        "rounds": [
            measured_round(phase, index, *cell)
            for phase, cells in order.items()
            for index, cell in enumerate(cells)
        ],
    }


def before() -> list[Body]:
    """What a half rests on, but for the first one."""
    roles = {"budget": "budget", "qualification": "qualification"}
    return [
        {
            "role": roles.get(kind, "identity_reference"),
            "kind": kind,
            "sha256": file_digest(sample(kind)),
        }
        for kind in ("solo", "whole_worker", "budget", "qualification")
    ]


def measurement(half: str = "A1B1") -> Body:
    second = half == "B2A2"
    names = (("B2", "ON"), ("A2", "OFF")) if second else (("A1", "OFF"), ("B1", "ON"))
    steps = [(f"arm-{name}", "complete") for name, _ in names]
    changes = {"id": "hold-2", "fence": "8"} if second else {}
    closed = {"hold_id": "hold-1", "fence": "7", "sha256": digest("8"), "restore": "done"}
    first = {
        "role": "first_half",
        "kind": "measurement",
        "sha256": file_digest(sample("measurement")) if second else digest("0"),
    }
    return {
        **common("measurement"),
        "half": half,
        "complete": True,
        "controlled": "fixed-depth-5 common pp4 runtime",
        "hardware_executed": True,
        **written_in_hold(*steps, **changes),
        "timeline": [{"kind": "step", "name": "gates", "begin_ns": "10", "end_ns": "20"}],
        "heartbeats_ns": ["5", "15"],
        "first_half_closed": closed if second else None,
        "evidence": [*([first] if second else []), *before()],
        "endpoint": {"metric": "tokens_per_second", "temperature": "0.7", "batch": 8},
        "noise_threshold": "0.01",
        "model_sha256": digest("6"),
        "settings": copy.deepcopy(SETTINGS),
        "arms": [measured_arm(*name) for name in names],
        "summary": {
            "verdict": "UNDECIDED",
            "effect": "0.000000",
            "interval_low": "-0.020000",
            "interval_high": "0.020000",
            "drift": "0.000000",
        }
        if second
        else None,
        "kernels": kernels(2),
        "libraries": copy.deepcopy(LIBRARIES),
        **gpus(2),
    }


def ended(made: Body) -> Body:
    """The body of a measurement with a journal in which its arms end as it says."""
    steps = [(f"arm-{one['arm']}", one["verdict"]) for one in made["arms"]]
    same = {name: made["hold"][name] for name in ("id", "fence")}
    return {**made, **written_in_hold(*steps, **same)}


def with_engines(made: Body, loaded: list[Body]) -> Body:
    """A measurement whose journal says what the engine of each arm has loaded."""
    lines: list[Body] = []
    for one, facts in zip(made["arms"], loaded, strict=True):
        step = f"arm-{one['arm']}"
        for name, event, found, detail in (
            (step, "begin", None, {}),
            (f"{step}/engine", "end", "pass", facts),
            (step, "end", one["verdict"], {}),
        ):
            lines.append(next_line(lines[-1] if lines else None, name, event, found, detail))
    return {**made, "journal": lines, "hold": {**made["hold"], "journal_head": head(lines)}}


def preparation() -> Body:
    return {
        **common("preparation"),
        "made_at": None,
        "verdict": "prepared",
        "manifest_sha256": digest("1"),
        "reviewed_runner_sha256": digest("2"),
        "inputs": [{"path": "runner.py", "sha256": digest("2")}],
        "outputs": [
            {"path": "remote_dspark/__init__.py", "sha256": digest("3")},
            {"path": "runner.py", "sha256": digest("4")},
        ],
        "replacements": [
            {
                "what": "nested package",
                "path": "remote_dspark",
                "matches": 1,
                "before_sha256": digest("5"),
                "after_sha256": digest("6"),
            }
        ],
        "guards": [
            {"name": name, "path": "runner.py", "line_before": line, "line_after": line + 1}
            for name, line in (("mtp-none-draft", 10), ("mtp-none-verify", 20))
        ],
    }


def refusal() -> Body:
    return {
        **common("refusal"),
        "command": "pp4 measure A1B1 --hold window.toml",
        "exit": 3,
        "contacted": False,
        "refusal": {
            "code": "EVIDENCE_MISSING",
            "where": "[evidence]",
            "expected": "budget as budget",
            "found": "none",
            "source": "pp4",
            "host": "local",
            "left": "nothing",
            "next": "pp4 measure budget --hold FILE",
        },
    }


def incident() -> Body:
    lines = [next_line(None, "hold", "granted")]
    lines.append(next_line(lines[-1], "gate-2/sound", "begin"))
    return {
        **common("incident"),
        "hold_id": "hold-1",
        "fence": "7",
        "what": "the coordinator was killed",
        "state": "quarantined",
        "tombstone_sha256": None,
        "survivors": [{"pid": 4711, "start_token": "123", "state": "D"}],
        "unproven": ["death of process 4711"],
        "journal": lines,
        "journal_torn": True,
        "facts": {"attempts": 2},
    }


BODIES: dict[str, Callable[[], Body]] = {
    "solo": solo,
    "whole_worker": whole_worker,
    "qualification": qualification,
    "budget": budget,
    "measurement": measurement,
    "preparation": preparation,
    "rehearsal": rehearsal,
    "refusal": refusal,
    "incident": incident,
}
KINDS = tuple(BODIES)
_MADE: dict[str, bytes] = {}


def body(kind: str) -> Body:
    return BODIES[kind]()


def sample(kind: str) -> bytes:
    if kind not in _MADE:
        _MADE[kind] = build(body(kind))
    return _MADE[kind]
