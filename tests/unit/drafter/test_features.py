"""The cache of features: its limits, its slots, and what a refusal leaves."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.drafter.backbone import Backbone
from pp4.errors import BadInputError, Code, RefusedError
from tests.unit.drafter.checkpoints import SMALL, random_tensors
from tests.unit.drafter.running import drafter_of, features_of, weights_of


@pytest.fixture
def drafter():
    return drafter_of(SMALL, slots=2, context=8)


def kept(cache):
    return cache.keys.clone(), cache.values.clone()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_capacity_and_bytes_are_stated(drafter):
    cache = drafter.cache
    assert (cache.slots, cache.context) == (2, 8)
    # keys and values, layers, slots, heads, tokens, width, two bytes
    assert cache.bytes == 2 * 2 * 2 * 2 * 8 * 8 * 2


def test_a_request_too_many_is_refused_and_evicts_none(drafter):
    cache = drafter.cache
    for request in (7, 9):
        cache.open(request)
        cache.append(request, features_of(SMALL, 3, request))
    before = kept(cache)
    with pytest.raises(RefusedError) as caught:
        cache.open(11)
    assert caught.value.refusal.code is Code.CACHE_FULL
    assert caught.value.refusal.expected == "at most 2 requests at once"
    assert [cache.length(one) for one in (7, 9)] == [3, 3]
    assert same(kept(cache), before)
    cache.close(7)
    cache.open(11)
    assert cache.length(11) == 0


def test_a_request_ends_at_the_context_limit_and_keeps_what_it_has(drafter):
    cache = drafter.cache
    cache.open(1)
    assert cache.append(1, features_of(SMALL, 5)) == 5
    before = kept(cache)
    with pytest.raises(RefusedError) as caught:
        cache.append(1, features_of(SMALL, 4))
    assert caught.value.refusal.code is Code.CACHE_FULL
    assert (caught.value.refusal.expected, caught.value.refusal.found) == (
        "at most 8 tokens",
        "9 tokens",
    )
    assert cache.length(1) == 5
    assert same(kept(cache), before)
    assert cache.append(1, features_of(SMALL, 3)) == 8


def bad_features():
    good = features_of(SMALL, 2)
    infinite, undefined = good.clone(), good.clone()
    infinite[1, 3], undefined[0, 0] = float("inf"), float("nan")
    return {
        "no token": good[:0],
        "one vector": good[0],
        "another width": good[:, :-1],
        "another type": good.float(),
        "infinite": infinite,
        "undefined": undefined,
        # finite as they are, and not once they were projected
        "too large": torch.full_like(good, 3e38),
    }


@pytest.mark.parametrize("name", bad_features())
def test_features_that_do_not_fit_are_refused_and_leave_nothing(drafter, name):
    cache = drafter.cache
    cache.open(1)
    cache.append(1, features_of(SMALL, 2, 5))
    before = kept(cache)
    with pytest.raises(BadInputError, match="features"):
        cache.append(1, bad_features()[name])
    assert cache.length(1) == 2
    assert same(kept(cache), before)


@pytest.mark.parametrize("act", ["append", "close", "length", "rows"])
def test_a_request_that_is_not_open_is_refused(drafter, act):
    cache = drafter.cache
    calls = {
        "append": lambda: cache.append(4, features_of(SMALL, 1)),
        "close": lambda: cache.close(4),
        "length": lambda: cache.length(4),
        "rows": lambda: cache.rows([4], [0]),
    }
    with pytest.raises(BadInputError, match="an open one"):
        calls[act]()


def test_a_request_is_opened_once(drafter):
    drafter.cache.open(4)
    with pytest.raises(BadInputError, match="not open"):
        drafter.cache.open(4)


@pytest.mark.parametrize(("requests", "anchors"), [([4], [37]), ([4], [-1]), ([4], []), ([], [])])
def test_anchors_that_are_no_tokens_are_refused(drafter, requests, anchors):
    drafter.cache.open(4)
    with pytest.raises(BadInputError, match="anchor"):
        drafter.cache.rows(requests, anchors)


def test_the_anchor_of_an_inactive_row_is_not_looked_at(drafter):
    rows = drafter.cache.rows([None], [-5])
    assert [one.tolist() for one in (rows.slots, rows.lengths, rows.anchors)] == [[0], [0], [0]]


def test_a_slot_forgets_what_a_closed_request_left(drafter):
    cache = drafter.cache
    cache.open(1)
    cache.append(1, features_of(SMALL, 8))
    assert cache.keys.any()
    cache.close(1)
    assert not cache.keys.any()
    assert not cache.values.any()


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("oac"), st.integers(1, 5))))
def test_any_order_of_calls_keeps_each_request_its_own_features(calls):
    """Against a plain list of features per request."""
    drafter = drafter_of(SMALL, slots=2, context=8)
    cache, model = drafter.cache, {}
    for request, act, count in calls:
        features = features_of(SMALL, count, request + count)
        if act == "o" and request not in model and len(model) < 2:
            cache.open(request)
            model[request] = []
        elif act == "a" and request in model and sum(map(len, model[request])) + count <= 8:
            cache.append(request, features)
            model[request].append(features)
        elif act == "c" and request in model:
            cache.close(request)
            del model[request]
    for request, parts in model.items():
        assert cache.length(request) == sum(map(len, parts))
        alone = drafter_of(SMALL, slots=2, context=8)
        alone.cache.open(request)
        if parts:
            alone.cache.append(request, torch.cat(parts))
        found, expected = (one.hidden(one.cache.rows([request], [3])) for one in (drafter, alone))
        assert torch.equal(found, expected)


@pytest.mark.parametrize("context", [0, -1, 252])
def test_a_context_beyond_the_backbones_positions_is_refused(context):
    with pytest.raises(BadInputError, match="1 to 251 tokens"):
        Backbone(weights_of(SMALL, random_tensors(SMALL)), context)


def test_no_slots_are_refused():
    with pytest.raises(BadInputError, match="slots"):
        drafter_of(SMALL, slots=0)
