"""The original selector equals the exact reference: bias, rounding, argmax, chain, ties."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.drafter.selector import Columns, OriginalSelector
from pp4.kernels.reference import conditioned, markov_bias, round_bf16


class Meeting:
    """Joins the gathers of two selectors that run in two threads."""

    def __init__(self):
        self.barrier = threading.Barrier(2, timeout=60)
        self.sent = [None, None]
        self.seen = []

    def of(self, rank):
        def gather(mine):
            self.sent[rank] = mine.clone()
            self.barrier.wait()
            both = torch.stack(self.sent)
            self.barrier.wait()
            if rank == 0:
                self.seen.append(both)
            return both

        return gather


def bf16(values):
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def selectors(w1, w2, split, batch, n_out, token_map=None):
    meeting = Meeting()
    parts = ((0, w2[:split]), (split, w2[split:]))
    ranks = [
        OriginalSelector(
            bf16(w1),
            bf16(part),
            first_id=first,
            gather=meeting.of(rank),
            batch=batch,
            n_out=n_out,
            token_map=token_map,
        )
        for rank, (first, part) in enumerate(parts)
    ]
    return ranks, meeting


def run(ranks):
    """Replay both at once; -> outputs of each."""
    found, errors = [None, None], []

    def work(rank):
        try:
            found[rank] = ranks[rank].replay()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    return found


def load(ranks, base, anchors, split):
    for selector, part in zip(ranks, (base[..., :split], base[..., split:]), strict=True):
        selector.base.copy_(bf16(part))
        selector.anchor.copy_(torch.tensor(anchors))


def chain(w1, w2, base, anchors, token_map=None):
    """Tokens by the exact reference, one position after another."""
    tokens = np.zeros(base.shape[:2], np.int64)
    for row, anchor in enumerate(anchors):
        previous = anchor
        for index in range(base.shape[1]):
            logits = conditioned(base[row, index], markov_bias(w1[previous], w2))
            # numpy takes the first of equal maxima: the lower id
            column = int(np.argmax(logits))
            previous = tokens[row, index] = column if token_map is None else token_map[column]
    return tokens


@st.composite
def blocks(draw):
    vocab = draw(st.integers(2, 40))
    rank_dim = draw(st.sampled_from([1, 2, 8]))
    batch, n_out = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    # few distinct values give many ties, fine ones give roundings
    step = np.float32(draw(st.sampled_from([1.0, 0.5, 2.0**-9])))

    def values(*shape):
        return round_bf16(np.round(rng.standard_normal(shape) * 2).astype(np.float32) * step)

    w1, w2, base = values(vocab, rank_dim), values(vocab, rank_dim), values(batch, n_out, vocab)
    base[rng.random(base.shape) < 0.1] = -np.inf
    base[rng.random(base.shape) < 0.1] = -0.0
    anchors = [int(one) for one in rng.integers(vocab, size=batch)]
    return w1, w2, base, anchors, draw(st.integers(1, vocab - 1))


@settings(max_examples=60)
@given(blocks())
def test_tokens_are_the_argmax_chain_of_the_reference(block):
    w1, w2, base, anchors, split = block
    ranks, _ = selectors(w1, w2, split, *base.shape[:2])
    load(ranks, base, anchors, split)
    expected = chain(w1, w2, base, anchors)
    for outputs in run(ranks):
        assert outputs.token.tolist() == expected.tolist()
        assert not outputs.q.any()


@pytest.mark.parametrize(
    ("high", "winner"),
    [((1, 6), 1), ((6,), 6), ((3, 4), 3), ((4, 7), 4), ((0, 7), 0)],
)
def test_the_lower_id_wins_across_the_shard_border(high, winner):
    w1 = w2 = np.zeros((8, 1), np.float32)
    base = np.full((1, 1, 8), -1.0, np.float32)
    base[..., list(high)] = 2.0
    ranks, _ = selectors(w1, w2, 4, 1, 1)
    load(ranks, base, [0], 4)
    for outputs in run(ranks):
        assert outputs.token.tolist() == [[winner]]


def test_minus_zero_is_no_smaller_than_zero():
    w1 = w2 = np.zeros((4, 1), np.float32)
    base = np.full((1, 1, 4), -0.0, np.float32)
    base[..., 3] = 0.0
    ranks, _ = selectors(w1, w2, 2, 1, 1)
    load(ranks, base, [0], 2)
    for outputs in run(ranks):
        assert outputs.token.tolist() == [[0]]


def test_eight_bytes_a_row_and_position_cross_and_nothing_else():
    rng = np.random.default_rng(3)
    w1, w2 = (round_bf16(rng.standard_normal((9, 2)).astype(np.float32)) for _ in range(2))
    base = round_bf16(rng.standard_normal((3, 4, 9)).astype(np.float32))
    ranks, meeting = selectors(w1, w2, 5, 3, 4)
    load(ranks, base, [1, 2, 3], 5)
    run(ranks)
    assert [tuple(both.shape) for both in meeting.seen] == [(2, 3, 2)] * 4
    assert {both.dtype for both in meeting.seen} == {torch.int32}


def test_a_replay_rewrites_the_same_objects():
    rng = np.random.default_rng(4)
    w1, w2 = (round_bf16(rng.standard_normal((9, 2)).astype(np.float32)) for _ in range(2))
    ranks, _ = selectors(w1, w2, 5, 1, 3)
    kept, tokens = None, []
    for seed in range(2):
        base = round_bf16(np.random.default_rng(seed).standard_normal((1, 3, 9)).astype(np.float32))
        load(ranks, base, [seed], 5)
        first, _ = run(ranks)
        assert kept is None or first is kept
        assert first is ranks[0].outputs
        kept = first
        tokens.append(first.token.tolist())
        assert tokens[-1] == chain(w1, w2, base, [seed]).tolist()
    assert tokens[0] != tokens[1]
    assert kept.token.data_ptr() == ranks[0].outputs.token.data_ptr()


@pytest.mark.parametrize("seed", range(4))
def test_a_reduced_vocabulary_emits_and_goes_on_from_the_targets_ids(seed):
    rng = np.random.default_rng(seed)

    def values(*shape):
        return round_bf16(rng.standard_normal(shape).astype(np.float32))

    ids = np.sort(rng.permutation(40)[:9]).astype(np.int32)
    w1, w2, base = values(40, 4), values(9, 4), values(2, 4, 9)
    ranks, _ = selectors(w1, w2, 5, 2, 4, torch.from_numpy(ids))
    # an anchor that no draft id stands for
    anchors = [int(np.setdiff1d(np.arange(40), ids)[-1]), int(ids[3])]
    load(ranks, base, anchors, 5)
    expected = chain(w1, w2, base, anchors, ids).tolist()
    assert [outputs.token.tolist() for outputs in run(ranks)] == [expected, expected]


@pytest.mark.parametrize("products", [1, 100, 8 * 3 * 7])
def test_a_bias_in_parts_is_the_bias_at_once(products):
    rng = np.random.default_rng(8)
    w1, w2 = (bf16(rng.standard_normal((37, 8)).astype(np.float32)) for _ in range(2))
    previous = torch.tensor([3, 36, 0])
    whole, parts = (
        OriginalSelector(
            w1, w2, first_id=0, gather=None, batch=3, n_out=1, **more
        )._bias(previous, w1, w2)
        for more in ({}, {"products": products})
    )  # fmt: skip
    assert torch.equal(whole.view(torch.int16), parts.view(torch.int16))
    expected = [markov_bias(w1[one].float().numpy(), w2.float().numpy()) for one in previous]
    assert parts.float().numpy().tolist() == np.stack(expected).tolist()


@pytest.mark.parametrize("token_map", [None, torch.arange(9, dtype=torch.int32) * 2])
def test_both_shards_in_one_place_are_two_ranks_and_gather_nothing(token_map):
    rng = np.random.default_rng(9)
    w1, w2 = (round_bf16(rng.standard_normal((n, 2)).astype(np.float32)) for n in (18, 9))
    base = round_bf16(np.round(rng.standard_normal((3, 4, 9))).astype(np.float32))
    ranks, _ = selectors(w1, w2, 5, 3, 4, token_map)
    load(ranks, base, [1, 2, 3], 5)
    apart = run(ranks)[0].token.tolist()
    both = OriginalSelector(
        bf16(w1),
        bf16(w2[:5]),
        first_id=0,
        gather=None,
        batch=3,
        n_out=4,
        token_map=token_map,
        base=bf16(base)[..., :5],
        beside=Columns(bf16(w2[5:]), 5, bf16(base)[..., 5:]),
    )
    both.anchor.copy_(torch.tensor([1, 2, 3]))
    assert both.replay().token.tolist() == apart
