"""The drafter against a naive one, and what a row may and may not depend on."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.drafter.model import Drafter
from pp4.drafter.selector import OriginalSelector
from pp4.errors import BadInputError
from pp4.kernels import reference
from tests.unit.drafter.checkpoints import REDUCED, SMALL, random_tensors
from tests.unit.drafter.naive import Naive
from tests.unit.drafter.running import drafter_of, features_of, filled, run, weights_of

# Everything runs in float64 there but cosine, sine and the confidence, which are FP32.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@st.composite
def drafters(draw):
    kv_heads = draw(st.integers(1, 3))
    vocab = draw(st.integers(8, 40))
    return replace(
        SMALL,
        hidden=draw(st.sampled_from([8, 12, 20])),
        layers=draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        heads=kv_heads * draw(st.integers(1, 3)),
        head_dim=draw(st.sampled_from([2, 4, 6])),
        intermediate=draw(st.integers(1, 9)),
        norm_eps=draw(st.sampled_from([1e-6, 1e-2])),
        rope_theta=draw(st.sampled_from([100.0, 1e6])),
        vocab=vocab,
        draft_vocab=vocab,
        block=draw(st.integers(1, 8)),
        mask_token=draw(st.integers(0, vocab - 1)),
        target_layers=tuple(range(draw(st.integers(1, 3)))),
        markov_rank=draw(st.sampled_from([1, 4, 8])),
        confidence_with_markov=draw(st.booleans()),
        softcap=draw(st.sampled_from([None, 3.0])),
    )


@settings(max_examples=25)
@given(drafters(), st.integers(0, 1000), st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_states_logits_and_confidences_are_those_of_the_naive_drafter(config, seed, lengths):
    tensors = random_tensors(config, seed)
    drafter = Drafter(
        weights_of(config, tensors, dtype=torch.float64), slots=len(lengths), context=16
    )
    features = [features_of(config, n, seed + i, torch.float64) for i, n in enumerate(lengths)]
    anchors = [(seed + 5 * i) % config.vocab for i in range(len(lengths))]
    hidden = drafter.hidden(drafter.cache.rows(filled(drafter, features), anchors))
    n_out = min(4, config.block)
    base = drafter.base(hidden, n_out)
    previous = torch.tensor([[(seed + j) % config.vocab for j in range(n_out)]] * len(lengths))
    confidence = drafter.confidence(hidden[:, :n_out], previous)
    naive = Naive(config, tensors)
    for row, (one, anchor) in enumerate(zip(features, anchors, strict=True)):
        states = naive.hidden(one, anchor)
        np.testing.assert_allclose(hidden[row].numpy(), states, **CLOSE)
        np.testing.assert_allclose(base[row].numpy(), naive.base(states)[:n_out], **CLOSE)
        expected = naive.confidence(states[:n_out], previous[row].tolist())
        np.testing.assert_allclose(confidence[row].numpy(), expected, **CLOSE)


def test_in_bf16_it_stays_near_the_naive_drafter():
    drafter, tensors = drafter_of(SMALL), random_tensors(SMALL)
    features = features_of(SMALL, 11)
    hidden = drafter.hidden(drafter.cache.rows(filled(drafter, [features]), [7]))
    assert hidden.dtype == torch.bfloat16
    states = Naive(SMALL, tensors).hidden(features, 7)
    # eight bits of a significand, through some dozens of roundings
    np.testing.assert_allclose(hidden[0].float().numpy(), states, rtol=0.1, atol=0.1)


def test_the_first_state_depends_on_the_last_query():
    """With a shorter block it is another drafter, though the block begins with the same queries."""
    features = [features_of(SMALL, 6)]
    tensors = random_tensors(SMALL)
    five, four = (
        run(Drafter(weights_of(replace(SMALL, block=k), tensors), slots=1, context=24),
            features, [3])
        for k in (5, 4)
    )  # fmt: skip
    assert not torch.equal(five[0, 0], four[0, 0])


def test_every_state_depends_on_the_anchor_and_on_every_feature():
    features = features_of(SMALL, 6)
    kept = run(drafter_of(SMALL), [features], [3])[0]
    changed = [run(drafter_of(SMALL), [features], [4])[0]]
    for token in range(len(features)):
        other = features.clone()
        other[token] += 1
        changed.append(run(drafter_of(SMALL), [other], [3])[0])
    for one in changed:
        assert all(not torch.equal(one[index], kept[index]) for index in range(SMALL.block))


def test_the_order_of_features_counts():
    features = features_of(SMALL, 6)
    kept = run(drafter_of(SMALL), [features], [3])
    assert not torch.equal(run(drafter_of(SMALL), [features.flip(0)], [3]), kept)


def test_all_queries_are_run_for_four_positions_too():
    drafter = drafter_of(SMALL)
    hidden = run(drafter, [features_of(SMALL, 6)], [3])
    assert hidden.shape == (1, SMALL.block, SMALL.hidden)
    five = drafter.base(hidden, 5)
    assert five.shape == (1, 5, SMALL.draft_vocab)
    assert drafter.base(hidden, 4).shape == (1, 4, SMALL.draft_vocab)


@pytest.mark.parametrize("n_out", [0, -1, 6])
def test_positions_beyond_the_block_are_refused(n_out):
    drafter = drafter_of(SMALL)
    with pytest.raises(BadInputError, match="1 to 5 positions"):
        drafter.base(run(drafter, [features_of(SMALL, 6)], [3]), n_out)


def bits(tensor):
    return tensor.contiguous().view(torch.int16)


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 24), min_size=3, max_size=3),
    st.permutations(range(4)),
    st.integers(0, 3),
)
def test_a_row_depends_on_itself_alone_bit_for_bit(lengths, order, seed):
    """Neighbours, their lengths, padding and the row's place change nothing of it."""
    mine = features_of(SMALL, 9, seed)
    seen = []
    for others, place in (
        ([features_of(SMALL, n, 50 + i) for i, n in enumerate(lengths)], order.index(0)),
        ([features_of(SMALL, 3, 90)] * 3, 0),
        ([], 2),
    ):
        drafter = drafter_of(SMALL, seed)
        names = filled(drafter, [mine, *others])
        requests = [*names[1:], *[None] * (3 - len(others))]
        anchors = [11, 12, 13]
        requests.insert(place, 0)
        anchors.insert(place, 5)
        hidden = drafter.hidden(drafter.cache.rows(requests, anchors))
        seen.append(
            torch.cat([bits(hidden[place]).ravel(), bits(drafter.base(hidden, 4)[place]).ravel()])
        )
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 3))
def test_features_that_come_in_parts_are_the_features_that_come_at_once(parts, seed):
    total = sum(parts)
    features = features_of(SMALL, total, seed)
    once, bits_of = drafter_of(SMALL, seed, slots=1, context=total), []
    run(once, [features], [2])
    apart = drafter_of(SMALL, seed, slots=1, context=total)
    apart.cache.open(0)
    for part in features.split(parts):
        apart.cache.append(0, part)
    for drafter in (once, apart):
        hidden = drafter.hidden(drafter.cache.rows([0], [2]))
        bits_of.append([bits(one) for one in (drafter.cache.keys, drafter.cache.values, hidden)])
    assert all(torch.equal(a, b) for a, b in zip(*bits_of, strict=True))


@settings(max_examples=20)
@given(st.integers(2, 61), st.integers(0, 100), st.sampled_from([None, 2.0]))
def test_the_shards_of_the_head_are_slices_of_the_whole(vocab, seed, softcap):
    config = replace(SMALL, vocab=max(vocab, 37), draft_vocab=vocab, mask_token=1, softcap=softcap)
    drafters_ = [
        drafter_of(config, seed, dtype=torch.float64, rank=rank, world=world)
        for rank, world in ((0, 1), (0, 2), (1, 2))
    ]
    hidden = [run(one, [features_of(config, 5, dtype=torch.float64)], [3]) for one in drafters_]
    assert all(torch.equal(one, hidden[0]) for one in hidden)
    whole, low, high = (one.base(hidden[0], 4) for one in drafters_)
    assert drafters_[1].weights.bounds[1] == drafters_[2].weights.bounds[0] == (vocab + 1) // 2
    # a GEMM of another width may add in another order
    torch.testing.assert_close(torch.cat([low, high], dim=-1), whole, rtol=1e-12, atol=1e-12)


def test_soft_capping_bounds_the_base_logits_and_not_the_bias():
    config = replace(SMALL, softcap=0.5)
    drafter = drafter_of(config)
    base = drafter.base(run(drafter, [features_of(config, 5)], [3]), 4)
    assert base.abs().max() <= 0.5
    plain = drafter_of(SMALL)
    uncapped = plain.base(run(plain, [features_of(SMALL, 5)], [3]), 4)
    assert torch.equal(base, torch.tanh(uncapped / 0.5) * 0.5)
    patterns = drafter.conditioned(base[:, 0], torch.tensor([3]))
    assert (patterns << 16).view(torch.float32).abs().max() > 0.5


@pytest.mark.parametrize("rank", [0, 1])
def test_conditioned_logits_are_the_exact_references(rank):
    drafter = drafter_of(REDUCED, rank=rank, world=2)
    base = drafter.base(run(drafter, [features_of(REDUCED, 5)] * 2, [3, 4]), 4)
    # a target id beyond the draft vocabulary: W1 has a row for it all the same
    previous = [36, 2]
    patterns = drafter.conditioned(base[:, 1], torch.tensor(previous))
    for row, token in enumerate(previous):
        w1, w2 = (one.float().numpy() for one in (drafter.weights.w1, drafter.weights.w2))
        expected = reference.conditioned(
            base[row, 1].float().numpy(), reference.markov_bias(w1[token], w2)
        )
        found = (patterns[row] << 16).view(torch.float32).numpy()
        assert found.tolist() == expected.tolist()


def test_a_confidence_head_may_have_no_bias_or_be_missing():
    tensors = random_tensors(SMALL, leave_out=("confidence_head.proj.bias",))
    drafter = Drafter(weights_of(SMALL, tensors), slots=1, context=24)
    hidden = run(drafter, [features_of(SMALL, 5)], [3])
    previous = torch.tensor([[3, 1, 2, 3]])
    expected = Naive(SMALL, tensors).confidence(hidden[0, :4].double().numpy(), [3, 1, 2, 3])
    found = drafter.confidence(hidden[:, :4], previous)
    np.testing.assert_allclose(found[0].numpy(), expected, **CLOSE)
    bare = drafter_of(replace(SMALL, confidence=False, confidence_with_markov=False))
    assert bare.confidence(hidden[:, :4], previous) is None


@pytest.mark.parametrize("batch", [1, 3, 8, 13])
def test_a_confidence_does_not_depend_on_its_place(batch):
    drafter = drafter_of(SMALL)
    rows = torch.randn(200, 5, SMALL.hidden, generator=torch.Generator().manual_seed(1))
    previous = torch.full((batch, 5), 3)
    for row in rows.bfloat16():
        found = drafter.confidence(row.expand(batch, -1, -1), previous)
        alone = [drafter.confidence(row[None, one : one + 1], previous[:1, :1]) for one in range(5)]
        assert torch.equal(found, torch.cat(alone, dim=1).expand(batch, -1))


def test_the_original_selector_takes_base_logits_and_weights_as_they_are():
    ranks = [drafter_of(SMALL, rank=rank, world=2) for rank in (0, 1)]
    anchors = [3, 9]
    selectors = []
    for drafter in ranks:
        base = drafter.base(run(drafter, [features_of(SMALL, n) for n in (5, 2)], anchors), 4)
        weights = drafter.weights
        selector = OriginalSelector(
            weights.w1,
            weights.w2,
            first_id=weights.bounds[0],
            gather=lambda mine: torch.stack([mine, mine]),
            batch=2,
            n_out=4,
        )
        selector.base.copy_(base)
        selector.anchor.copy_(torch.tensor(anchors))
        selectors.append(selector)
        # on its own a rank finds the best of its own columns, as the reference does
        columns = drafter.conditioned(base[:, 0], torch.tensor(anchors))
        best = (columns << 16).view(torch.float32).max(dim=-1).values
        token = selector.replay().token[:, 0] - weights.bounds[0]
        found = (columns << 16).view(torch.float32).gather(1, token[:, None])[:, 0]
        assert found.tolist() == best.tolist()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_of_a_wider_drafter_depend_on_themselves_alone_too(dtype, device):
    """Widths at which a GEMM takes more than one tile, and FP32, where no rounding hides a sum."""
    config = replace(
        SMALL, hidden=256, heads=8, head_dim=32, intermediate=512, vocab=601, draft_vocab=601
    )
    tensors = random_tensors(config)
    for name, one in tensors.items():
        if one.ndim == 2:
            tensors[name] = (one.float() / one.shape[1] ** 0.5).to(one.dtype)
    weights = weights_of(config, tensors, dtype=dtype, device=device)
    mine, seen = features_of(config, 77, dtype=dtype).to(device), []
    for lengths, place, parts in (
        ([3, 40, 0], 0, [77]),
        ([90, 1, 7], 2, [64, 13]),
        ([], 3, [1] * 77),
        ([5], 1, [30, 47]),
    ):
        drafter = Drafter(weights, slots=4, context=100)
        drafter.cache.open(9)
        for part in mine.split(parts):
            drafter.cache.append(9, part)
        others = [features_of(config, n, 7 + n, dtype=dtype).to(device) for n in lengths]
        requests = [*filled(drafter, others), *[None] * (3 - len(others))]
        anchors = [11, 12, 13]
        requests.insert(place, 9)
        anchors.insert(place, 5)
        hidden = drafter.hidden(drafter.cache.rows(requests, anchors))
        seen.append((hidden[place], drafter.base(hidden, 4)[place]))
    assert all(torch.equal(a, b) for one in seen[1:] for a, b in zip(one, seen[0], strict=True))
    assert seen[0][0].float().std() > 0.5
