"""Graphs that were recorded once draft what the exact reference says, with any inputs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.drafter import tp_graphs
from tests.unit.drafter.checkpoints import SMALL

ROOT = Path(__file__).parents[3]


def test_recorded_launches_draft_other_inputs(monkeypatch):
    small = [
        [row and tp_graphs.replace(row, anchor=row.anchor % SMALL.vocab) for row in rows]
        for rows in tp_graphs.BATCHES
    ]
    monkeypatch.setattr(tp_graphs, "BATCHES", tuple(small))
    assert len(tp_graphs.check(SMALL, 4, "cpu")) == 6


@pytest.mark.gpu
def test_captured_graphs_draft_other_inputs():
    """In a process of its own: this one interprets its kernels."""
    environment = {
        name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.drafter.tp_graphs", "cuda"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
