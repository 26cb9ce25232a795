"""Every number of a run: shapes, seeds, repetitions, bounds.  All of them are in the receipt."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.qualify.arms import Fact
from pp4.wire.facts import Shape, Waits


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run of the gates uses.

    Attributes:
        shape: vocabulary, shard bounds, tile and inner dimension.
        late_shape: another specialisation, compiled too late on purpose.
        devices: devices of rank 0 and 1 as the HOLD names them.
        seed: of all inputs.
        batches: batch sizes of the peer-kernel gate.
        depths: positions of a block in the graph gate.
        replays: replays of a graph at each depth.
        pattern_epochs: epochs of the data-pattern check in each direction.
        rows: rows of the workspaces.
        patient: bounds of healthy runs.
        hasty: bounds of runs in which a wait has to run out.
        failed_block_s: how long a rank may be in a block with a fault, generously.
    """

    shape: Shape
    late_shape: Shape
    devices: tuple[str, str]
    seed: int
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    replays: int
    pattern_epochs: int
    rows: int
    patient: Waits
    hasty: Waits
    failed_block_s: int

    @property
    def failed_block_ns(self) -> int:
        """The same in nanoseconds."""
        return self.failed_block_s * 1_000_000_000

    def as_facts(self) -> dict[str, Fact]:
        """Return the settings as a receipt holds them; 64-bit numbers are text."""
        facts: dict[str, Fact] = {
            **self.shape.model_dump(),
            **{f"late_{name}": value for name, value in self.late_shape.model_dump().items()},
            "devices": self.devices,
            "seed": self.seed,
            "batches": self.batches,
            "depths": self.depths,
            "replays": self.replays,
            "pattern_epochs": self.pattern_epochs,
            "rows": self.rows,
            "failed_block_s": self.failed_block_s,
        }
        for prefix, waits in (("", self.patient), ("hasty_", self.hasty)):
            for name, value in waits.model_dump().items():
                facts[prefix + name] = "all that there are" if value is None else value
        return facts


REHEARSAL = Settings(
    # two tiles a shard, nothing divides anything: every border is inside a row
    shape=Shape(vocab=259, split=131, tile=128, rank_dim=32),
    late_shape=Shape(vocab=259, split=131, tile=64, rank_dim=32),
    devices=("interpreter-0", "interpreter-1"),
    seed=20260707,
    batches=(1, 3, 5),
    depths=(4, 5),
    replays=2,
    pattern_epochs=2000,
    rows=5,
    patient=Waits(),
    # long beside the kernels themselves, or nobody could tell a rank that waits from one that skips
    hasty=Waits(first_polls=4000, next_polls=4000),
    failed_block_s=15,
)
