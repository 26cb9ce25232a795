"""The steps of a backbone: near float64, and the bits of a row depend on the row alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels.backbone import launches
from pp4.kernels.backbone.launches import Places, Splits
from pp4.kernels.backbone.sizes import CHUNK, HEAD_DIMS, SPLITS, TILE, Sizes
from tests.kernels.drivers import said

SIZES = Sizes(
    hidden=24, heads=4, kv_heads=2, head_dim=16, intermediate=40, block=5, eps=1e-6
)  # fmt: skip
CONTEXT = 2 * CHUNK + 5
SLOTS = 4
HALF_ULP = 2.0**-8
"""What rounding to the eight bits of BF16 may change of a value, relative to it."""
SLACK = 1 + 2.0**-6
"""FP32 sums, and products of roundings, beside it."""


def normal(*shape, seed=0, scale=1.0):
    state = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=state) * scale).to(torch.bfloat16)


def normed(values, weight, eps):
    """In float64, nothing rounded."""
    wide = values.double()
    return wide / torch.sqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.double()


def near(found, expected, roundings):
    """Whether each value is within some roundings of what it should be."""
    bound = expected.abs() * (roundings * HALF_ULP * SLACK)
    assert ((found.double() - expected).abs() <= bound).all()


def bits(tensor):
    return tensor.contiguous().view(torch.int16)


# -- rows -----------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 999), st.sampled_from([8, 24, 64, 136]), st.sampled_from([2.0**-20, 1, 900]))
def test_a_sum_and_its_norm(seed, width, scale):
    sizes = replace(SIZES, hidden=width)
    hidden, more = (normal(3, width, seed=seed + i, scale=scale) for i in range(2))
    hidden[1] = more[1] = 0
    weight = normal(width, seed=seed + 2)
    expected = hidden + more
    taken = launches.added(sizes, hidden, more, weight)
    assert torch.equal(bits(hidden), bits(expected))
    near(taken, normed(expected, weight, sizes.eps), 2)
    assert not taken[1].any()


def test_a_norm_rounds_before_the_weight_and_after_it():
    """Small integers, whose squares sum to the same in any order: every bit is known."""
    sizes = replace(SIZES, hidden=64, eps=0.0)
    state = torch.Generator().manual_seed(4)
    values = torch.randint(-9, 10, (1, 64), generator=state).to(torch.bfloat16)
    weight = normal(64, seed=5)
    mean = values.float().square().sum() / 64
    scaled = values.float() * (1 / mean.sqrt())
    expected = weight * scaled.to(torch.bfloat16)
    assert not torch.equal(expected, (weight.float() * scaled).to(torch.bfloat16))
    taken = launches.added(sizes, values, torch.zeros_like(values), weight)
    assert torch.equal(bits(taken), bits(expected))


@settings(max_examples=10)
@given(st.integers(0, 99), st.integers(1, 7))
def test_queries_begin_with_their_anchor(seed, block):
    sizes = replace(SIZES, block=block)
    embedding, weight = normal(19, 24, seed=seed), normal(24, seed=seed + 1)
    anchors = torch.tensor([seed % 19, 18, 0])
    hidden, taken = launches.embedded(sizes, anchors, 7, embedding, weight)
    tokens = torch.full((3, block), 7)
    tokens[:, 0] = anchors
    assert torch.equal(bits(hidden), bits(embedding[tokens.flatten()]))
    near(taken, normed(hidden, weight, sizes.eps), 2)


@settings(max_examples=10)
@given(st.integers(0, 99), st.sampled_from([8, 40, 1032]))
def test_the_gate(seed, width):
    gate_up = normal(2, 2 * width, seed=seed, scale=4)
    found = launches.gated(replace(SIZES, intermediate=width), gate_up)
    gate, up = gate_up.double().split(width, dim=1)
    near(found, gate / (1 + torch.exp(-gate)) * up, 2)


def test_a_gate_that_is_shut_stays_finite():
    gate_up = torch.tensor([[-3e38, -200, 200, 3e38] * 2, [1.0] * 8]).to(torch.bfloat16).t()
    gate_up = gate_up.flatten()[None].contiguous()
    gate_up = torch.cat([gate_up[:, ::2], gate_up[:, 1::2]], dim=1)
    found = launches.gated(replace(SIZES, intermediate=8), gate_up)
    expected = torch.nn.functional.silu(gate_up[:, :8]) * gate_up[:, 8:]
    assert torch.equal(found, expected)


# -- heads ----------------------------------------------------------------------------------


def tables(sizes, positions):
    angles = torch.arange(positions)[:, None] / 50.0 ** torch.linspace(0, 1, sizes.head_dim // 2)
    both = torch.cat([angles, angles], dim=1)
    return both.cos().to(torch.bfloat16), both.sin().to(torch.bfloat16)


@settings(max_examples=12)
@given(
    st.integers(0, 99),
    st.sampled_from([(1, 1), (4, 2), (9, 3), (8, 1)]),
    st.sampled_from(HEAD_DIMS[:3]),
)
def test_heads_are_normed_and_turned_in_place(seed, heads, head_dim):
    sizes = replace(SIZES, heads=heads[0], kv_heads=heads[1], head_dim=head_dim, block=3)
    qkv = normal(6, sizes.qkv, seed=seed)
    norms = normal(head_dim, seed=1), normal(head_dim, seed=2)
    lengths = torch.tensor([seed, 0])
    cos, sin = tables(sizes, seed + 3)
    before = qkv.clone().view(6, -1, head_dim)
    launches.turned(sizes, qkv, Places(lengths, lengths), norms, (cos, sin))
    found, turning = qkv.view(6, -1, head_dim), sum(heads)
    assert torch.equal(bits(found[:, turning:]), bits(before[:, turning:]))
    positions = (lengths[:, None] + torch.arange(3)).flatten()
    cos, sin = (one[positions][:, None].double() for one in (cos, sin))
    half = head_dim // 2
    for part, weight in ((slice(0, heads[0]), norms[0]), (slice(heads[0], turning), norms[1])):
        normal_ = normed(before[:, part], weight, sizes.eps)
        swapped = torch.cat([-normal_[..., half:], normal_[..., :half]], dim=-1)
        # two roundings of the norm and one of a product on each side, then that of their sum
        size = (normal_ * cos).abs() + (swapped * sin).abs()
        expected = normal_ * cos + swapped * sin
        assert ((found[:, part].double() - expected).abs() <= 4 * HALF_ULP * SLACK * size).all()


# -- attention ------------------------------------------------------------------------------


def cached(sizes, seed=0, slots=SLOTS, context=CONTEXT):
    shape = (slots, sizes.kv_heads, context, sizes.head_dim)
    return normal(*shape, seed=seed), normal(*shape, seed=seed + 1)


def attended(sizes, qkv, places, kept):
    batch = len(places.lengths)
    splits = Splits.of(sizes, batch, torch.device("cpu"))
    for one in splits:
        one.fill_(float("nan"))
    return launches.attended(sizes, qkv, places, kept, splits)


def exactly_attended(sizes, qkv, places, kept):
    """In float64, a head at a time; -> what it should be, and the weighted sizes of the values."""
    block, heads, shared = sizes.block, sizes.heads, sizes.kv_heads
    parts = qkv.double().view(-1, block, heads + 2 * shared, sizes.head_dim)
    expected, size = [], []
    for row, (slot, length) in enumerate(zip(*(one.tolist() for one in places), strict=True)):
        for head in range(heads):
            group = head // (heads // shared)
            own = parts[row, :, heads + group], parts[row, :, heads + shared + group]
            keys, values = (
                torch.cat([one[slot, group, :length].double(), mine])
                for one, mine in zip(kept, own, strict=True)
            )
            weights = torch.softmax(parts[row, :, head] @ keys.T / sizes.head_dim**0.5, dim=-1)
            expected.append(weights @ values)
            size.append(weights @ values.abs())
    order = (len(places.lengths), heads, block, sizes.head_dim)
    return (
        torch.stack(one).view(order).transpose(1, 2).reshape(-1, heads * sizes.head_dim)
        for one in (expected, size)
    )


@settings(max_examples=12)
@given(
    st.integers(0, 99),
    st.sampled_from([(1, 1), (4, 2), (6, 2), (5, 1)]),
    st.sampled_from([16, 32]),
    st.integers(1, 8),
    st.lists(st.integers(0, CONTEXT), min_size=1, max_size=2),
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_attention_is_near_float64(seed, heads, head_dim, block, lengths, scale):
    sizes = replace(SIZES, heads=heads[0], kv_heads=heads[1], head_dim=head_dim, block=block)
    qkv = normal(len(lengths) * block, sizes.qkv, seed=seed, scale=scale)
    places = Places(torch.tensor([3, 1][: len(lengths)]), torch.tensor(lengths))
    kept = cached(sizes, seed + 5)
    found = attended(sizes, qkv, places, kept)
    expected, size = exactly_attended(sizes, qkv, places, kept)
    # the weights are rounded, then their sum; FP32 scores of this size are off by a little more
    bound = 2 * HALF_ULP * SLACK * size + 2.0**-20 * scale * size
    assert ((found.double() - expected).abs() <= bound).all()


ROUND = CHUNK * (SPLITS - 1)


@pytest.mark.parametrize("length", [ROUND, ROUND + 1, 2 * ROUND + CHUNK + 1])
def test_a_split_may_have_several_chunks(length):
    sizes = replace(SIZES, heads=1, kv_heads=1)
    qkv, places = normal(5, sizes.qkv), Places(torch.tensor([0]), torch.tensor([length]))
    kept = cached(sizes, slots=1, context=length)
    # one place that everybody looks at, and the last of all
    kept[0][0, 0, -1] = qkv[0, :16] * 8
    found = attended(sizes, qkv, places, kept)
    expected, size = exactly_attended(sizes, qkv, places, kept)
    assert ((found.double() - expected).abs() <= 2 * HALF_ULP * SLACK * size).all()


def poisoned(kept, places):
    """The same cache, but not a number wherever none of these rows has a place."""
    changed = []
    for one in kept:
        other = torch.full_like(one, float("nan"))
        for slot, length in zip(*(one.tolist() for one in places), strict=True):
            other[slot, :, :length] = one[slot, :, :length]
        changed.append(other)
    return tuple(changed)


@pytest.mark.parametrize("length", [0, 1, TILE, TILE + 1, CHUNK, CHUNK + 1, CONTEXT])
def test_nothing_beyond_a_length_is_read(length):
    qkv, places = normal(5, SIZES.qkv), Places(torch.tensor([2]), torch.tensor([length]))
    kept = cached(SIZES)
    found = attended(SIZES, qkv, places, kept)
    assert torch.isfinite(found).all()
    assert torch.equal(bits(attended(SIZES, qkv, places, poisoned(kept, places))), bits(found))


@settings(max_examples=8)
@given(
    st.integers(0, CONTEXT),
    st.lists(st.integers(0, CONTEXT), min_size=0, max_size=2),
    st.integers(0, 2),
)
def test_a_row_of_an_attention_depends_on_itself_alone(length, others, place):
    """Its slot, place and neighbours change nothing, nor does how many rows there are."""
    mine, kept = normal(5, SIZES.qkv), cached(SIZES)
    alone = attended(SIZES, mine, Places(torch.tensor([2]), torch.tensor([length])), kept)
    place = min(place, len(others))
    for one in kept:
        one[3] = one[2]
    rows = [normal(5, SIZES.qkv, seed=9 + i, scale=5) for i in range(len(others))]
    rows.insert(place, mine)
    lengths, slots = list(others), [0, 1][: len(others)]
    lengths.insert(place, length)
    slots.insert(place, 3)
    places = Places(torch.tensor(slots), torch.tensor(lengths))
    found = attended(SIZES, torch.cat(rows), places, kept)
    assert torch.equal(bits(found[5 * place : 5 * place + 5]), bits(alone))


# -- what is taken, and what is not ---------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ()),
        ({"hidden": 2560, "heads": 32, "kv_heads": 8, "head_dim": 128, "block": 7}, ()),
        ({"block": 32}, ()),
        ({"hidden": 20}, ("hidden size 20",)),
        ({"hidden": 16392}, ("hidden size 16392",)),
        ({"intermediate": 12}, ("intermediate size 12",)),
        ({"head_dim": 8}, ("8 wide",)),
        ({"head_dim": 96}, ("96 wide",)),
        ({"heads": 8, "block": 17}, ("68 queries",)),
        ({"heads": 2, "block": 33}, ("a block of 33",)),
        ({"hidden": 4, "head_dim": 512}, ("hidden size 4", "512 wide")),
    ],
)
def test_sizes_that_no_kernel_takes_are_named(changes, words):
    reasons = replace(SIZES, **changes).unsupported
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


@pytest.mark.parametrize("which", range(4))
def test_a_tensor_that_would_need_another_binary_is_refused(which):
    given_ = [normal(2, 24), normal(2, 24), normal(24)]
    wrong = [
        (0, given_[0].float()),
        (1, normal(24, 2).t()),
        (2, normal(25)[1:]),
        (2, normal(48)[::2]),
    ]
    place, tensor = wrong[which]
    given_[place] = tensor
    with pytest.raises(BadInputError):
        launches.added(SIZES, *given_)


# -- priming --------------------------------------------------------------------------------

PRIMED = """
import re
from pp4.drafter.fused import FusedBackbone, sizes_of
from pp4.kernels.backbone.specialised import KERNELS, prime
from tests.unit.drafter.checkpoints import SMALL, random_tensors
from tests.unit.drafter.running import weights_of

config = replace(SMALL, hidden=48, heads=4, kv_heads=2, head_dim=64, intermediate=40)
prime(sizes_of(config), device)
found["loaded"] = [name for name, _, _ in loaded]
found["launched"] = len(launched)

allow = forbid_compilation(note)
driver.current = 1
backbone = FusedBackbone(weights_of(config, random_tensors(config)), 70)
cache = torch.zeros(2, 3, 2, 70, 64, dtype=torch.bfloat16)
for batch in (1, 2, 3, 16):
    # as they lie in the inputs of a shape: one behind the other
    rows = torch.zeros(3, batch, dtype=torch.int64)
    backbone.run(rows[2], (rows[0], rows[1]), cache, cache)
found["after"] = list(seen)
found["launches"] = len(launched)
found["modules"] = len(loaded)
allow()

wide = replace(config, hidden=2560, heads=32, kv_heads=8, head_dim=128, intermediate=9728)
texts = [one.ptx for one in prime(sizes_of(wide), device)]
found["narrow"] = [len(re.findall(r"ld[.]global[.]b(?:16|32)", text)) for text in texts]
found["copied"] = [len(re.findall(r"cp[.]async.*, 0x10", text)) for text in texts]
found["spilled"] = [".local" in text for text in texts]
found["multiplied"] = ["mma.sync" in text for text in texts]
"""
NAMES = ["embedded", "turned", "attended", "merged", "added", "gated"]


@pytest.fixture(scope="module")
def primed(tmp_path_factory):
    return said(PRIMED, tmp_path_factory.mktemp("primed"))


def test_whatever_a_backbone_launches_was_primed(primed):
    assert primed["loaded"] == NAMES
    assert primed["launched"] == 0
    assert primed["after"] == []
    assert primed["modules"] == len(NAMES)
    # the embedding, and two layers of six
    assert primed["launches"] == 4 * (1 + 2 * 6)


def test_memory_is_read_in_wide_words(primed):
    narrow = dict(zip(NAMES, primed["narrow"], strict=True))
    # a split has two numbers beside its values
    assert narrow.pop("merged") > 0
    assert set(narrow.values()) == {0}
    # sixteen bytes at once: keys and values, 64 places of 256 bytes for 128 threads, two stages
    assert dict(zip(NAMES, primed["copied"], strict=True))["attended"] == 2 * 2 * 8


def test_products_are_the_tensor_cores_and_nothing_is_spilled(primed):
    assert primed["multiplied"] == [name == "attended" for name in NAMES]
    assert not any(primed["spilled"])
