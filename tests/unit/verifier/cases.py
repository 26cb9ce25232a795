"""Proposals and target distributions for the tests: any, and those that are hard."""

from dataclasses import dataclass

import numpy as np

from pp4.kernels import dyadic24
from pp4.verifier.proposal import Proposal, validated
from pp4.verifier.reference import Target
from pp4.verifier.units import TOTAL, Mode

WORD = 1 << 64
MODES = (Mode.SAMPLED, Mode.GREEDY_T0, Mode.DELTA)


def fields(mode, rows, tokens, vocabulary, **more):
    """Arguments of ``validated``; rows of ids and their tickets, None where nothing is listed."""
    depth = len(tokens)
    ids = np.full((depth, 32), -1, np.int32)
    q = np.zeros((depth, 32), np.float32)
    for place, row in enumerate(rows or []):
        ids[place, : len(row)] = list(row)
        if mode is Mode.SAMPLED:
            q[place, : len(row)] = np.array(list(row.values()), np.float32) / dyadic24.TICKETS
    found = {
        "ids": ids,
        "q": q,
        "tokens": np.array(tokens, np.int32),
        "mode": mode,
        "depth": depth,
        "definition": dyadic24.DEFINITION,
        "vocabulary": vocabulary,
        "generation": 3,
        "slot": 1,
        "round": 5,
        "position": 11,
        "key": 2**63 + 17,
    }
    return {**found, **more}


def proposal(mode, rows, tokens, vocabulary, **more) -> Proposal:
    return validated(**fields(mode, rows, tokens, vocabulary, **more))


def any_tickets(random, count):
    """Tickets of so many candidates: spread, all on one, or in equal parts."""
    kind = random.integers(4)
    if kind == 0:
        tickets = np.zeros(count, np.int64)
        tickets[random.integers(count)] = dyadic24.TICKETS
    elif kind == 1:
        tickets = np.full(count, dyadic24.TICKETS // count)
    else:
        tickets = np.floor(random.dirichlet(np.full(count, 0.3)) * dyadic24.TICKETS).astype(int)
    tickets[0] += dyadic24.TICKETS - tickets.sum()
    return [int(one) for one in tickets]


def any_fields(random, vocabulary, depth, mode, **more):
    rows, tokens = [], []
    for _ in range(depth):
        count = int(random.integers(1, min(32, vocabulary) + 1))
        ids = [int(one) for one in random.permutation(vocabulary)[:count]]
        tickets = any_tickets(random, count)
        rows.append(dict(zip(ids, tickets, strict=True)))
        owners = [one for one, held in rows[-1].items() if held > 0]
        tokens.append(int(random.choice(owners)) if mode is Mode.SAMPLED else ids[0])
    if mode is not Mode.SAMPLED and random.integers(2):
        rows = None  # the original selector lists nobody
    counter = {
        "key": int(random.integers(1 << 64, dtype=np.uint64)),
        "position": int(random.integers((1 << 32) - depth)),
        "round": int(random.integers(1 << 32)),
    }
    return fields(mode, rows, tokens, vocabulary, **{**counter, **more})


def any_probabilities(random, vocabulary, dtype=np.float64):
    """A distribution: spread, peaked, with ties, with zeros, all on one token."""
    kind = random.integers(6)
    if kind == 0:
        p = np.zeros(vocabulary)
        p[random.integers(vocabulary)] = 1
    elif kind == 1:
        p = np.full(vocabulary, 1 / vocabulary)
    elif kind == 2:
        p = np.exp2(-random.integers(0, 3, vocabulary).astype(float))
    elif kind == 3:
        p = random.dirichlet(np.full(vocabulary, 0.05))
    else:
        p = random.dirichlet(np.ones(vocabulary))
        p[random.random(vocabulary) < 0.4] = 0
        p[random.integers(vocabulary)] += 1e-3
    p = p.astype(dtype)
    return (p / p.sum(dtype=dtype)).astype(dtype).clip(0, 1)


def any_weights(random, vocabulary):
    """Integer weights, small ones among them."""
    cuts = np.sort(random.integers(0, TOTAL + 1, vocabulary - 1))
    if random.integers(2):
        cuts = np.sort(random.choice([0, 1, 5, TOTAL - 1, TOTAL], vocabulary - 1))
    weights = np.diff(np.concatenate(([0], cuts, [TOTAL])))
    return Target.of([int(one) for one in random.permutation(weights)])


@dataclass
class Script:
    """Words that are given out instead of the streams' own."""

    words: dict

    def __call__(self, position, purpose):
        return self.words[position, purpose]
