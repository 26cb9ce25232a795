"""The physical link on two GPUs of this machine: equal to the reference, and a killed peer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pp4.config import child_environment

pytestmark = pytest.mark.pair
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    directory = tmp_path_factory.mktemp("pair")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("pair_on_gpus.py")), str(directory)],
        env=child_environment({"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "0"}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert not [one for one in found if "failed" in one], done.stderr[-2000:]
    return found


def test_every_block_equals_the_reference_on_both_ranks(findings: list[dict[str, Any]]) -> None:
    blocks = [one for one in findings if "block" in one]
    assert sorted((one["rank"], one["block"]) for one in blocks) == [
        (rank, block) for rank in (0, 1) for block in range(4)
    ]
    assert all(one["equal"] and one["clean"] and one["stamps"] for one in blocks)


def test_the_survivor_of_a_killed_peer_ends_at_its_budget(findings: list[dict[str, Any]]) -> None:
    (one,) = [one for one in findings if "waited_ns" in one]
    assert one["rank"] == 0
    assert one["own"] == "PEER_TIMEOUT"
    assert one["errors"] == [3]
    # one budget for the whole block, and none for a launch that finds the words set
    assert one["budget_ns"] <= one["waited_ns"] < one["budget_ns"] * 1.1
    assert one["again_ns"] < one["budget_ns"] * 0.1
    assert one["context"] == 7.0
