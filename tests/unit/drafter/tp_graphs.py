"""Recorded graphs against the exact reference, as a program: ``python -m ... cpu`` or ``cuda``.

On a GPU the graphs are CUDA graphs of compiled kernels; on a CPU the same blocks run by interpreted
ones.  It prints what was drafted, and ends with an error where anything differs.
"""

import sys
from dataclasses import replace

import torch

from pp4.kernels.block import SampledBlock
from pp4.kernels.graph import capture
from tests.unit.drafter.drafting import (
    GREEDY,
    MAPPED,
    PADDING,
    WIDE,
    Row,
    draft,
    expected,
    solo,
)

BATCHES = (
    (Row(0, 7, 3), PADDING, Row(1, 2, 9, GREEDY)),
    (Row(0, 7, 3, GREEDY), Row(1, 2, 9, GREEDY), Row(2, 0, 90, GREEDY)),
    (Row(3, 20, 149), Row(1, 2, 9, GREEDY), Row(0, 7, 5)),
)
MEMBERS = ("ids", "q", "token", "error")


def captured_on_gpu(launch):
    """Launch once, so that everything is loaded, then capture."""
    launch()
    torch.cuda.synchronize()
    return capture(launch).replay


def launched_once(launch):
    """As on a GPU, without a capture."""
    launch()
    return launch


def check(config, n_out, device):
    """Draft every batch twice, the second time from cached rows; -> tokens."""
    repeated = captured_on_gpu if device == "cuda" else launched_once
    drafter = solo(
        config,
        [(3, n_out)],
        device=device,
        repeated=repeated,
        make_block=SampledBlock,
        cache_mib=1,
    )
    tokens = []
    for rounds, rows in enumerate(BATCHES * 2, 1):
        rows = [row and replace(row, round=rounds) for row in rows]
        captured, found, tail = draft(drafter, n_out, rows)
        wanted = expected(config, rows, n_out, device)
        greedy = captured.path == "original"
        for name in MEMBERS[2:] if greedy else MEMBERS:
            used = found[name][:, :n_out]
            if used.tobytes() != getattr(wanted, name).tobytes():
                raise SystemExit(f"{name} of {rows}: {used} is not {getattr(wanted, name)}")
        if tail.any() or (greedy and found["q"].any()):
            raise SystemExit(f"words of {rows}: {tail}")
        tokens.append(found["token"].tolist())
        if not greedy:
            drafter.markov.used(
                [
                    token
                    for row, one in zip(rows, found, strict=True)
                    if row
                    for token in (row.anchor, *one["token"][: n_out - 1].tolist())
                ]
            )
            drafter.markov.fill(8)
    if not drafter.markov.hits:
        raise SystemExit("nothing was drafted from a cached row")
    return tokens


if __name__ == "__main__":
    for config in (WIDE, MAPPED):
        sys.stdout.write(f"{check(config, 4, sys.argv[1])}\n")
