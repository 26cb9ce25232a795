"""What sample receipts are put together from: facts of a machine that does not exist."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pp4.receipts.admission import Subject
from pp4.receipts.bindings import ClosedHold
from pp4.receipts.digests import source_list_digest
from pp4.receipts.gate_checks import REQUIRED_GATES
from pp4.receipts.journal import head, next_line
from pp4.receipts.plan_checks import RECORDED, floors_of, plan_of
from pp4.receipts.private import open_leaf

Body = dict[str, Any]

FILES = (("cli.py", "a" * 64),)
SOURCE = {
    "digest": source_list_digest(FILES),
    "files": [{"path": path, "sha256": digest} for path, digest in FILES],
}
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MADE = "2026-03-01T12:00:00Z"
UUIDS = ("GPU-00000000-0000-0000-0000-00000000000a", "GPU-00000000-0000-0000-0000-00000000000b")
PLACES = ("00000000:1B:00.0", "00000000:43:00.0")
LIBRARIES = [
    {"name": "libcuda.so.1", "sha256": "c" * 64, "build_id": "deadbeef"},
    {"name": "libcudart.so.13", "sha256": "b" * 64, "build_id": None},
]
DEFINITION = {"id": "dyadic24-floor-first-v1", "sha256": "d" * 64}

SETTINGS: Body = {
    "batches": [1, 8],
    "temperatures": ["0", "0.7"],
    "depth": 5,
    "new_tokens": 5,
    "seed": 1,
    "warm_up": 1,
    "greedy": 1,
    "headline": 1,
    "primary": 2,
    "profiled": 1,
}
"""A schedule of nine rounds: few cells, and few rounds of each."""
SHAPES: Body = {name: value for name, value in SETTINGS.items() if name != "seed"}
CELLS = tuple((batch, value) for batch in (1, 8) for value in ("0", "0.7"))


_BINARIES = {
    "sampled_fused.pair": "12",
    "sampled_fused.pair.worker": "67",
    "bias_rows.worker": "45",
}
"""Letters of the digests of PTX and cubin; all solo kernels have 8 and 9."""


def digest(letter: str) -> str:
    return letter * 64


def common(kind: str) -> Body:
    return {
        "kind": kind,
        "made_at": MADE,
        "source": copy.deepcopy(SOURCE),
        "limits": ["nothing but an example"],
    }


def hold(**changes: Any) -> Body:
    return {
        "id": "hold-1",
        "fence": "7",
        "nonce": None,
        "boot_id": None,
        "transport": "local",
        "journal_head": digest("0"),
        "exclusion": "private",
        **changes,
    }


def gpus(count: int) -> Body:
    """Return ``gpus`` with the private leaves that they name."""
    rows = [
        {
            "rank": rank,
            "name": "H200",
            "uuid": f"gpu.{rank}.uuid",
            "pci_id": f"gpu.{rank}.pci_id",
            "driver": "570.1",
        }
        for rank in range(count)
    ]
    leaves = {}
    for member, values in (("uuid", UUIDS), ("pci_id", PLACES)):
        for rank in range(count):
            leaves[f"gpu.{rank}.{member}"] = open_leaf(values[rank], salt=f"{rank}" * 64)
    return {"gpus": rows, "private": leaves}


def kernels(count: int, *names: str) -> list[Body]:
    """Return the kernels of so many ranks: those that a pair runs, or the named ones."""
    return [
        {
            "name": name,
            "rank": rank,
            "target": "sm_90",
            "ptx_sha256": digest(_BINARIES.get(name, "89")[0]),
            "cubin_sha256": digest(_BINARIES.get(name, "89")[1]),
        }
        for name in names or ("sampled_fused.pair", "sampled_fused.solo")
        for rank in range(count)
    ]


def arm(name: str, expected: str, **changes: Any) -> Body:
    return {
        "arm": name,
        "expected": expected,
        "found": expected,
        "gating": True,
        "repetitions": 3,
        "elapsed_ns": "1000",
        "limit_ns": "2000",
        "facts": {"rows": 3, "seeds": [1, 2], "source": "reference"},
        **changes,
    }


def gates(kind: str, scope: str) -> list[Body]:
    table = plan_of(kind, scope)
    return [
        {
            "gate": number,
            "name": table[number].name,
            "arms": [
                arm("sound", "pass"),
                arm("mutant", "caught(OUTPUT_MISMATCH)"),
                *planned(kind, scope, number, table[number].arms),
            ],
        }
        for number in REQUIRED_GATES[scope]
    ]


def planned(kind: str, scope: str, number: int, table: Mapping[str, str]) -> Iterator[Body]:
    """Yield the arms of the plan, each as often as a good verdict of the kind asks for."""
    floors = {
        name.removeprefix(f"gate-{number}/"): least
        for name, least in floors_of(kind, scope).items()
        if name.startswith(f"gate-{number}/")
    }
    for name, expected in table.items():
        yield arm(name, expected, gating=name not in RECORDED, repetitions=floors.get(name, 3))


def journal(gate_rows: list[Body]) -> list[Body]:
    """Return the chained lines of a run through the gates."""
    lines: list[Body] = [next_line(None, "hold", "granted", detail={"ttl_s": 30})]
    for gate in gate_rows:
        for row in gate["arms"]:
            step = f"gate-{gate['gate']}/{row['arm']}"
            lines.append(next_line(lines[-1], step, "begin"))
            if not row["found"].startswith("not_run("):
                lines.append(next_line(lines[-1], step, "end", row["found"]))
    return lines


def with_journal(body: Body) -> Body:
    """Write the journal anew after the gates were changed."""
    body["journal"] = journal(body["gates"])
    body["hold"]["journal_head"] = head(body["journal"])
    return body


def gate_body(kind: str, scope: str, verdict: str, ranks: int) -> Body:
    made = {
        **common(kind),
        "scope": scope,
        "verdict": verdict,
        "hardware_executed": kind != "rehearsal",
        "definition": dict(DEFINITION),
        "hold": hold(boot_id=None if kind == "rehearsal" else "boot-1"),
        "settings": {"batches": [1, 3], "replays": 4, "seed": "42", "strict": True},
        "gates": gates(kind, scope),
        "kernels": kernels(2) if kind == "qualification" else kernels(1, "sampled_fused.solo"),
        "libraries": copy.deepcopy(LIBRARIES),
        **gpus(ranks),
    }
    if kind == "qualification":
        made["topology"] = {"links": 18, "peer_access": ["0 1 ok", "1 0 ok"]}
    return with_journal(made)


def subject(**changes: Any) -> Subject:
    """Return facts of a machine and a plan that all samples match."""
    facts: Body = {
        "source_digest": SOURCE["digest"],
        "gpu_models": frozenset({"H200"}),
        "gpu_uuids": frozenset(UUIDS),
        "drivers": frozenset({"570.1"}),
        "libraries": {
            "libcuda.so.1": "c" * 64,
            "libcudart.so.13": "b" * 64,
            "libtriton.so": "e" * 64,
        },
        "kernels": None,
        "checkpoint_sha256": digest("3"),
        "input_set_sha256": digest("4"),
        "model_sha256": digest("6"),
        "shapes": copy.deepcopy(SHAPES),
        "settings": copy.deepcopy(SETTINGS),
        "first_closed": ClosedHold("hold-1", 7, True),
        "bound_ns": 5_400_000_000_000,
        "now": NOW,
        **changes,
    }
    return Subject(**facts)
