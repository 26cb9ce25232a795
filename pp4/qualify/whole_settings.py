"""Every number of a whole-worker run.  All of them are in its receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pp4.qualify.arms import Fact
from pp4.wire.frozen import DrafterSizes, InputSet


@dataclass(frozen=True, slots=True)
class Whole:
    """Numbers of whole-worker runs.

    Attributes:
        inputs: which frozen set.
        checkpoint: a drafter on the receiving host; None for one that is made up.
        sizes: of the made-up one.
        batch: the one batch size that is captured: every batch is padded to it, so that no row
            depends on which rows came together.
        context: tokens that a request may have features of.
        cache_mib: of cached bias rows.
        start_s: how long a worker may take until it serves.
        run_s: how long the set may take.
    """

    inputs: InputSet
    sizes: DrafterSizes
    batch: int
    context: int
    cache_mib: int
    start_s: float
    run_s: float
    checkpoint: str | None = None

    @property
    def limits(self) -> tuple[str, ...]:
        """What a receipt cannot show with this drafter."""
        if self.checkpoint is not None:
            return ()
        return ("The worker's drafter was made up from a seed; no trained model took part.",)

    def as_facts(self) -> dict[str, Fact]:
        """Return them as a receipt holds them; a path of a host is named as such and not told."""
        sizes: dict[str, Fact] = {}
        if self.checkpoint is None:
            sizes = {f"drafter_{name}": value for name, value in self.sizes.model_dump().items()}
        return {
            "inputs": self.inputs,
            "drafter": "made up" if self.checkpoint is None else "of the host",
            **sizes,
            "captured_batch": self.batch,
            "context": self.context,
            "cache_mib": self.cache_mib,
            "start_limit_s": round(self.start_s),
            "run_limit_s": round(self.run_s),
        }


PHYSICAL: Final = Whole(
    inputs="full",
    # a backbone that takes seconds to write, under a head of the production family's sizes
    sizes=DrafterSizes(
        vocab=151936,
        hidden=1024,
        layers=2,
        intermediate=2048,
        heads=16,
        kv_heads=8,
        head_dim=128,
        markov_rank=256,
        block=5,
        taps=5,
        positions=1024,
        seed=20260707,
    ),
    batch=8,
    context=256,
    cache_mib=64,
    start_s=240.0,
    run_s=120.0,
)
REHEARSED: Final = Whole(
    inputs="small",
    # the vocabulary and the rank that the rehearsal's gates have compiled before
    sizes=DrafterSizes(
        vocab=259,
        hidden=32,
        layers=1,
        intermediate=32,
        heads=2,
        kv_heads=1,
        head_dim=16,
        markov_rank=32,
        block=5,
        taps=2,
        positions=64,
        seed=20260707,
    ),
    batch=3,
    context=32,
    cache_mib=1,
    start_s=60.0,
    run_s=60.0,
)
