"""The verifier's kernels give what torch's operators give, in every member, for whatever comes."""

import dataclasses
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.verifier import fused, vectorised
from pp4.verifier.batch import Batch, stacked
from pp4.verifier.device import words
from pp4.verifier.flaws import Flaw
from pp4.verifier.fused import Tiling
from pp4.verifier.proposal import validated
from pp4.verifier.reference import quantised
from pp4.verifier.reference import verify as exactly
from pp4.verifier.units import Mode
from pp4.verifier.vectorised import Verdicts
from pp4.verifier.words import Words
from tests.kernels import compiling
from tests.kernels.drivers import said
from tests.unit.verifier.cases import MODES, WORD, any_fields, any_probabilities, proposal
from tests.unit.verifier.test_masks import DAMAGE
from tests.unit.verifier.test_vectorised import any_case, check, halves, large, sound_case

POISON = 0x5A5A5A5A
TINY = Tiling(tile=16, part=4, tiles=64)
TILINGS = (TINY, Tiling(tile=64, part=64, tiles=16), fused.TILING)
seeds = st.integers(0, 2**32)


@contextmanager
def filled():
    """Let torch fill what it allocates: an int64 is the largest there is."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def launched(target, batch, given_words=None, tiling=TINY):
    """Verdicts of the kernels; whatever they do not write, scratch included, holds poison."""
    count, places, _ = target.shape
    shapes = ((count,), (count, places), (count,))
    found = Verdicts(*(torch.full(shape, POISON, dtype=torch.int32) for shape in shapes))
    scripted = None if given_words is None else fused._scripted(given_words)
    with filled():
        fused.launch(target, batch, found, scripted, tiling)
    return found


def same(found, expected):
    for one in dataclasses.fields(Verdicts):
        mine, theirs = getattr(found, one.name), getattr(expected, one.name)
        assert mine.dtype == theirs.dtype, one.name
        assert mine.tolist() == theirs.tolist(), one.name


def agrees(target, batch, given_words=None, tiling=TINY):
    found = launched(target, batch, given_words, tiling)
    same(found, vectorised.by_operators(target, batch, given_words))
    return found


# -- whatever comes -------------------------------------------------------------------------


@settings(max_examples=8)
@given(
    seeds,
    st.sampled_from([1, 2, 3, 7]),
    st.sampled_from([1, 2, 15, 16, 17, 31, 64, 65]),
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from(TILINGS),
)
def test_any_batch(seed, depth, vocabulary, dtype, tiling):
    """The words lie near what decides, or are the streams' own."""
    case = any_case(seed, 3, depth, vocabulary, dtype)
    target, batch = torch.from_numpy(case.p), stacked(case.proposals, depth)
    for given_words in (case.words(), None):
        found = agrees(target, batch, given_words, tiling)
        for row, one in enumerate(case.proposals):
            script = case.script(row) if given_words else None
            check(found, row, exactly(one, [quantised(column) for column in case.p[row]], script))


def test_many_tiles():
    case = any_case(4, 2, 1, 1001, np.float32)
    agrees(torch.from_numpy(case.p), stacked(case.proposals, 1), case.words())


def test_every_end_is_reached():
    wanted = {(mode, accepted) for mode in MODES for accepted in range(3)}
    seen = set()
    for seed in range(100):
        case = any_case(seed, 6, 2, 17, np.float64)
        target, batch = torch.from_numpy(case.p), stacked(case.proposals, 2)
        expected = vectorised.by_operators(target, batch, case.words())
        ends = set(zip(batch.mode.tolist(), expected.accepted.tolist(), strict=True))
        if ends <= seen:
            continue
        same(launched(target, batch, case.words()), expected)
        seen |= ends
        if seen == wanted:
            return
    raise AssertionError(f"not reached: {wanted - seen}")


def test_the_largest_vocabulary_as_it_is_cut_for_a_gpu():
    proposals, p = large()
    agrees(p, stacked(proposals, 2), tiling=fused.TILING)


def test_the_deepest_block():
    depth = fused.MAX_DEPTH
    batch = stacked([proposal(Mode.DELTA, None, [1] * depth, 2), None], depth)
    p = torch.tensor([0.0, 1.0]).repeat(2, depth + 1, 1)
    assert agrees(p, batch).accepted.tolist() == [depth, 0]


# -- the largest, and what goes to it ---------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.GREEDY_T0, Mode.DELTA])
def test_one_hot(mode):
    hot = [0, 3, 4, 15, 16, 17, 49]
    p = torch.zeros(2 * len(hot), 2, 50)
    for row, token in enumerate(hot + hot):
        p[row, :, token] = 1
    proposed = hot + [(token + 1) % 50 for token in hot]
    found = agrees(p, stacked([proposal(mode, None, [one], 50) for one in proposed], 1))
    assert found.tokens.tolist() == [[one, one] for one in hot] + [[one, -1] for one in hot]


@pytest.mark.parametrize(
    "ids", [(0, 1), (3, 4), (15, 16), (5, 21), (40, 130), (149, 148), (16, 32, 48)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_ones_the_lower_id_is_the_first(ids, dtype):
    p = torch.zeros(1, 2, 150, dtype=dtype)
    p[:, :, list(ids)] = 1 / len(ids)
    found = agrees(p, stacked([proposal(Mode.GREEDY_T0, None, [min(ids)], 150)], 1))
    assert found.tokens.tolist() == [[min(ids)] * 2]


@pytest.mark.parametrize("places", [(2, 9), (2, 90)])
def test_equal_are_floors_and_not_probabilities(places):
    """Two that differ by less than a unit: the higher one is not the first."""
    p = torch.zeros(1, 2, 150, dtype=torch.float64)
    p[:, :, places[0]], p[:, :, places[1]] = 0.5 - 2.0**-50, 0.5 - 2.0**-51
    found = agrees(p, stacked([proposal(Mode.GREEDY_T0, None, [2], 150)], 1))
    assert found.accepted.tolist() == [1]


@settings(max_examples=6)
@given(seeds, st.sampled_from([1 - 2.0**-15, 1 + 2.0**-15]))
def test_what_a_sum_is_off_goes_to_the_largest(seed, factor):
    case = any_case(seed, 4, 2, 40, np.float32)
    target = (torch.from_numpy(case.p) * np.float32(factor)).clamp(max=1)
    agrees(target, stacked(case.proposals, 2), case.words())


@pytest.mark.parametrize("mode", [Mode.SAMPLED, Mode.DELTA])
def test_what_goes_to_the_largest_is_taken_with_it(mode):
    p = torch.zeros(1, 2, 20)
    p[:, :, [3, 7]] = 0.5 - 2.0**-16
    batch = stacked([proposal(mode, [{3: 1 << 24}], [3], 20)], 1)
    found = agrees(p, batch, Words(halves([[WORD - 1]]), halves([[0, 0]])))
    assert found.tokens.tolist() == [[7, -1]]


@pytest.mark.parametrize("bonus", [0, 5, 19])
@pytest.mark.parametrize("mode", [Mode.SAMPLED, Mode.DELTA])
def test_nothing_is_taken_off_a_bonus(mode, bonus):
    """Not the tokens before it, and not the id that stands where no token is."""
    p = torch.zeros(1, 4, 20)
    p[:, :3, 5] = 1
    p[:, 3, bonus] = 1
    found = agrees(p, stacked([proposal(mode, [{5: 1 << 24}] * 3, [5] * 3, 20)], 3))
    assert found.tokens.tolist() == [[5, 5, 5, bonus]]


@pytest.mark.parametrize("tiling", TILINGS[:2])
@pytest.mark.parametrize(
    ("word", "place"), [(0, 0), (WORD // 2 - 1, 0), (WORD // 2, -1), (WORD - 1, -1)]
)
def test_what_lies_before_a_tile_changes_nothing_in_it(tiling, word, place):
    """The largest and what is taken are the last id of the tile before."""
    first, end = tiling.tile, 2 * tiling.tile
    p = torch.zeros(1, 2, end)
    p[:, :, first - 1], p[:, :, [first, end - 1]] = 0.5 - 2.0**-15, 0.25
    batch = stacked([proposal(Mode.SAMPLED, [{first - 1: 1 << 24}], [first - 1], end)], 1)
    found = agrees(p, batch, Words(halves([[WORD - 1]]), halves([[word, 0]])), tiling)
    assert found.tokens.tolist() == [[(first, end - 1)[place], -1]]


# -- the scan --------------------------------------------------------------------------------


def test_tiles_hold_exact_sums_and_the_first_largest():
    p = torch.from_numpy(
        np.stack([any_probabilities(np.random.default_rng(i), 150) for i in (1, 5)])
    )
    with filled():
        sums, keys = fused.scan(p[:, None], torch.tensor([1, 3], dtype=torch.int32), TINY)
    for row in range(2):
        weights = [int(one * 2**48) for one in p[row].tolist()]
        tiles = [weights[first : first + 16] for first in range(0, 150, 16)]
        assert sums[row, 0].tolist() == [sum(tile) for tile in tiles]
        first = [tile.index(max(tile)) for tile in tiles]
        words_ = [max(tile) * 16 + 15 - at for tile, at in zip(tiles, first, strict=True)]
        assert keys[row, 0].tolist() == words_


def test_a_row_without_a_proposal_is_not_read():
    with filled():
        found = fused.scan(torch.zeros(2, 2, 40), torch.tensor([0, 2], dtype=torch.int32), TINY)
    for one in found:
        assert set(one[0].flatten().tolist()) == {2**63 - 1}
        assert 2**63 - 1 not in one[1].flatten().tolist()


# -- rows that are masked ---------------------------------------------------------------------


@pytest.mark.parametrize(("flaw", "damage"), DAMAGE)
def test_a_damaged_row_is_masked(flaw, damage):
    proposals, p = sound_case()
    batch = stacked(proposals, 2)
    damage(batch)
    assert agrees(torch.from_numpy(p), batch).error.tolist() == [0, flaw, 0]


@pytest.mark.parametrize("token", [-1, -(2**31), 12, 2**31 - 1])
@pytest.mark.parametrize("mode", [Mode.GREEDY_T0, Mode.DELTA])
def test_a_token_that_there_is_not(mode, token):
    """It is not looked up: so far outside no memory is."""
    one = proposal(mode, None, [3, 3], 12)
    batch = stacked([one, one, one], 2)
    batch.tokens[1, 1] = token
    found = agrees(torch.full((3, 3, 12), 1 / 12), batch)
    assert found.error.tolist() == [0, Flaw.TOKEN, 0]


@pytest.mark.parametrize("word", [-1, -(2**63), 2**32 - 2, 2**32, 2**63 - 1])
@pytest.mark.parametrize("name", ["position", "round"])
def test_a_counter_that_does_not_fit(name, word):
    proposals, p = sound_case()
    batch = stacked(proposals, 2)
    getattr(batch, name)[1] = word
    fits = name == "round" and word == 2**32 - 2
    flaw = Flaw.NONE if fits else Flaw.COUNTER
    assert agrees(torch.from_numpy(p), batch).error.tolist() == [0, flaw, 0]


@settings(max_examples=12)
@given(seeds)
def test_any_damage(seed):
    random = np.random.default_rng(seed)
    batch = stacked([validated(**any_fields(random, 12, 3, mode)) for mode in MODES], 3)
    for _ in range(random.integers(1, 4)):
        member = (batch.ids, batch.tickets, batch.tokens, batch.mode)[random.integers(4)]
        values = [-1, 0, 1, 5, 12, 2**24, 2**31 - 1, -(2**31), int(random.integers(12))]
        member.view(-1)[int(random.integers(member.numel()))] = int(random.choice(values))
    p = np.stack([any_probabilities(random, 12) for _ in range(12)]).reshape(3, 4, 12)
    agrees(torch.from_numpy(p), batch)


@pytest.mark.parametrize("first", [0, 15, 31])
def test_twice_is_seen_at_any_distance(first):
    rows_ = [dict.fromkeys(range(32), 1 << 19)]
    one = proposal(Mode.SAMPLED, rows_, [7], 40)
    damaged, distances = [], (0, 1, 2, 15, 16, 17, 30, 31)
    for distance in distances:
        ids = one.ids.copy()
        ids[0, (first + distance) % 32] = ids[0, first]
        damaged.append(dataclasses.replace(one, ids=ids, tokens=ids[0, first : first + 1]))
    found = agrees(torch.full((8, 2, 40), 1 / 40), stacked(damaged, 1))
    assert found.error.tolist() == [Flaw.NONE] + [Flaw.DISTINCT] * 7


UNSOUND = [np.nan, -1e-9, -np.inf, np.inf, 1.5, 2.0, 1e30, -1e-45]


@pytest.mark.parametrize("value", UNSOUND)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_without_a_distribution_is_masked(value, dtype):
    batch = stacked([proposal(Mode.DELTA, None, [1, 2], 40)] * 5, 2)
    p = torch.zeros(5, 3, 40, dtype=dtype)
    p[:, :, 20] = 1  # without the one that is none, the others are a distribution
    for row, (place, tokens) in enumerate([(0, 0), (1, 17), (2, 39), (0, slice(None))], 1):
        p[row, place, tokens] = value
    assert agrees(p, batch).error.tolist() == [0] + [Flaw.TARGET] * 4


def test_a_negative_zero_is_zero():
    p = torch.full((1, 2, 3), -0.0)
    p[:, :, 1] = 1
    assert agrees(p, stacked([proposal(Mode.DELTA, None, [1], 3)], 1)).error.tolist() == [0]


@pytest.mark.parametrize("total", [0.0, 0.5, 1 - 2.0**-13, 1 + 2.0**-13, 3.0, 150.0])
def test_a_sum_that_is_off(total):
    p = torch.full((1, 2, 150), total / 150, dtype=torch.float64)
    batch = stacked([proposal(Mode.DELTA, None, [0], 150)], 1)
    assert agrees(p, batch).error.tolist() == [Flaw.TARGET]


def test_a_sum_that_wraps():
    p = torch.zeros(1, 2, 1 << 17)
    p[0, 0, : (1 << 16) + 1] = 1
    p[0, 1, 0] = 1
    batch = stacked([proposal(Mode.DELTA, None, [0], 1 << 17)], 1)
    assert agrees(p, batch, tiling=fused.TILING).error.tolist() == [Flaw.TARGET]


@pytest.mark.parametrize("tiling", [Tiling(16, 4, 64), Tiling(16, 4, 128)])
def test_every_tile_weighs_too_much(tiling):
    """Sums of tiles are added in words of 32 bits."""
    p = torch.ones(1, 2, tiling.tile * tiling.tiles)
    batch = stacked([proposal(Mode.DELTA, None, [0], p.shape[2])], 1)
    assert agrees(p, batch, tiling=tiling).error.tolist() == [Flaw.TARGET]


def test_a_largest_that_cannot_give_what_is_too_much():
    column = torch.full((1 << 18,), 2.0**-18 * (1 + 2.0**-15), dtype=torch.float64)
    batch = stacked([proposal(Mode.DELTA, None, [0], 1 << 18)], 1)
    found = agrees(column.expand(1, 2, -1), batch, tiling=fused.TILING)
    assert found.error.tolist() == [Flaw.TARGET]


def test_a_row_without_a_proposal_means_nothing():
    proposals, p = sound_case()
    p[1] = np.nan
    batch = stacked([proposals[0], None, proposals[2]], 2)
    batch.ids[1], batch.tokens[1], batch.position[1] = 2**31 - 1, -(2**31), -1
    found = agrees(torch.from_numpy(p), batch)
    assert found.error.tolist() == [0, 0, 0]
    assert found.tokens[1].tolist() == [-1] * 3


def test_nothing_left_after_a_rejection_is_an_internal_error(monkeypatch):
    """Which only a wrong comparison can bring about."""
    proposals, p = sound_case()
    p[1] = 0
    p[1][:, [7, 2, 9]] = [0.5, 0.25, 0.25]
    # the first token of a row and not the second
    monkeypatch.setattr(words, "accepts", lambda u, weight, tickets: tickets > 1 << 22)
    found = launched(torch.from_numpy(p), stacked(proposals, 2))
    assert found.error.tolist() == [0, Flaw.RESIDUAL, 0]
    assert found.accepted.tolist() == [1, 0, 1]
    assert found.tokens[1].tolist() == [-1] * 3


# -- where tensors lie ------------------------------------------------------------------------


def test_rows_and_places_may_lie_anywhere():
    case = any_case(7, 4, 3, 48, np.float32)
    batch = stacked(case.proposals, 3)
    expected = launched(torch.from_numpy(case.p), batch)
    wide = torch.full((4, 9, 5, 65), np.nan)
    wide[:, 1::2, 2, 7:55] = torch.from_numpy(case.p)
    apart = Batch(*(
        torch.stack([getattr(batch, one.name)] * 2, dim=1)[:, 1]
        for one in dataclasses.fields(Batch)
    ))  # fmt: skip
    same(launched(wide[:, 1::2, 2, 7:55], apart), expected)


def test_no_row_is_read_beyond_its_end():
    case = any_case(3, 2, 1, 33, np.float32)
    room = torch.full((2, 2, 64), np.nan)
    room[:, :, :33] = torch.from_numpy(case.p)
    batch = stacked(case.proposals, 1)
    same(launched(room[:, :, :33], batch), launched(torch.from_numpy(case.p), batch))


@pytest.mark.parametrize(
    ("target", "depth", "takes"),
    [
        (torch.zeros(2, 3, 8), 2, True),
        (torch.zeros(2, 3, 8)[:1, :, 1:], 2, True),
        (torch.zeros(2, 3, 8).transpose(1, 2), 7, False),
        (torch.zeros(1, 32, 2), 31, True),
        (torch.zeros(1, 33, 2), 32, False),
    ],
)
def test_what_the_kernels_take(target, depth, takes):
    assert fused.takes(target, depth) is takes


def test_a_batch_of_another_device_is_refused():
    batch = stacked([None], 1)
    batch = dataclasses.replace(batch, tickets=batch.tickets.to("meta"))
    with pytest.raises(BadInputError, match="tickets: expected on cpu"):
        launched(torch.zeros(1, 2, 4), batch)


def test_no_rows():
    batch = Batch(*(getattr(stacked([None], 2), one.name)[:0] for one in dataclasses.fields(Batch)))
    assert agrees(torch.zeros(0, 3, 8), batch).tokens.shape == (0, 3)


@pytest.mark.parametrize(
    ("depth", "dtype", "match"),
    [
        (0, torch.float32, "depth"),
        (fused.MAX_DEPTH + 1, torch.float32, "depth"),
        (5, torch.bfloat16, "dtype"),
        (5, torch.float32, "TRITON_INTERPRET"),
    ],
)
def test_what_cannot_be_primed_is_refused(depth, dtype, match):
    with pytest.raises(BadInputError, match=match):
        fused.prime(depth, torch.device("cuda", 0), dtype)


# -- as it is compiled ------------------------------------------------------------------------

PRIMED = """
import re
from pp4.verifier import fused
from pp4.verifier.batch import stacked
from pp4.verifier.vectorised import Verdicts

texts = []
for dtype in (torch.float32, torch.float64):
    texts += [one.ptx for one in fused.prime(5, device, dtype)]
found["loaded"], found["launched"] = [name for name, _, _ in loaded], len(launched)

allow = forbid_compilation(note)
driver.current = 1
for count, depth, vocabulary in ((1, 5, 160), (3, 4, 1008), (2, 6, 31), (1, 7, 1 << 18)):
    batch = stacked([None] * count, depth)
    room = torch.zeros(count * (depth + 1) * vocabulary + 1)
    for first in (0, 1):
        target = room[first : first + count * (depth + 1) * vocabulary]
        target = target.view(count, depth + 1, vocabulary)
        shapes = (count, (count, depth + 1), count)
        out = [torch.zeros(shape, dtype=torch.int32) for shape in shapes]
        fused.launch(target, batch, Verdicts(*out))
        fused.launch(target.double(), batch, Verdicts(*out))
found["after"], found["launches"], found["modules"] = list(seen), len(launched), len(loaded)
allow()

opcode = re.compile(r"^\\s+(?:@!?%\\w+ )?([a-z][\\w.]*)", re.M)
found["opcodes"] = [sorted(set(opcode.findall(text))) for text in texts]
found["spilled"] = [".local" in text for text in texts]
"""
ARITHMETIC = {"add", "sub", "mul", "fma", "mad", "div", "rcp", "sqrt", "ex2", "lg2", "neg", "abs"}


@pytest.fixture(scope="module")
def primed(tmp_path_factory):
    return said(PRIMED, tmp_path_factory.mktemp("primed"))


def test_whatever_is_launched_was_primed(primed):
    assert primed["loaded"] == ["scanned", "scanned", "finished"] * 2
    assert primed["launched"] == 0
    assert primed["after"] == []
    assert primed["launches"] == 4 * 2 * 2 * 2
    assert primed["modules"] == 6


def test_the_only_float_arithmetic_is_a_product(primed):
    for opcodes in primed["opcodes"]:
        floats = {one for one in opcodes if {"f32", "f64"} & set(one.split("."))}
        assert {one for one in floats if one.split(".")[0] in ARITHMETIC} <= {
            "mul.rn.f32",
            "mul.rn.f64",
        }
        assert not any("ftz" in one or "approx" in one for one in opcodes)
        # nothing that counts on an order
        assert not {"atom", "red"} & {one.split(".")[0] for one in opcodes}
        assert any(one.startswith("cvt.rzi.s64") for one in opcodes)
    assert not any(primed["spilled"])


def test_aligned_targets_are_read_in_words_of_sixteen_bytes(primed):
    aligned, other = primed["opcodes"][0], primed["opcodes"][1]
    assert "ld.global.v4.b32" in aligned
    assert "ld.global.v4.b32" not in other
    assert "ld.global.v2.b64" in primed["opcodes"][3]


# -- on a GPU ---------------------------------------------------------------------------------

_ON_A_GPU = """
import dataclasses, sys
import numpy as np
import torch
from pp4.kernels.loading import forbid_compilation
from pp4.verifier import fused, vectorised
from pp4.verifier.batch import stacked
from pp4.verifier.vectorised import Verdicts
from pp4.verifier.words import Word, Words
from tests.unit.verifier.test_vectorised import any_case, large

device = torch.device("cuda", 0)


def same(found, expected, what):
    for one in dataclasses.fields(Verdicts):
        mine, theirs = getattr(found, one.name).cpu(), getattr(expected, one.name).cpu()
        if not torch.equal(mine, theirs):
            sys.exit(f"{what}: {one.name} {mine.tolist()} instead of {theirs.tolist()}")


for dtype in (np.float32, np.float64):
    for seed in range(20):
        # words near what decides; they make a binary of their own
        case = any_case(seed, 12, 3, 200, dtype)
        p, batch = torch.from_numpy(case.p), stacked(case.proposals, 3)
        there = Words(*(Word(one.high.cuda(), one.low.cuda()) for one in (
            case.words().accept, case.words().last)))
        found = vectorised.verify(p.cuda(), stacked(case.proposals, 3, device), there)
        same(found, vectorised.by_operators(p, batch, case.words()), f"words of {seed}")
for dtype in (torch.float32, torch.float64):
    fused.prime(3, device, dtype)
fused.prime(2, device)


def refuse(name, key):
    sys.exit(f"compiled after priming: {name}")


forbid_compilation(refuse)


def both(p, proposals, depth, what):
    target, batch = p.to(device), stacked(proposals, depth, device)
    expected = vectorised.by_operators(p, stacked(proposals, depth))
    same(vectorised.by_operators(target, batch), expected, f"{what}, operators")
    torch.cuda.set_sync_debug_mode("error")
    found = vectorised.verify(target, batch)
    torch.cuda.set_sync_debug_mode("default")
    same(found, expected, what)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = vectorised.verify(target, batch)
    for one in dataclasses.fields(Verdicts):
        getattr(again, one.name).fill_(0x5A5A)
    graph.replay()
    torch.cuda.synchronize()
    same(again, expected, f"{what}, in a graph")


for seed, vocabulary in enumerate((1, 31, 150, 1000, 4096, 4097, 20000, 64)):
    for dtype in (np.float32, np.float64):
        case = any_case(seed, 12, 3, vocabulary, dtype)
        p = np.concatenate([case.p, np.full_like(case.p[:1], np.nan)])
        both(torch.from_numpy(p), [*case.proposals, None], 3, f"V = {vocabulary}, {dtype}")
proposals, p = large()
both(p, proposals, 2, "the largest vocabulary")
"""


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    done = compiling.python(["-c", _ON_A_GPU], tmp_path)
    assert done.returncode == 0, done.stderr
