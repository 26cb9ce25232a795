"""Rows, heads and blocks that the tests of this folder are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pp4.kernels import reference
from pp4.kernels.block import Request, SampledBlock
from pp4.kernels.expected import reference_outputs
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head
from pp4.kernels.link import SoloLink

INF = float("inf")
MOST_CACHED = 400
"""Tokens that all get a bias row; of more only those that rows begin with."""
POLLS = 60_000
"""Far more polls than a live peer needs, and few enough for a deadlock to end a test."""


def from_patterns(patterns):
    """16-bit BF16 patterns -> float32 that holds them, payloads of NaN kept."""
    return (np.asarray(patterns, np.uint32) << 16).view(np.float32)


def bf16(values):
    """Any numbers -> float32 that holds BF16."""
    return reference.round_bf16(np.asarray(values, np.float32))


def normal(seed, *shape, scale=1.0):
    """Rounded normal numbers of a seed."""
    return bf16(np.random.default_rng(seed).standard_normal(shape) * scale)


@dataclass(frozen=True)
class Case:
    """A block in plain data, so that it can be sent to a rank process."""

    geometry: Geometry
    w1: Any
    w2: Any
    requests: Sequence[Request]
    logits: Any
    cached: Sequence[int] = ()
    token_map: Sequence[int] | None = None
    start: int = 1
    control: str | None = None
    first_tokens: dict = field(default_factory=dict)
    """Per rank, tokens that replace the checked anchors on the device."""

    @property
    def batch(self):
        return len(self.requests)

    @property
    def n_out(self):
        return self.logits.shape[1]

    def head(self, shards=(0, 1)):
        return Head.build(
            self.geometry,
            self.w1,
            self.w2,
            cached=self.cached,
            shards=shards,
            token_map=self.token_map,
        )

    def block(self, link, kernel=None, rank=0):
        """A loaded and poisoned block for a link."""
        head = self.head((0, 1) if link.shards == 2 else (link.rank,))
        block = SampledBlock(head, link, batch=self.batch, n_out=self.n_out, kernel=kernel)
        block.load(self.requests, self.logits)
        block.poison()
        if rank in self.first_tokens:
            block.chain[:, 0] = self.first_tokens[rank]
        return block

    def expected(self):
        return reference_outputs(
            self.w1, self.w2, self.requests, self.logits, token_map=self.token_map
        )


def plain(rows, *, split=None, tile=64, requests=None, **more):
    """A case of one position whose bias is -0 everywhere, so every logit stays what it is.

    rows: [B][V] float32 that holds BF16.
    """
    rows = np.atleast_2d(np.asarray(rows, np.float32))
    batch, vocab = rows.shape
    geometry = Geometry(vocab=vocab, split=split or vocab // 2, tile=tile, rank_dim=1)
    return Case(
        geometry=geometry,
        w1=np.ones((vocab, 1), np.float32),
        w2=np.full((vocab, 1), -0.0, np.float32),
        requests=requests or [Request(key=row + 1, position=row, round=1) for row in range(batch)],
        logits=rows[:, None, :],
        **more,
    )


def random_case(seed, *, vocab=101, split=60, tile=32, rank_dim=8, batch=2, n_out=2, **more):
    """A case with Markov weights, chained positions and ties everywhere."""
    random = np.random.default_rng(seed)
    requests = [
        Request(
            key=int(random.integers(1 << 63)),
            position=int(random.integers(1 << 20)),
            round=int(random.integers(1 << 20)),
            anchor=int(random.integers(vocab)),
        )
        for _ in range(batch)
    ]
    return Case(
        geometry=Geometry(vocab=vocab, split=split, tile=tile, rank_dim=rank_dim),
        w1=normal(seed + 1, vocab, rank_dim),
        w2=normal(seed + 2, vocab, rank_dim, scale=0.4),
        requests=more.pop("requests", requests),
        logits=normal(seed + 3, batch, n_out, vocab, scale=2.5),
        **more,
    )


def solo(case, kernel=None):
    """Run a case in one launch per position; -> (block, outputs).

    A case of the product's without cached rows runs with them as well: tiles keep groups of such
    rows, and panels keep columns of the others.
    """
    block, outputs = _alone(case, kernel)
    # whom a fault reaches depends on who comes first
    if kernel is None and not case.cached and not (outputs.error.any() or case.first_tokens):
        vocab = len(case.w1)
        tokens = range(vocab) if vocab <= MOST_CACHED else {one.anchor for one in case.requests}
        other = _alone(replace(case, cached=tuple(tokens)))[1]
        assert differences(outputs, other) == []
    return block, outputs


def _alone(case, kernel=None):
    block = case.block(SoloLink(case.batch, start=case.start), kernel)
    block.run()
    return block, block.outputs()


def differences(left, right):
    """Names of the outputs that differ in a bit, stamps left out."""
    return [
        name
        for name in ("ids", "q", "token", "error")
        if getattr(left, name).tobytes() != getattr(right, name).tobytes()
    ]


def check(case, outputs):
    """Outputs are those of the reference, and every good row carries the stamp of its epoch."""
    expected = case.expected()
    assert differences(outputs, expected) == []
    assert outputs.stamp.tolist() == stamps(case, expected)
    return expected


def stamps(case, expected):
    """Stamps that rows of one good block carry: 0 on errors, the old epoch on padding."""
    result = []
    for row, request in enumerate(case.requests):
        epoch, line = case.start, []
        for error in expected.error[row].tolist():
            epoch += request.mode != 0 and not error
            line.append(0 if error else epoch)
        result.append(line)
    return result
