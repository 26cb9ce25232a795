"""Sends the frozen inputs to a worker and keeps digests of what comes back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import numpy as np

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, WrongError
from pp4.wire.frozen import FrozenFacts, FrozenOutput, InputSet
from pp4.wire.offers import Offer
from pp4.worker.frozen_inputs import (
    Asked,
    Script,
    Sizes,
    Turn,
    depths,
    input_set_sha256,
    scripts,
)
from pp4.worker.proposals import Proposal

_MEMBERS: Final = (("ids", "<i4"), ("q", "<f4"), ("tokens", "<i4"), ("confidence", "<f4"))


class Connection(Protocol):
    """One connection to a worker, of one depth.

    Attributes:
        offer: what the worker can do.
    """

    offer: Offer

    def open(self, request: int, key: int) -> None:
        """Open a request under a number of this connection's."""

    def append(self, request: int, first: int, features: bytes) -> None:
        """Append features, ``[tokens, feature width]`` BF16."""

    def draft(self, asked: Mapping[int, Asked]) -> list[Proposal]:
        """Ask for a draft of each request, all of them before the first answer; in their order."""

    def close(self, request: int) -> None:
        """Close a request."""


Connect = Callable[[int, Deadline], AbstractContextManager[Connection]]
"""Connects for a depth; no wait of the connection outlasts the deadline."""


def block_digest(rows: Sequence[Proposal]) -> str:
    """Return sha256 over ids, q, tokens and confidences of one row after another."""
    digest = hashlib.sha256()
    for row in rows:
        for name, kind in _MEMBERS:
            digest.update(np.ascontiguousarray(getattr(row, name), kind).tobytes())
    return digest.hexdigest()


class _Tally:
    """What is counted beside the digests: nothing but digests would let an idle worker pass."""

    def __init__(self) -> None:
        self.asked_sampled = self.asked_greedy = self.with_q = self.without_q = 0

    def add(self, turn: Turn, rows: Sequence[Proposal]) -> None:
        for asked, row in zip(turn.rows, rows, strict=True):
            self.asked_sampled += asked.sampled
            self.asked_greedy += not asked.sampled
            # what is drawn has q as whole parts of 2**24, whose sum is exact in double precision
            sums = np.sum(row.q, axis=-1, dtype=np.float64)
            self.with_q += row.mode == "sampled" and bool((sums == 1.0).all())
            self.without_q += row.mode == "greedy" and not np.any(row.q)


def run(connect: Connect, inputs: InputSet, deadline: Deadline) -> FrozenFacts:
    """Send a set and return what came out.

    Args:
        connect: how to reach the worker.
        inputs: which set.
        deadline: for everything together.

    Raises:
        Pp4Error: what the worker refuses, or what is wrong with its answers.
        TimedOutError: ``STEP_TIMEOUT``.
    """
    began, tally = time.monotonic_ns(), _Tally()
    outputs: list[FrozenOutput] = []
    offer: Offer | None = None
    sizes: Sizes | None = None
    for n_out in depths(inputs):
        with connect(n_out, deadline) as connection:
            offer = _same(offer, connection.offer)
            sizes = Sizes(offer.vocab, offer.feature_width, offer.block)
            for script in scripts(inputs, sizes):
                if script.n_out == n_out:
                    outputs.append(_perform(connection, script, sizes, tally, deadline))
    if offer is None or sizes is None:
        raise WrongError(Refusal(Code.INCOMPLETE, "frozen inputs", "at least one block", "none"))
    return FrozenFacts(
        definition=offer.definition,
        definition_sha256=offer.definition_sha256,
        device=offer.device,
        devices=offer.devices,
        sampled=offer.sampled,
        batches=offer.batches,
        query_block=offer.block,
        input_set_sha256=input_set_sha256(inputs, sizes),
        outputs=tuple(sorted(outputs, key=lambda one: one.key)),
        asked_sampled=tally.asked_sampled,
        asked_greedy=tally.asked_greedy,
        with_q=tally.with_q,
        without_q=tally.without_q,
        elapsed_ns=time.monotonic_ns() - began,
    )


def _same(before: Offer | None, offer: Offer) -> Offer:
    """Every connection of a run has to meet one worker."""
    if before is not None and before != offer:
        expected, found = "the offer of the first connection", "another one"
        raise WrongError(Refusal(Code.SUBJECT_MISMATCH, "worker", expected, found))
    return offer


def _perform(
    connection: Connection, script: Script, sizes: Sizes, tally: _Tally, deadline: Deadline
) -> FrozenOutput:
    """Run the blocks of one script on requests that are opened for it and closed after it."""
    digests = []
    for row, key in enumerate(script.keys):
        connection.open(row, key)
    for turn in script.turns:
        deadline.require(f"frozen inputs, batch {script.batch}, {script.n_out} positions")
        for piece in turn.pieces:
            connection.append(piece.row, piece.first, script.features(piece, sizes))
        rows = connection.draft(dict(enumerate(turn.rows)))
        tally.add(turn, rows)
        digests.append(block_digest(rows))
    for row in range(script.batch):
        connection.close(row)
    return FrozenOutput(
        batch=script.batch, depth=sizes.block, n_out=script.n_out, blocks=tuple(digests)
    )
