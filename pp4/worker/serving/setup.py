"""What a pair of ranks is started with, and what follows from a checkpoint's sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pp4.drafter.config import DrafterConfig, split_of
from pp4.drafter.support import unsupported
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels.dyadic24 import WIDTH
from pp4.kernels.layout import MOST_ROWS
from pp4.wire.facts import Shape, Waits

TILE = 2048
"""Columns of a tile, but for vocabularies of which a shard is smaller."""
FEATURE_BYTES = 16 << 20
"""Features that are handed to the ranks at once, at most."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What two ranks serve, and how.

    Attributes:
        checkpoint: the drafter's directory.
        target: directory of the target's checkpoint, for what the drafter's leaves to it.
        batches: captured batch sizes, rising.
        depths: positions that can be asked for.
        slots: requests that can be open at once.
        context: tokens that a request may have features of.
        cache_mib: size of the Markov cache on each rank.
        sampled: whether there is a sampled path.
        waits: bounds of the exchanges.
        nonce: makes epochs of one run unlike those of another.
        fence: likewise.
        block_s: seconds after which a batch, or anything else that a client asks for, has failed.
    """

    checkpoint: Path
    target: Path | None
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    slots: int
    context: int
    cache_mib: int
    sampled: bool
    waits: Waits
    nonce: str
    fence: int
    block_s: float = 15.0

    @property
    def largest(self) -> int:
        """Rows of the largest captured batch."""
        return self.batches[-1]


def shape_of(config: DrafterConfig) -> Shape:
    """The specialisation of the sampled kernel that a checkpoint needs."""
    split = split_of(config.draft_vocab)
    # a tile is never larger than a shard: the interpreter pays for every column of it
    tile = min(TILE, max(WIDTH, 1 << (split.bit_length() - 1)))
    return Shape(
        vocab=config.draft_vocab,
        split=split,
        tile=tile,
        rank_dim=config.markov_rank,
        mapped=config.mapped,
    )


def check(setup: Setup, config: DrafterConfig) -> None:
    """Refuse what these ranks could not serve, before anything is started.

    Raises:
        RefusedError: ``UNSUPPORTED_CHECKPOINT``.
        BadInputError: the context or the depths do not fit the checkpoint, or a batch the kernel.
    """
    if setup.sampled and setup.largest > MOST_ROWS:
        raise BadInputError.of(
            "batches", f"at most {MOST_ROWS} rows where drafts are sampled", str(setup.largest)
        )
    if setup.sampled:
        reasons = [why for depth in setup.depths for why in unsupported(config, depth)]
        if reasons:
            raise RefusedError(
                Refusal(
                    Code.UNSUPPORTED_CHECKPOINT,
                    str(setup.checkpoint),
                    f"a drafter whose depths {setup.depths} can be sampled",
                    "; ".join(dict.fromkeys(reasons)),
                    next="switch sampled drafting off for this drafter",
                )
            )
    if setup.depths[-1] > config.block:
        raise BadInputError.of(
            "depths", f"at most the {config.block} queries of a block", str(setup.depths)
        )
    most = config.max_positions - config.block
    if setup.context > most:
        raise BadInputError.of(
            "context", f"at most {most} tokens with this checkpoint", str(setup.context)
        )
