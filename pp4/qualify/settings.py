"""Every number of a run: shapes, seeds, repetitions, bounds.  All of them are in the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pp4.qualify.arms import Fact
from pp4.wire.facts import PRODUCTION, Shape, Source, Waits

_PLAIN = (1 << 53) - 1
"""The largest integer that every reader of JSON keeps; larger ones are text."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run of the gates uses.

    Attributes:
        shape: vocabulary, shard bounds, tile and inner dimension.
        late_shape: another specialisation, compiled too late on purpose.
        more_shapes: further vocabularies of the stream of rows.
        text_shape: the shape whose mutants are compiled for their text alone.
        devices: devices of rank 0 and 1 as the HOLD names them.
        seed: of all inputs.
        batches: batch sizes of the peer-kernel gate.
        depths: positions of a block in the graph gate.
        replays: replays of a graph at each depth, each beside an eager run.
        streamed_replays: further replays at each depth, with the original graph between them.
        streamed_rows: rows of all streams of gate 2 together, at least.
        streamed_n_out: positions of their blocks.
        skew_ns: each rank of a stream is held back by a random time below this.
        reference: which reference the blocks of the gates are held against.
        unit: in what a wait is bounded here, and in what the kernels report it.
        pattern_epochs: epochs of the data-pattern check in each direction.
        rows: rows of the workspaces.
        patient: bounds of healthy runs.
        ordinary: bounds that the product ships with.
        hasty: bounds of runs in which a wait has to run out.
        solo: whether each rank holds both shards, on one device.
        failed_block_s: how long a rank may be in a block with a fault, generously.
    """

    shape: Shape
    late_shape: Shape
    more_shapes: tuple[Shape, ...]
    text_shape: Shape
    devices: tuple[str, ...]
    seed: int
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    replays: int
    streamed_replays: int
    streamed_rows: int
    streamed_n_out: int
    skew_ns: int
    reference: Source
    unit: Literal["ns", "polls"]
    pattern_epochs: int
    rows: int
    patient: Waits
    ordinary: Waits
    hasty: Waits
    failed_block_s: int
    solo: bool = False

    @property
    def failed_block_ns(self) -> int:
        """The same in nanoseconds."""
        return self.failed_block_s * 1_000_000_000

    def budget(self, waits: Waits, *, first: bool) -> int:
        """The bound of the first or of a later exchange, in :attr:`unit`."""
        if self.unit == "ns":
            return waits.first_ns if first else waits.next_ns
        return waits.first_polls if first else waits.next_polls

    def as_facts(self) -> dict[str, Fact]:
        """Return the settings as a receipt holds them; 64-bit numbers are text."""
        facts: dict[str, Fact] = {
            **self.shape.model_dump(),
            **{f"late_{name}": value for name, value in self.late_shape.model_dump().items()},
            **{
                f"more_{name}": tuple(getattr(shape, name) for shape in self.more_shapes)
                for name in Shape.model_fields
            },
            **{f"text_{name}": value for name, value in self.text_shape.model_dump().items()},
            "devices": self.devices,
            "seed": self.seed,
            "batches": self.batches,
            "depths": self.depths,
            "replays": self.replays,
            "streamed_replays": self.streamed_replays,
            "streamed_rows": self.streamed_rows,
            "streamed_n_out": self.streamed_n_out,
            "skew_ns": self.skew_ns,
            "reference": self.reference,
            "unit": self.unit,
            "pattern_epochs": self.pattern_epochs,
            "rows": self.rows,
            "failed_block_s": self.failed_block_s,
            "solo": self.solo,
        }
        bounds = (("", self.patient), ("ordinary_", self.ordinary), ("hasty_", self.hasty))
        for prefix, waits in bounds:
            for name, value in waits.model_dump().items():
                whole = str(value) if isinstance(value, int) and value > _PLAIN else value
                facts[prefix + name] = "all that there are" if value is None else whole
        return facts


_SMALL = Shape(vocab=259, split=131, tile=128, rank_dim=32)
"""Two tiles a shard, nothing divides anything: every border is inside a row."""

REHEARSAL = Settings(
    shape=_SMALL,
    late_shape=_SMALL.model_copy(update={"tile": 64}),
    more_shapes=(),
    # what a mutant lacks does not depend on the shape, and the smallest compiles fastest
    text_shape=Shape(vocab=64, split=32, tile=32, rank_dim=1),
    devices=("interpreter-0", "interpreter-1"),
    seed=20260707,
    batches=(1, 3, 5),
    depths=(4, 5),
    replays=1,
    streamed_replays=1,
    streamed_rows=24,
    streamed_n_out=1,
    skew_ns=1_000_000,
    reference="reference",
    unit="polls",
    pattern_epochs=2000,
    rows=5,
    patient=Waits(),
    ordinary=Waits(),
    # long beside the kernels themselves, or nobody could tell a rank that waits from one that skips
    hasty=Waits(first_polls=4000, next_polls=4000),
    failed_block_s=15,
)

_GPU_POLLS = 1 << 30
"""A backstop where the GPU's own timer bounds the waits: minutes, should the timer stand still."""


def _waits(first_ns: int, next_ns: int) -> Waits:
    return Waits(first_ns=first_ns, next_ns=next_ns, first_polls=_GPU_POLLS, next_polls=_GPU_POLLS)


def physical(devices: tuple[str, ...]) -> Settings:
    """Numbers of a run on GPUs, which are named by UUID: two for a pair, one for solo."""
    return Settings(
        shape=PRODUCTION,
        late_shape=PRODUCTION.model_copy(update={"tile": 1024}),
        more_shapes=(
            Shape(vocab=151936, split=75968, tile=2048, rank_dim=256),
            # odd throughout: nothing divides a shard, and the shards are not equal
            Shape(vocab=129281, split=64641, tile=2048, rank_dim=256),
        ),
        # the order of stores and releases does not depend on the shape, and this one compiles fast
        text_shape=_SMALL,
        devices=devices,
        seed=20260707,
        batches=(1, 3, 8, 32),
        depths=(4, 5),
        replays=20,
        streamed_replays=500,
        streamed_rows=100_000,
        streamed_n_out=5,
        skew_ns=200_000,
        reference="vectorised",
        unit="ns",
        pattern_epochs=100_000,
        rows=32,
        # the host launches one position after the other here, and may be late
        patient=_waits(10_000_000_000, 2_000_000_000),
        ordinary=_waits(2_000_000_000, 20_000_000),
        hasty=_waits(2_000_000_000, 20_000_000),
        failed_block_s=15,
        solo=len(devices) == 1,
    )
