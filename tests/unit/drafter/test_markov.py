"""The Markov cache: what it keeps follows from the traffic, and it never changes a bit."""

from itertools import islice

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pp4.drafter.markov import MarkovCache
from pp4.errors import BadInputError
from pp4.kernels import vectorised

VOCAB, RANK, COLUMNS, STRIDE = 12, 4, (21, 20), 128


def weights():
    state = torch.Generator().manual_seed(3)

    def made(rows):
        return torch.randn(rows, RANK, generator=state).bfloat16().view(torch.int16)

    return made(VOCAB), [made(columns) for columns in COLUMNS]


W1, W2 = weights()


def cache_of(capacity, shards=W2):
    """A cache of so many slots, by rows so wide that no more fit into one MiB."""
    stride = (1 << 20) // (2 * len(shards) * max(1, capacity))
    cache = MarkovCache(W1, shards, stride=stride, mib=min(1, capacity))
    assert cache.capacity == capacity
    return cache


def rows_of(token):
    return [vectorised.markov_bias(W1[token : token + 1], w2)[0] for w2 in W2]


class Traffic(RuleBasedStateMachine):
    """Against lists: the least recently used token first, and the queue in its order."""

    CAPACITY = 4

    def __init__(self):
        super().__init__()
        self.cache = cache_of(self.CAPACITY)
        self.kept, self.queue, self.hits, self.misses = [], [], 0, 0

    @rule(tokens=st.lists(st.integers(0, VOCAB - 1), max_size=8))
    def block(self, tokens):
        self.cache.starts()
        self.cache.used(tokens)
        for token in tokens:
            if token in self.kept:
                self.hits += 1
                self.kept.remove(token)
                self.kept.append(token)
                continue
            self.misses += 1
            if token not in self.queue:
                self.queue.append(token)
        self.queue = self.queue[-self.CAPACITY :]

    @rule(limit=st.integers(0, 6))
    def fill(self, limit):
        chosen = list(islice(self.queue, limit))
        assert self.cache.fill(limit) == len(chosen)
        self.queue = self.queue[len(chosen) :]
        self.kept = [*self.kept, *chosen][-self.CAPACITY :]

    @precondition(lambda self: self.kept)
    @rule(place=st.integers(0, 99))
    def refill_of_what_is_there_does_nothing(self, place):
        self.block([self.kept[place % len(self.kept)]])
        before = self.cache.slot_of.clone()
        self.cache.fill(0)
        assert torch.equal(self.cache.slot_of, before)

    @invariant()
    def as_the_lists_say(self):
        assert list(self.cache.slots) == self.kept
        assert list(self.cache.queued) == self.queue
        assert (self.cache.hits, self.cache.misses) == (self.hits, self.misses)

    @invariant()
    def the_device_says_the_same_and_every_row_is_its_tokens(self):
        named = {
            token: slot for token, slot in enumerate(self.cache.slot_of.tolist()) if slot != -1
        }
        assert named == dict(self.cache.slots)
        assert len(set(named.values())) == len(named)
        for token, slot in named.items():
            for shard, row in enumerate(rows_of(token)):
                found = self.cache.bias[shard, slot]
                assert torch.equal(found[: len(row)], row)
                assert not found[len(row) :].any()


Traffic.TestCase.settings = settings(max_examples=60, stateful_step_count=20)
TestTraffic = Traffic.TestCase


def test_both_ranks_keep_the_same_tokens_in_the_same_slots():
    ranks = [cache_of(3, [w2]) for w2 in W2]
    for number in range(40):
        for cache in ranks:
            cache.used([(number * 5 + row * 7) % VOCAB for row in range(3)])
            cache.fill(number % 3)
    assert ranks[0].slots
    assert list(ranks[0].slots.items()) == list(ranks[1].slots.items())
    assert torch.equal(ranks[0].slot_of, ranks[1].slot_of)


def test_no_name_leads_to_a_row_of_another_token_even_between_two_writes():
    """Every write is watched: whatever stopped after it would leave only right rows named."""
    cache = cache_of(2)
    cache.used([1, 2])
    cache.fill(2)
    seen = []
    inner, real = cache.slot_of, vectorised.markov_bias

    def watching(w1, w2):
        seen.append({token: slot for token, slot in enumerate(inner.tolist()) if slot != -1})
        return real(w1, w2)

    cache.used([3])
    vectorised.markov_bias = watching
    try:
        cache.fill(1)
    finally:
        vectorised.markov_bias = real
    # while the row of 3 is made and written, nobody is sent to its slot
    assert seen == [{2: 1}, {2: 1}]
    assert dict(cache.slots) == {2: 1, 3: 0}


def test_a_fill_that_fails_leaves_a_cache_that_is_right(monkeypatch):
    cache = cache_of(2)
    cache.used([1, 2])
    cache.fill(2)
    cache.used([3])
    with monkeypatch.context() as patch:
        patch.setattr(vectorised, "markov_bias", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cache.fill(1)
    assert dict(cache.slots) == {2: 1}
    assert cache.slot_of.tolist() == [-1, -1, 1, *[-1] * 9]
    assert cache.fill(5) == 1
    assert dict(cache.slots) == {2: 1, 3: 0}


def test_nothing_is_cached_in_no_memory_and_misses_are_counted_all_the_same():
    cache = cache_of(0)
    assert cache.bias.shape[:2] == (2, 1)
    cache.used([1, 1, 2])
    assert (cache.hits, cache.misses, cache.queued) == (0, 3, ())
    assert cache.fill(4) == 0
    assert cache.slot_of.tolist() == [-1] * VOCAB


@pytest.mark.parametrize(("mib", "slots"), [(1, 2048), (3, 6144), (64, 10_000)])
def test_mib_are_slots_of_all_shards_and_never_more_than_tokens(mib, slots):
    many = torch.zeros(10_000, RANK, dtype=torch.int16)
    # two shards of 128 columns of two bytes: 512 bytes a token
    cache = MarkovCache(many, W2, stride=STRIDE, mib=mib)
    assert cache.capacity == slots
    assert cache.bias.shape[1] == slots
    assert MarkovCache(many, W2[:1], stride=STRIDE, mib=mib).capacity == min(2 * slots, 10_000)


def test_it_is_not_filled_while_a_block_runs():
    cache = cache_of(2)
    cache.used([5])
    cache.starts()
    with pytest.raises(BadInputError, match="block in flight"):
        cache.fill(1)
    assert not cache.slots
    cache.used([5])
    assert cache.fill(1) == 1


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_a_token_that_does_not_exist_is_refused_and_nothing_counted(token):
    cache = cache_of(2)
    with pytest.raises(BadInputError, match="tokens below 12"):
        cache.used([3, token])
    assert (cache.hits, cache.misses, cache.queued) == (0, 0, ())


@pytest.mark.parametrize("act", [lambda: cache_of(1).fill(-1),
                                 lambda: MarkovCache(W1, W2, stride=STRIDE, mib=-1)])  # fmt: skip
def test_less_than_nothing_is_refused(act):
    with pytest.raises(BadInputError):
        act()
