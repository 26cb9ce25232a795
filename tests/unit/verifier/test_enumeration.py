"""What is emitted is exactly the target's distribution: by enumeration, in rational numbers.

Every path of the exact verifier is taken, with real words: the words of one decision fall into
intervals with one outcome each, and an interval's length is its probability.  A step that emits
fewer than n + 1 tokens is continued with the target's own distributions; the joint distribution of
n + 1 tokens then has to be the product of the target's, with ``==``.
"""

import contextlib
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from pp4.kernels.purposes import ACCEPT
from pp4.verifier import reference
from pp4.verifier.reference import Target, verify
from pp4.verifier.units import TICKET_WEIGHT, TOTAL, Mode
from tests.unit.verifier.cases import WORD, any_tickets, any_weights, proposal

BELOW = Fraction(1, 2**200)
"""Nearer to a bound than any two bounds are to each other."""


class Toy:
    """Distributions of a target and of a drafter after each prefix of tokens.

    The outcome of a decision is monotone in its word, so an interval whose two ends have the same
    outcome has it throughout.
    """

    def __init__(self, seed, vocabulary, depth):
        random = np.random.default_rng(seed)
        self.vocabulary, self.depth = vocabulary, depth
        prefixes = [
            prefix
            for length in range(depth + 1)
            for prefix in itertools.product(range(vocabulary), repeat=length)
        ]
        self.target = {prefix: any_weights(random, vocabulary) for prefix in prefixes}
        self.draft = {}
        for prefix in prefixes:
            count = int(random.integers(1, vocabulary + 1))
            ids = [int(one) for one in random.permutation(vocabulary)[:count]]
            self.draft[prefix] = dict(zip(ids, any_tickets(random, count), strict=True))

    def drafts(self, mode):
        """Token sequences that can be proposed, and how probable each is."""
        for tokens in itertools.product(range(self.vocabulary), repeat=self.depth):
            chance = Fraction(1)
            for place, token in enumerate(tokens):
                row = self.draft[tokens[:place]]
                if mode is Mode.SAMPLED:
                    chance *= Fraction(row.get(token, 0), 1 << 24)
                else:
                    chance *= token == next(iter(row))
            if chance:
                yield tokens, chance

    def bounds(self, tokens, place, purpose, mode):
        """Where the outcome of a word can change: at least all bounds that are right."""
        target = self.target[tokens[:place]]
        row = self.draft[tokens[:place]] if place < self.depth else {}
        if purpose is ACCEPT:
            token = tokens[place]
            q = row[token] * TICKET_WEIGHT if mode is Mode.SAMPLED else TOTAL
            found = {Fraction(target.weights[token] * WORD, q)}
        else:
            q = {one: held * TICKET_WEIGHT for one, held in row.items()}
            if mode is Mode.DELTA and row:
                q = {tokens[place]: TOTAL}
            left = [max(w - q.get(one, 0), 0) for one, w in enumerate(target.weights)]
            found = {Fraction(run * WORD, sum(left)) for run in itertools.accumulate(left)}
        return sorted({Fraction(0), Fraction(WORD), *(one for one in found if one < WORD)})


class Unfolded(Exception):
    """A word was asked for that the path has not chosen yet."""


class Uneven(Exception):
    """The outcome changes where no right verifier's does."""


def outcomes(toy, mode, tokens):
    """Emitted tokens of a proposal, each with its probability."""
    rows = [toy.draft[tokens[:place]] for place in range(toy.depth)]
    one = proposal(mode, rows, list(tokens), toy.vocabulary)
    targets = [toy.target[tokens[:place]] for place in range(toy.depth + 1)]

    def run(chosen):
        asked = iter(chosen)

        def words(position, purpose):
            for word in asked:
                return word
            raise Unfolded(position - one.position, purpose)

        return verify(one, targets, words).tokens

    def unfold(chosen, chance):
        try:
            return {run(chosen): chance}
        except Unfolded as stopped:
            place, purpose = stopped.args
        found = defaultdict(Fraction)
        bounds = toy.bounds(tokens, place, purpose, mode)
        for start, end in itertools.pairwise(bounds):
            part = chance * (end - start) / WORD
            ends = [unfold([*chosen, word], part) for word in (start, end - BELOW)]
            if ends[0] != ends[1]:
                raise Uneven(place, purpose)
            for emitted, value in ends[0].items():
                found[emitted] += value
        return found

    return unfold([], Fraction(1))


def joint(toy, mode):
    """The joint distribution of n + 1 tokens."""
    found = defaultdict(Fraction)
    for tokens, chance in toy.drafts(mode):
        for emitted, part in outcomes(toy, mode, tokens).items():
            missing = toy.depth + 1 - len(emitted)
            for rest in itertools.product(range(toy.vocabulary), repeat=missing):
                whole = emitted + rest
                follows = [product(toy, whole, place) for place in range(len(emitted), len(whole))]
                found[whole] += chance * part * math.prod(follows)
    return found


def product(toy, tokens, place):
    return Fraction(toy.target[tokens[:place]].weights[tokens[place]], TOTAL)


def exact(toy):
    return {
        tokens: math.prod(product(toy, tokens, place) for place in range(toy.depth + 1))
        for tokens in itertools.product(range(toy.vocabulary), repeat=toy.depth + 1)
    }


CASES = [(3, 1, 60), (6, 1, 20), (2, 2, 30), (3, 2, 30), (4, 2, 6)]


@pytest.mark.parametrize("mode", [Mode.SAMPLED, Mode.DELTA])
@pytest.mark.parametrize(("vocabulary", "depth", "count"), CASES)
def test_the_output_is_the_target(mode, vocabulary, depth, count):
    for seed in range(count):
        toy = Toy(seed, vocabulary, depth)
        found = joint(toy, mode)
        wanted = exact(toy)
        assert {tokens: found.get(tokens, 0) for tokens in wanted} == wanted


def test_greedy_output_is_the_argmax():
    for seed in range(20):
        toy = Toy(seed, 3, 2)
        wanted = ()
        for _ in range(3):
            wanted += (toy.target[wanted].first,)
        for tokens, _ in toy.drafts(Mode.GREEDY_T0):
            (emitted,) = outcomes(toy, Mode.GREEDY_T0, tokens)
            assert emitted == wanted[: len(emitted)]


WRONG = {
    "the target in place of the residual": ("residual", lambda target, one, i: target.weights),
    "the residual without what the drafter lists": (
        "residual",
        lambda target, one, i: [
            0 if token in one.ids[i] else w for token, w in enumerate(target.weights)
        ],
    ),
    "always accepted": ("accepts", lambda u, weight, tickets: True),
    "accepted by the target alone": (
        "accepts",
        lambda u, weight, tickets: u * TOTAL < weight * WORD,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_enumeration_sees_what_is_wrong(name, monkeypatch):
    part, wrong = WRONG[name]
    toy = Toy(1, 4, 1)
    toy.target = {
        prefix: Target.of([TOTAL // 2, TOTAL // 8, TOTAL // 8, TOTAL // 4]) for prefix in toy.target
    }
    toy.draft = {prefix: {0: 1 << 22, 1: 1 << 23, 2: 1 << 22} for prefix in toy.draft}
    assert joint(toy, Mode.SAMPLED) == exact(toy)
    monkeypatch.setattr(reference, part, wrong)
    # where its bounds are others, the two ends of an interval tell
    with contextlib.suppress(Uneven):
        assert joint(toy, Mode.SAMPLED) != exact(toy)
