"""Replays a held-out file: producer, verifier, figures and digests, a few blocks at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Final

import torch

from pp4.engine.replay import figures, interval, truncation
from pp4.engine.replay.arms import ARMS, Arm, compare_exactly, proposals, targets, verdicts
from pp4.engine.replay.figures import Measured
from pp4.engine.replay.heldout import TEMPERATURES, Heldout
from pp4.engine.replay.producing import Drafts, MakeBlock, Producer
from pp4.errors import BadInputError
from pp4.kernels.block import SampledBlock

FORMAT: Final = "pp4-replay-v1"
EXACT_BLOCKS: Final = 4
"""How many blocks are verified in Python integers as well."""


class _Tally:
    """Collects what the blocks give, in their order."""

    def __init__(self) -> None:
        self.drafts = hashlib.sha256()
        self.verdicts = {arm: hashlib.sha256() for arm in ARMS}
        self.measured: dict[Arm, list[Measured]] = {arm: [] for arm in ARMS}
        self.losses: list[truncation.Loss] = []

    def take_drafts(self, drafts: Drafts) -> None:
        """Digest row by row, so that a digest does not depend on how blocks were batched."""
        for row in zip(drafts.ids, drafts.q, drafts.tokens, drafts.greedy, strict=True):
            for array in row:
                self.drafts.update(array.astype(array.dtype.newbyteorder("<")).tobytes())


def replay(
    held: Heldout,
    *,
    part: int,
    rows: int,
    device: torch.device,
    make_block: MakeBlock = SampledBlock,
) -> dict[str, Any]:
    """Replay the first blocks of a held-out file.

    Args:
        held: the file.
        part: how many of its blocks, from the first.
        rows: blocks in a launch; no figure depends on it.
        device: of producer and verifier.
        make_block: makes the sampled block; a test passes the exact reference.

    Returns:
        What docs/replay.md describes, ready for JSON: the ``part``, ``digests``, ``arms``,
        ``truncation`` and ``differences``.

    Raises:
        BadInputError: no blocks, or more than there are; a head that the kernels do not take.
        WrongError: ``OUTPUT_MISMATCH``: the producer gives other tokens than the frozen ones, or
            the two verifiers disagree; ``BAD_PROPOSAL``.
    """
    if not 1 <= part <= held.sizes.blocks:
        raise BadInputError.of("part", f"1 to {held.sizes.blocks} blocks", str(part))
    rows = min(rows, part)
    producer = Producer(held, rows=rows, device=device, make_block=make_block)
    tally = _Tally()
    for first in range(0, part, rows):
        drafts = producer.run(first, min(first + rows, part))
        tally.take_drafts(drafts)
        tally.losses += truncation.losses(held, drafts, first)
        for arm in ARMS:
            _verify(held, arm, drafts, first, device, tally)
    return _report(held, part, tally)


def _verify(
    held: Heldout, arm: Arm, drafts: Drafts, first: int, device: torch.device, tally: _Tally
) -> None:
    last = first + len(drafts.tokens)
    proposed = proposals(held, arm, drafts, first)
    target = targets(held, arm, first, last)
    found = verdicts(arm, proposed, target, device)
    compare_exactly(arm, proposed, target, found, max(0, EXACT_BLOCKS - first))
    for row, proposal in enumerate(proposed):
        accepted = int(found.accepted[row])
        for array in (found.accepted[row : row + 1], found.tokens[row]):
            tally.verdicts[arm].update(array.astype("<i4").tobytes())
        tally.measured[arm].append(figures.measured(proposal, target[row].numpy(), accepted))


def _report(held: Heldout, part: int, tally: _Tally) -> dict[str, Any]:
    documents = [int(one) for one in held.document[:part]]
    whole = hashlib.sha256()
    for arm in ARMS:
        whole.update(tally.verdicts[arm].digest())
    return {
        "format": FORMAT,
        "heldout": {
            "definition": held.header.definition,
            "sizes": held.sizes.model_dump(),
            "sources": held.header.sources.model_dump(),
        },
        "part": {
            "blocks": part,
            "of": held.sizes.blocks,
            "documents": len(set(documents)),
            "exact": min(part, EXACT_BLOCKS),
        },
        "digests": {
            "file": held.sha256,
            "drafts": tally.drafts.hexdigest(),
            "verdicts": whole.hexdigest(),
        },
        "arms": [
            {
                **asdict(arm),
                "verdicts": tally.verdicts[arm].hexdigest(),
                **figures.summary(tally.measured[arm]),
            }
            for arm in ARMS
        ],
        "truncation": truncation.summary(tally.losses),
        "differences": [_difference(temperature, documents, tally) for temperature in TEMPERATURES],
        "interval": {
            "level": interval.LEVEL,
            "resamples": interval.RESAMPLES,
            "seed": interval.SEED,
            "least_documents": interval.LEAST_DOCUMENTS,
        },
    }


def _difference(temperature: str, documents: Sequence[int], tally: _Tally) -> dict[str, Any]:
    """ON minus OFF of the accepted length at a temperature."""
    on, off = (
        next(
            tally.measured[arm]
            for arm in ARMS
            if (arm.temperature, arm.switch) == (temperature, switch)
        )
        for switch in ("on", "off")
    )
    pairs = list(zip(on, off, strict=True))
    decided = [Fraction(one.accepted - other.accepted) for one, other in pairs]
    expected = [one.expected_length - other.expected_length for one, other in pairs]
    return {
        "temperature": temperature,
        "decided": interval.mean_difference(documents, decided),
        "expected": interval.mean_difference(documents, expected),
    }
