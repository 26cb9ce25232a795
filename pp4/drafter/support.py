"""Whether the sampled path can draft with a checkpoint, and why not; without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pp4.drafter.config import DrafterConfig, split_of
from pp4.errors import BadInputError
from pp4.kernels.geometry import Geometry

DEPTHS: Final = (4, 5)
"""Positions that may be drafted; one depth is agreed on for each connection."""
HIDDEN_MULTIPLE: Final = 8
"""Rows of the LM head take a multiple of 16 bytes.  Libraries choose a GEMM by the alignment of its
operands, and a shard has to get the same one whether it starts a buffer or lies inside of one."""


def unsupported(config: DrafterConfig, n_out: int) -> tuple[str, ...]:
    """Say why the sampled path cannot draft a depth with a checkpoint.

    Args:
        config: of the checkpoint.
        n_out: positions to draft.

    Returns:
        A reason for each thing that stands in the way; none where it can.
    """
    return tuple(_reasons(config, n_out))


def _reasons(config: DrafterConfig, n_out: int) -> Iterator[str]:
    if n_out not in DEPTHS:
        yield f"depth {n_out}: the sampled path drafts {DEPTHS[0]} or {DEPTHS[1]} positions"
    if config.block < n_out:
        yield f"a block of {config.block} queries gives no {n_out} positions"
    if config.hidden % HIDDEN_MULTIPLE:
        yield f"hidden size {config.hidden} is no multiple of {HIDDEN_MULTIPLE}"
    try:
        Geometry(
            vocab=config.draft_vocab,
            split=split_of(config.draft_vocab),
            rank_dim=config.markov_rank,
            mapped=config.mapped,
        )
    except BadInputError as error:
        refusal = error.refusal
        yield f"{refusal.where}: the kernels take {refusal.expected}, not {refusal.found}"
