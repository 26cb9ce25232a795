"""Every figure with the numbers that are hardest to draw."""

from __future__ import annotations

from collections.abc import Iterator

from pp4.receipts.figures import Cell, Interval
from pp4.receipts.models import read_model
from pp4.receipts.runs import Span
from pp4.report.acceptance import Acceptance
from pp4.report.arms import ArmFigures, Clocks, Memory, arm_figures
from pp4.report.latency import Distribution
from pp4.report.plots import (
    acceptance,
    budget,
    clocks,
    drift,
    latency,
    memory,
    ratios,
    timeline,
    verdict,
)
from pp4.report.plots.sheet import Drawing
from pp4.report.verdict import Verdict
from tests.unit.report.measured import MIB, S, made


def gallery() -> Iterator[tuple[str, Drawing]]:
    """Yield what each figure is about, and the figure."""
    for makes in (_verdicts, _ratios, _drifts, _latencies, _acceptances, _memories, _clocks):
        yield from makes()
    yield from _timelines()
    body = read_model(made().files["budget"], "budget")
    over = body.model_copy(update={"bound_ns": str(300 * S)})
    yield "a budget that is over", budget.draw("over", over)


def _verdicts() -> Iterator[tuple[str, Drawing]]:
    rows = [
        (0.048, 0.042, 0.054, 0.001),
        (-0.048, -0.054, -0.042, -0.03),
        (0.012, 0.011, 0.013, -0.033),
        (0.0, -0.004, 0.004, 0.0),
        (0.7, 0.1, 1.4, -1.2),
        (-2.0, -2.4, -1.5, 0.9),
    ]
    for number, (effect, low, high, moved) in enumerate(rows):
        made_up = Verdict("FASTER", "", "", effect, low, high, moved, 0.01, "")
        drawing = verdict.draw(f"verdict-{number}", made_up)
        assert drawing is not None
        yield f"verdict {effect} {moved}", drawing


def cell(batch: int, effect: float | None, *, primary: bool = False, wide: float = 0) -> Cell:
    """A cell of which only the change is known."""
    return Cell(
        batch=batch,
        temperature="0.7",
        primary=primary,
        off=None,
        on=None,
        log_ratio=None if effect is None else f"{effect:.6f}",
        interval=Interval(low=f"{effect - wide:.6f}", high=f"{effect + wide:.6f}")
        if wide and effect is not None
        else None,
        drift=None,
        series=(),
    )


def _ratios() -> Iterator[tuple[str, Drawing]]:
    cells = {
        "one cell": [cell(8, 0.01, primary=True)],
        "far apart": [cell(1, -1.5, wide=0.2), cell(128, 1.5, wide=0.5), cell(8, None)],
        "all alike": [cell(1, 0.0), cell(8, 0.0, primary=True)],
    }
    for name, rows in cells.items():
        drawing = ratios.draw(name.replace(" ", "-"), rows, 0.01)
        assert drawing is not None
        yield f"ratios, {name}", drawing


def _drifts() -> Iterator[tuple[str, Drawing]]:
    rows = {
        "one pair": [drift.Paired("A1 OFF, B1 ON", (0.05,))],
        "far apart": [
            drift.Paired("A1 OFF, B1 ON", (0.9, -0.9, 0.4)),
            drift.Paired("B2 ON, A2 OFF", tuple(-0.5 + at / 300 for at in range(300))),
        ],
    }
    for name, holds in rows.items():
        drawing = drift.draw(f"drift-{len(holds)}", holds, 0.01)
        assert drawing is not None
        yield f"drift, {name}", drawing


def _latencies() -> Iterator[tuple[str, Drawing]]:
    rows = {
        "one sample": Distribution(1, {"OFF": (1_000_000,), "ON": ()}),
        "equal": Distribution(8, {"OFF": (900_000,) * 5, "ON": (900_000,) * 5}),
        "far apart": Distribution(32, {"OFF": (1_000, 5_000), "ON": (9 * S, 10 * S)}),
        "no time at all": Distribution(128, {"OFF": (0, 0), "ON": (0, 7)}),
        "slower than OFF": Distribution(64, {"OFF": (2_000_000,), "ON": (1_000_000,)}),
    }
    for name, one in rows.items():
        yield f"latency, {name}", latency.draw(f"latency-{one.batch}", one, latency.bounds([one]))


def _acceptances() -> Iterator[tuple[str, Drawing]]:
    rows: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
        "nothing accepted": ((0.0,) * 5, (0.0,) * 5),
        "everything accepted": ((1.0,) * 5, (1.0,) * 5),
        "only OFF": ((0.5, 0.2), ()),
        "one position": ((0.4,), (0.6,)),
        "ON worse": ((0.9, 0.8, 0.7, 0.6, 0.5), (0.5, 0.2, 0.1, 0.0, 0.0)),
    }
    for number, (name, (off, on)) in enumerate(rows.items(), start=10):
        one = Acceptance("0.7", {"OFF": 9, "ON": 9}, {"OFF": off, "ON": on})
        yield f"acceptance, {name}", acceptance.draw(f"acceptance-{number}", one)


def _arm() -> ArmFigures:
    return arm_figures(read_model(made().files["A1B1"], "half").arms[0])


def _memories() -> Iterator[tuple[str, Drawing]]:
    rows = {
        "no rounds": Memory("rss.engine", MIB, 16 * MIB, ()),
        "ten times the allowance": Memory("x" * 60, MIB, 16 * MIB, (0, 80 * MIB, 160 * MIB)),
        "given back": Memory("rss.engine", 10_000 * MIB, 100 * MIB, (0, -4_000 * MIB, None)),
        "very large": Memory("nvml.gpu.0", 143_000 * MIB, 1_430 * MIB, (0, 5)),
    }
    for number, (name, one) in enumerate(rows.items(), start=20):
        yield f"memory, {name}", memory.draw(f"memory-{number}", one.source, [(_arm(), one)])


def _clocks() -> Iterator[tuple[str, Drawing]]:
    arm = _arm()
    large = clocks.Quantity("large", "Large", "units", 1)
    odd = ArmFigures(
        **{
            **{name: getattr(arm, name) for name in ArmFigures.__slots__},
            "clocks": (Clocks(0, "large", (0, 9_999)), Clocks(1, "large", (None, None))),
        }
    )
    yield "clocks, far apart", clocks.draw("clocks-1", large, [odd])
    yield "clocks, four arms", clocks.draw("clocks-2", clocks.KNOWN[0], [arm] * 4)


def _timelines() -> Iterator[tuple[str, Drawing]]:
    half = read_model(made().files["A1B1"], "half")
    end = 5400 * S

    def span(kind: str, name: str, begin: float, stop: float) -> Span:
        return Span(
            kind=kind, name=name, begin_ns=str(round(begin * S)), end_ns=str(round(stop * S))
        )

    rows = {
        "nothing told": half.model_copy(update={"timeline": (), "heartbeats_ns": ()}),
        "all at once": half.model_copy(
            update={
                "timeline": (
                    *(span("step", f"step {at}", at, 5400) for at in range(6)),
                    span("arm", "A1", 5, 5390),
                    span("phase", "A1 a long name of a phase", 5, 4000),
                ),
                "heartbeats_ns": tuple(str(at * S) for at in range(0, 5400, 5)),
            }
        ),
    }
    for number, (name, one) in enumerate(rows.items(), start=40):
        yield f"timeline, {name}", timeline.draw(f"hold-{number}", one, end)
