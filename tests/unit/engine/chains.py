"""Texts of a target that remembers one token: how improbable they are."""

from itertools import pairwise

import numpy as np
import torch

from pp4.engine.decoding import Engine
from pp4.engine.requests import Request
from tests.unit.verifier.chances import chance

BINS = 4
REQUESTS = 32
ANCHOR = 5
LIMIT = 30


def expected(target, temperature):
    """``[V, BINS]``, exactly: the remainder of what follows a token."""
    tokens = range(target.vocab)
    logits = np.stack([target.after([token]) for token in tokens]).astype(np.float64) / temperature
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return torch.from_numpy(p.reshape(target.vocab, -1, BINS).sum(axis=1))


def counted(target, outputs):
    """``[V, BINS]``: how often a remainder followed a token."""
    cells = torch.zeros(target.vocab, BINS, dtype=torch.int64)
    for one in outputs:
        for last, token in pairwise((ANCHOR, *one.tokens)):
            cells[last, token % BINS] += 1
    return cells


def chance_of(target, drafts, temperature):
    """-> the chance of what came out, modes of its rows, and counters."""
    engine = Engine(target, drafts)
    for key in range(REQUESTS):
        engine.submit(Request([ANCHOR], LIMIT, temperature, key=(7 << 40) + key))
    rows, outputs = [], []
    for step in engine.steps():
        rows += step.rows
        outputs += step.finished
    assert sum(len(one.tokens) for one in outputs) == REQUESTS * LIMIT
    found = chance(counted(target, outputs), expected(target, temperature))
    return found, {row.mode for row in rows}, engine.as_dict()
