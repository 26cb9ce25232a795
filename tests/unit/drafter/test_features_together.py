"""Features of several requests at once: the bits of each alone, and to each its own refusal."""

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.drafter.backbone import PROJECTED_ROWS, Backbone
from pp4.drafter.checkpoint.tensors import layer_name
from pp4.drafter.features import FeatureCache
from pp4.drafter.fused import FusedBackbone
from pp4.errors import BadInputError, Code, RefusedError
from tests.unit.drafter.checkpoints import SMALL, random_tensors
from tests.unit.drafter.running import features_of, weights_of

# heads that the kernels take, another number of layers, and GEMMs of more than one tile
OTHER = replace(SMALL, head_dim=16, kv_heads=4, layers=3)
WIDE = replace(SMALL, hidden=256, heads=8, head_dim=32, intermediate=512)
BACKBONES = {
    "small": (Backbone, SMALL, torch.bfloat16),
    "other": (Backbone, OTHER, torch.bfloat16),
    "wide": (Backbone, WIDE, torch.bfloat16),
    "fused": (FusedBackbone, OTHER, torch.bfloat16),
    "FP32": (Backbone, SMALL, torch.float32),
}
CONTEXT, SLOTS = 150, 4
ON = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def backbone_of(name, device="cpu"):
    kind, config, dtype = BACKBONES[name]
    return kind(weights_of(config, random_tensors(config), dtype=dtype, device=device), CONTEXT)


def cache_of(backbone, requests=range(SLOTS)):
    cache = FeatureCache(backbone, SLOTS, backbone.weights.embedding)
    for request in requests:
        cache.open(request)
    return cache


def some(backbone, count, seed):
    like = backbone.weights.embedding
    return features_of(backbone.config, count, seed, like.dtype).to(like.device)


def bits(tensor):
    return tensor.contiguous().view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)


def kept(cache):
    return bits(cache.keys).clone(), bits(cache.values).clone()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


# -- projections -------------------------------------------------------------------------------


def check_projection(backbone, lengths, order, cuts):
    """Tokens of some requests, shuffled and cut anyhow, against each request on its own."""
    apart = [some(backbone, length, seed) for seed, length in enumerate(lengths)]
    places = [torch.arange(length) + 7 * seed for seed, length in enumerate(lengths)]
    alone = [
        torch.stack(backbone.project(one, place.to(one.device)))
        for one, place in zip(apart, places, strict=True)
    ]
    device = backbone.weights.device
    features = torch.cat(apart)[order.to(device)]
    positions = torch.cat(places)[order].to(device)
    parts = zip(features.split(cuts), positions.split(cuts), strict=True)
    found = torch.cat([torch.stack(backbone.project(*part)) for part in parts], dim=3)
    expected = torch.cat(alone, dim=3)[:, :, :, order.to(device)]
    assert torch.equal(bits(found), bits(expected))
    assert expected.float().std() > 0.01


@pytest.mark.parametrize("name", BACKBONES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_tokens_projection_depends_on_the_token_alone(name, data):
    lengths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=5))
    total = sum(lengths)
    order = torch.tensor(data.draw(st.permutations(range(total))))
    cuts, left = [], total
    while left:
        cuts.append(data.draw(st.integers(1, left)))
        left -= cuts[-1]
    check_projection(backbone_of(name), lengths, order, cuts)


@pytest.mark.gpu
@pytest.mark.parametrize("name", BACKBONES)
def test_a_tokens_projection_depends_on_the_token_alone_on_a_gpu(name):
    backbone = backbone_of(name, "cuda")
    for seed, lengths in enumerate(([1], [64, 3], [1] * 8, [70, 1, 129], [5, 61, 62, 2])):
        total, state = sum(lengths), torch.Generator().manual_seed(seed)
        order = torch.randperm(total, generator=state)
        for cuts in ([total], [1] * total, [*[total // 2] * 2, total % 2]):
            check_projection(backbone, lengths, order, [one for one in cuts if one])


@pytest.mark.parametrize("name", ["small", "fused"])
def test_every_product_has_the_same_height(monkeypatch, name):
    """Whatever comes, so that no other kernel of a library ever multiplies it."""
    backbone, heights = backbone_of(name), []
    plain = torch.nn.functional.linear

    def linear(given, weight):
        heights.append(given.shape[0])
        return plain(given, weight)

    monkeypatch.setattr(torch.nn.functional, "linear", linear)
    for count in (1, 63, 64, 65, 150):
        backbone.project(some(backbone, count, 1), torch.arange(count))
    # one of features for each 64 tokens, and of each layer one of keys and one of values
    assert heights == [PROJECTED_ROWS] * (1 + 1 + 1 + 2 + 3) * (1 + 2 * backbone.config.layers)


# -- the cache ---------------------------------------------------------------------------------


def check_cache(backbone, calls):
    """Calls, each the tokens of some requests in some order, against each request on its own."""
    whole = [some(backbone, CONTEXT, request) for request in range(SLOTS)]
    cache, lengths = cache_of(backbone), [0] * SLOTS
    for call in calls:
        parts, expected = [], []
        for request, count in call:
            first = lengths[request]
            parts.append((request, whole[request][first : first + count]))
            lengths[request] = first + count
            expected.append(lengths[request])
        assert cache.append_together(parts) == expected
    alone = cache_of(backbone)
    for request, length in enumerate(lengths):
        assert cache.place(request) == (request, length)
        if length:
            assert alone.append(request, whole[request][:length]) == length
    assert same(kept(cache), kept(alone))


CALLS = st.lists(
    st.lists(
        st.tuples(st.integers(0, SLOTS - 1), st.integers(1, 9)),
        min_size=1,
        max_size=SLOTS,
        unique_by=lambda part: part[0],
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("name", BACKBONES)
@settings(max_examples=12, deadline=None)
@given(calls=CALLS)
def test_in_any_company_and_order_a_request_has_the_bits_of_its_own(name, calls):
    check_cache(backbone_of(name), calls)


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("name", ["wide", "fused"])
def test_long_requests_together_have_the_bits_of_their_own(name, device):
    check_cache(
        backbone_of(name, device),
        [
            [(2, 64), (0, 1), (1, 63)],
            [(0, 65), (3, 2), (2, 5), (1, 1)],
            [(1, 86), (3, 130)],
            [(3, 3), (2, 66)],
        ],
    )


def bad_parts(backbone):
    """Parts that are refused, each with what the refusal says it found."""
    good = some(backbone, 3, 9)
    infinite, undefined, overflow = good.clone(), good.clone(), good.clone()
    infinite[1, 3], undefined[2, 0] = float("inf"), float("nan")
    overflow[0] = 3e38
    return {
        "not open": ((77, good), "77"),
        "beyond the context": ((2, some(backbone, CONTEXT - 1, 9)), f"{CONTEXT + 1} tokens"),
        "infinite": ((2, infinite), "infinite or undefined ones"),
        "undefined": ((2, undefined), "infinite or undefined ones"),
        "overflow": ((2, overflow), "values that overflow on the way"),
        "another width": ((2, good[:, 1:]), "of torch.bfloat16"),
        "another type": ((2, good.double()), "of torch.float64"),
        "no token": ((2, good[:0]), "[0, "),
    }


@pytest.mark.parametrize("device", ON)
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("name", bad_parts(backbone_of("small")))
def test_one_bad_part_among_good_ones_is_refused_alone(name, place, device):
    backbone = backbone_of("small", device)
    bad, found = bad_parts(backbone)[name]
    cache, alone = cache_of(backbone), cache_of(backbone)
    good = [(request, some(backbone, 2 + request, 40 + request)) for request in (3, 0, 1)]
    for one in (cache, alone):
        one.append(2, some(backbone, 2, 5))
        one.append(3, some(backbone, 4, 6))
    parts = [*good]
    parts.insert(place, bad)
    answers = cache.append_together(parts)
    refusal = answers.pop(place)
    assert isinstance(refusal, RefusedError)
    assert refusal.refusal.code is (
        Code.CACHE_FULL if name == "beyond the context" else Code.BAD_INPUT
    )
    assert found in refusal.refusal.found
    assert answers == [alone.append(*part) for part in good] == [9, 2, 3]
    # alone it is refused with the same words, and neither leaves a trace
    with pytest.raises(RefusedError) as caught:
        alone.append(*bad)
    assert caught.value.refusal == refusal.refusal
    assert [cache.length(one) for one in range(SLOTS)] == [2, 3, 2, 9]
    assert same(kept(cache), kept(alone))
    # and the request that was refused goes on as if nothing had been
    more = some(backbone, 3, 8)
    assert cache.append(2, more) == alone.append(2, more) == 5
    assert same(kept(cache), kept(alone))


def test_bad_parts_alone_are_refused_each_with_its_own_words():
    backbone = backbone_of("small")
    cache = cache_of(backbone)
    good = some(backbone, 2, 1)
    undefined = good.clone()
    undefined[0, 0] = float("nan")
    parts = [(1, undefined), (78, good), (0, torch.full_like(good, 3e38))]
    before = kept(cache)
    found = [one.refusal.found for one in cache.append_together(parts)]
    assert found == ["infinite or undefined ones", "78", "values that overflow on the way"]
    assert same(kept(cache), before)
    assert cache.append_together([]) == []


@pytest.mark.parametrize("layer", range(SMALL.layers))
@pytest.mark.parametrize("which", ["self_attn.k_norm", "self_attn.v_proj"])
def test_keys_or_values_of_one_layer_that_overflow_are_enough(which, layer):
    tensors = random_tensors(SMALL)
    tensors[layer_name(layer, which)].fill_(3e38)
    backbone = Backbone(weights_of(SMALL, tensors), CONTEXT)
    cache = cache_of(backbone)
    before = kept(cache)
    told = cache.append_together([(request, some(backbone, 4, request)) for request in (0, 1)])
    assert {one.refusal.found for one in told} == {"values that overflow on the way"}
    assert same(kept(cache), before)


def test_a_request_that_is_there_twice_is_refused_with_all_of_them():
    backbone = backbone_of("small")
    cache = cache_of(backbone)
    before, one = kept(cache), some(backbone, 2, 1)
    with pytest.raises(BadInputError, match="each of them once"):
        cache.append_together([(0, one), (1, one), (0, one)])
    assert [cache.length(request) for request in range(SLOTS)] == [0] * SLOTS
    assert same(kept(cache), before)


@pytest.mark.gpu
def test_the_device_is_read_once_for_all():
    """Torch warns of every wait for the device; places go there, and one answer comes back."""
    backbone = backbone_of("wide", "cuda")
    cache = cache_of(backbone)
    parts = [(request, some(backbone, 3, request)) for request in range(SLOTS)]
    cache.append_together(parts)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            cache.append_together(parts)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # it warns of itself as well
    waits = [one for one in seen if "called a synchronizing" in str(one.message)]
    assert 1 <= len(waits) <= 2
