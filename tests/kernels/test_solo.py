"""The interpreted solo kernel equals the reference, row by row, at every border."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.kernels.block import Request
from pp4.kernels.faults import Fault
from pp4.kernels.geometry import Geometry
from pp4.kernels.layout import NARROW_BITS, WIDE_BITS
from tests.kernels.cases import (
    check,
    differences,
    from_patterns,
    normal,
    plain,
    random_case,
    solo,
)

MASKED, PLUS_INF, ONE, TWO = 0xFF80, 0x7F80, 0x3F80, 0x4000


def row(vocab=70, fill=ONE, at=()):
    patterns = np.full(vocab, fill, np.uint32)
    for place, pattern in dict(at).items():
        patterns[place] = pattern
    return from_patterns(patterns)


def scattered(vocab, patterns, seed=3):
    return from_patterns(np.random.default_rng(seed).choice(patterns, vocab))


GOOD = {
    "constant": row(),
    "constant, V = 33": row(33),
    "a tie across the tile border": row(at={31: TWO, 32: TWO}),
    "a tie across the shard border": row(at={34: TWO, 35: TWO}),
    "31 above and a tie for the last place": row(at=dict.fromkeys(range(31), TWO)),
    "33 tied, on both sides of both borders": row(fill=0, at=dict.fromkeys(range(20, 53), TWO)),
    "exactly two finite values": row(fill=MASKED, at={3: ONE, 69: TWO}),
    "one finite value, the last column": row(fill=MASKED, at={69: ONE}),
    "one shard of -inf only": row(at=dict.fromkeys(range(35), MASKED)),
    "the other shard of -inf only": row(at=dict.fromkeys(range(35, 70), MASKED)),
    "-0 beside +0": scattered(70, [0x0000, 0x8000]),
    "subnormals of both signs": scattered(70, [0x0001, 0x8001, 0x007F, 0x807F, 0]),
    "the largest and the smallest": scattered(70, [0x7F7F, 0xFF7F, 0]),
    "neighbours in the last bit": scattered(70, [0x3F80, 0x3F81, 0x3F7F]),
    "every value another": from_patterns(0x3F00 + np.random.default_rng(1).permutation(70)),
    "far apart": scattered(70, [0x42C8, 0xC2C8, 0x4100]),
}
BAD = {
    "a NaN": row(at={0: 0x7FC0}),
    "a negative NaN": row(at={69: 0xFFC0}),
    "a signalling NaN in the last column of a tile": row(at={31: 0x7F81}),
    "a negative NaN with all bits": row(at={34: 0xFFFF}),
    "a NaN with all bits": row(at={35: 0x7FFF}),
    "+inf": row(at={64: PLUS_INF}),
    "+inf among 40 larger than nothing": row(fill=MASKED, at={5: PLUS_INF}),
    "a NaN in a row of -inf": row(fill=MASKED, at={66: 0xFF81}),
}


@pytest.mark.parametrize("name", GOOD)
def test_rows_at_every_border(name):
    case = plain(GOOD[name], tile=32)
    block, outputs = solo(case)
    expected = check(case, outputs)
    assert expected.error.tolist() == [[0]]
    assert block.link.words().clean


@pytest.mark.parametrize("pattern", [0x7FC0, 0xFFC0, 0xFF81, 0xFFFF, PLUS_INF], ids=hex)
@pytest.mark.parametrize("place", [0, 129, 258])
def test_a_bad_column_is_found_beside_better_ones(pattern, place):
    # groups of four, and many more of them than are looked into
    case = plain(row(259, at={place: pattern}), tile=128)
    assert case.geometry.group == 4
    _, outputs = solo(case)
    check(case, outputs)
    assert outputs.error.tolist() == [[Fault.BAD_LOGITS]]


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_give_no_proposal(name):
    block, outputs = solo(plain(BAD[name], tile=32))
    check(plain(BAD[name], tile=32), outputs)
    assert outputs.error.tolist() == [[Fault.BAD_LOGITS]]
    assert outputs.token.tolist() == [[-1]]
    assert not outputs.q.any()
    assert block.link.words().own is Fault.BAD_LOGITS


def test_a_row_without_a_finite_value_is_empty():
    case = plain(row(fill=MASKED), tile=32)
    block, outputs = solo(case)
    check(case, outputs)
    assert outputs.error.tolist() == [[Fault.EMPTY_ROW]]
    assert block.link.words().own is Fault.EMPTY_ROW


patterns = st.lists(
    st.integers(0, 0xFFFF).filter(lambda p: (p & 0x7FFF) < 0x7F80)
    | st.sampled_from([MASKED, 0, 0x8000, ONE, TWO, 0x7F7F, 0xFF7F, 1, 0x8001]),
    min_size=1,
    max_size=5,
)


@given(
    st.lists(patterns, min_size=1, max_size=2),
    st.integers(33, 150),
    st.integers(1, 1000),
    st.sampled_from([32, 64, 128]),
    st.integers(0, 2**32),
)
@settings(max_examples=25)
def test_any_rows_equal_the_reference(rows, vocab, split, tile, seed):
    batch = [scattered(vocab, one, seed + place) for place, one in enumerate(rows)]
    requests = [Request(key=seed + 1, position=seed % 97, round=seed % 13 + 1)] * len(rows)
    # an error in one row would make the outcome of its neighbour a matter of order
    batch = [np.where(np.arange(vocab) == seed % vocab, np.float32(0.5), one) for one in batch]
    case = plain(batch, split=split % (vocab - 1) + 1, tile=tile, requests=requests)
    _, outputs = solo(case)
    check(case, outputs)


weights = st.sampled_from([1.0, 0.0, -0.0, 2.0**-133, 2.0**-70, 2.0**100, -1.5, float("inf")])


@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 16, 32]),
    st.lists(weights, min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=20)
def test_any_weights_equal_the_reference(seed, rank_dim, extreme, cached):
    random = np.random.default_rng(seed)
    vocab = 40 + seed % 30
    case = random_case(seed, vocab=vocab, split=vocab // 3, rank_dim=rank_dim, batch=1, n_out=1)
    w2 = case.w2.copy()
    w2[random.integers(vocab, size=9), random.integers(rank_dim, size=9)] = random.choice(
        np.float32(extreme), 9
    )
    case = dataclasses.replace(case, w2=w2, cached=[case.requests[0].anchor] if cached else ())
    _, outputs = solo(case)
    check(case, outputs)


@pytest.mark.parametrize("batch", [1, 3, 5])
@pytest.mark.parametrize("cached", ["none", "some", "all"])
def test_batches_cached_and_not(batch, cached):
    tokens = {"none": (), "some": range(0, 70, 2), "all": range(70)}[cached]
    case = random_case(batch, vocab=70, split=41, batch=batch, n_out=1, cached=tokens)
    _, outputs = solo(case)
    check(case, outputs)


def test_tile_sizes_splits_and_the_cache_do_not_change_a_bit():
    first = random_case(21, vocab=130, split=65, tile=32, batch=1, n_out=2)
    _, expected = solo(first)
    for tile, split, cached in ((64, 65, ()), (128, 129, range(130)), (32, 1, range(5, 130, 3))):
        geometry = dataclasses.replace(first.geometry, tile=tile, split=split)
        case = dataclasses.replace(first, geometry=geometry, cached=cached)
        _, outputs = solo(case)
        assert differences(outputs, expected) == []


@pytest.mark.parametrize("nan_at", [None, 3, 200, 511])
@pytest.mark.parametrize("cached", [False, True])
def test_a_wide_tile_is_taken_in_spans(nan_at, cached):
    case = random_case(22, vocab=700, split=600, tile=512, rank_dim=2, batch=1, n_out=1)
    logits = case.logits.copy()
    if nan_at is not None:
        logits[0, 0, nan_at] = np.nan
    case = dataclasses.replace(case, logits=logits, cached=range(700) if cached else ())
    _, outputs = solo(case)
    expected = check(case, outputs)
    assert bool(expected.error.any()) == (nan_at is not None)


def test_many_tiles_are_merged():
    # 35 tiles a shard: more lists than places, and one finite column in every other tile
    logits = np.full(70 * 32, -np.inf, np.float32)
    logits[5::64] = normal(8, 35)
    case = plain(logits, tile=32)
    _, outputs = solo(case)
    check(case, outputs)


def test_a_reduced_vocabulary_emits_target_ids_and_chains_by_them():
    base = random_case(4, vocab=60, split=31, batch=2, n_out=3)
    emitted = sorted(np.random.default_rng(2).choice(200, 60, replace=False).tolist())
    case = dataclasses.replace(
        base,
        geometry=dataclasses.replace(base.geometry, mapped=True),
        w1=normal(9, 200, 8),
        token_map=emitted,
        requests=[Request(key=1, anchor=199), Request(key=2, anchor=0)],
        cached=emitted[::2],
    )
    _, outputs = solo(case)
    check(case, outputs)
    assert set(outputs.token.ravel().tolist()) <= set(emitted)


EDGES = {
    "largest": Request(key=2**64 - 1, position=2**31 - 1, round=2**32 - 1, anchor=69),
    "key of the upper half only": Request(key=0xFFFFFFFF << 32, position=0, round=0, anchor=0),
    "key of the lower half only": Request(key=0xFFFFFFFF, position=1, round=2**31, anchor=35),
    "sign bits": Request(key=1 << 63, position=2**31 - 2, round=2**31, anchor=34),
}


@pytest.mark.parametrize("name", EDGES)
def test_counters_and_anchors_at_their_edges(name):
    # a constant row draws almost uniformly, so another counter is another token
    case = dataclasses.replace(
        random_case(1, vocab=70, split=35, batch=1, n_out=2),
        requests=[EDGES[name]],
        logits=np.zeros((1, 2, 70), np.float32),
    )
    _, outputs = solo(case)
    check(case, outputs)


@pytest.mark.parametrize("depth", [3, 5])
def test_positions_are_chained(depth):
    case = random_case(depth, vocab=45, split=20, batch=2, n_out=depth, cached=range(0, 45, 2))
    _, outputs = solo(case)
    expected = check(case, outputs)
    assert len(set(expected.token.ravel().tolist())) > 1


def test_a_rank_dimension_of_one_and_a_vocabulary_of_two():
    case = dataclasses.replace(
        random_case(3, vocab=2, split=1, rank_dim=1, batch=1, n_out=2),
        geometry=Geometry(vocab=2, split=1, tile=32, rank_dim=1),
    )
    _, outputs = solo(case)
    check(case, outputs)


def test_more_groups_than_a_narrow_key_has_numbers_for():
    values = np.random.default_rng(9).choice([0x3F80, 0x3F81, 0xBF80], 140_000)
    case = plain(from_patterns(values), tile=16384)
    assert case.geometry.bits(shards=2) == WIDE_BITS
    assert dataclasses.replace(case.geometry, vocab=131_072, split=65_536).bits(2) == NARROW_BITS
    check(case, solo(case)[1])
