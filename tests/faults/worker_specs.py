"""Requests whose right replies are known: a lone client has asked for them, one draft at a time."""

import random
from dataclasses import dataclass

import numpy as np

from pp4.drafter.packing import REPLY_MEMBERS, row_type
from pp4.worker.client import Ask, Client

SPECS = 48
MOST_TOKENS = 40
SHARE_GREEDY = 0.4
PARTNER_KEY = 99


@dataclass(frozen=True)
class Step:
    """One draft of a request.

    Attributes:
        length: tokens with features by then.
        round: of the draft.
        anchor: likewise.
        temperature: likewise.
        right: every body that is right.
    """

    length: int
    round: int
    anchor: int
    temperature: float
    right: frozenset = frozenset()

    @property
    def position(self):
        return self.length + 1

    @property
    def mode(self):
        return "sampled" if self.temperature else "greedy"

    def ask(self, request):
        """The same for a client."""
        return Ask(request, self.round, self.anchor, self.temperature)


@dataclass(frozen=True)
class Spec:
    """A request from its opening to its last draft.

    Attributes:
        depth: positions of its drafts.
        key: of its draws.
        features: ``[tokens, width]`` bits of BF16.
        steps: its drafts.
    """

    depth: int
    key: int
    features: np.ndarray
    steps: tuple


def features_of(seed, tokens, width):
    """Features ``[tokens, width]``, bits of BF16."""
    values = np.random.default_rng(seed).standard_normal((tokens, width), np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def draw(seed, depth, offer):
    """A random request, its right replies not known yet."""
    chance = random.Random(f"spec {seed}")
    most = min(MOST_TOKENS, offer.context)
    lengths = sorted(chance.randint(0, most) for _ in range(chance.choice([1, 1, 2, 3])))
    rounds = sorted(chance.sample(range(1 << 32), len(lengths)))
    steps = tuple(
        Step(
            length,
            number,
            anchor=chance.randrange(offer.vocab),
            temperature=0.0 if chance.random() < SHARE_GREEDY else chance.choice([0.3, 1.0]),
        )
        for length, number in zip(lengths, rounds, strict=True)
    )
    features = features_of(seed, lengths[-1], offer.feature_width)
    return Spec(depth, chance.getrandbits(64), features, steps)


def body_of(proposal, block):
    """The body that a proposal came in: what follows the depth is zero."""
    whole = row_type(block)
    row = np.zeros((), np.dtype([(name, whole[name]) for name in REPLY_MEMBERS]))
    found = (proposal.ids, proposal.q, proposal.tokens, proposal.confidence)
    for name, values in zip(REPLY_MEMBERS, found, strict=True):
        row[name][: len(values)] = values
    return row.tobytes()


def replies(client, spec, partner=None):
    """Draft a request from its opening to its last step; -> the body of each step.

    Args:
        client: greeted with the request's depth; nobody else asks meanwhile.
        spec: what to ask for.
        partner: number of an open request that is drafted, sampled, in the same batch.
    """
    client.open(1, key=spec.key)
    bodies, known = [], 0
    for index, step in enumerate(spec.steps):
        if step.length > known:
            known = client.features(1, spec.features[known : step.length])
        asks = [step.ask(1)]
        if partner is not None:
            asks.append(Ask(partner, round=index, anchor=0, temperature=1.0))
        bodies.append(body_of(client.draft_many(asks)[0], client.offer.block))
    client.close(1)
    return bodies


def learn(client, spec):
    """Add to a request what is right.

    A batch without a sampled row is drafted by the original selector, which lists no candidates; so
    a greedy draft has one right reply among its like, and another one beside a sampled one.
    """
    found = [replies(client, spec)]
    if client.offer.sampled and any(step.mode == "greedy" for step in spec.steps):
        client.open(2, key=PARTNER_KEY)
        found.append(replies(client, spec, partner=2))
        client.close(2)
    steps = tuple(
        Step(step.length, step.round, step.anchor, step.temperature, frozenset(bodies))
        for step, *bodies in zip(spec.steps, *found, strict=True)
    )
    return Spec(spec.depth, spec.key, spec.features, steps)


def known_specs(path, seed, count=SPECS):
    """Requests of every depth that a worker offers, by depth, with their right replies.

    Args:
        path: of the worker's socket; nobody else may ask it meanwhile.
        seed: of the requests.
        count: for all depths together.
    """
    with Client.unix(path) as client:
        offer = client.status().offer
    table = {}
    for depth in offer.depths:
        with Client.unix(path) as client:
            client.hello(depth=depth)
            seeds = range(seed * count + depth, (seed + 1) * count + depth, len(offer.depths))
            table[depth] = [learn(client, draw(one, depth, client.offer)) for one in seeds]
    return table
