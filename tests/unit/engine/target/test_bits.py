"""A token's logits and features depend, bit for bit, on the tokens before it alone."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.engine.interface import Row
from pp4.engine.target.exact import VALUE_BITS, WEIGHT_BITS, on_grid, silu
from tests.unit.engine.target.checkpoints import SMALL, target_of
from tests.unit.engine.target.stepping import Piece, one_by_one, pieces, run, tokens_of

# Widths that fill neither vectors nor tiles.
ODD = replace(SMALL, layers=2, hidden=52, heads=6, kv_heads=3, head_dim=10, intermediate=37)
SLOTS, WINDOW = 3, 6


def same(found, expected):
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@settings(max_examples=25)
@given(
    st.sampled_from([SMALL, ODD]),
    st.integers(0, 3),
    st.integers(0, 12),
    st.integers(1, 16),
    st.integers(0, SLOTS - 1),
    st.data(),
)
def test_any_cut_into_steps_gives_the_bits_of_plain_decoding(
    config, seed, prompt, stepped, slot, data
):
    """Places in a window, rejected tails, neighbours, the slot and padding change nothing."""
    taps = (-1, 0, 1)
    tokens = tokens_of(prompt + stepped, config.vocab, seed)
    target = target_of(config, seed, taps=taps, slots=SLOTS, window=WINDOW, context=40)
    plain = run(target, tokens, prompt, one_by_one(stepped))
    cut = data.draw(
        pieces(stepped, slot=slot, slots=SLOTS, window=WINDOW, vocab=config.vocab), "cut"
    )
    # the same target goes on, with whatever the first run left in its cache
    assert same(run(target, tokens, prompt, cut, slot), plain)


# Widths at which a GEMM takes more than one tile.
WIDE = replace(
    SMALL, layers=2, hidden=256, head_dim=64, intermediate=640, vocab=1003, max_positions=600
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("slots", [1, 3, 16])
def test_a_wider_target_has_the_bits_of_plain_decoding_too(device, slots):
    target = target_of(WIDE, taps=(0, 1), slots=slots, context=512, device=device)
    tokens, noise = tokens_of(120, WIDE.vocab), tuple(tokens_of(6, WIDE.vocab, 1))
    plain = run(target, tokens, 100, one_by_one(20))
    crowd = {slot: (noise[: 1 + slot % 6], slot % 2) for slot in range(slots - 1)}
    cut = [
        Piece(6),
        Piece(1, noise[:5]),
        Piece(3, noise[:2], crowd),
        Piece(2, noise[:4], crowd, place=len(crowd)),
        Piece(5),
        Piece(3, (), crowd),
    ]
    assert same(run(target, tokens, 100, cut, slots - 1), plain)
    assert plain[0].std() > 1


@pytest.mark.parametrize(("slots", "window"), [(7, 1), (1, 7), (5, 2)])
def test_threads_do_not_bring_places_back(slots, window):
    """With two, a GEMM of FP32 of these heights gives some rows other bits than their twins."""
    one_layer = replace(WIDE, layers=1)
    target = target_of(one_layer, taps=(0,), slots=slots, window=window, context=16)
    tokens, before = tokens_of(16, WIDE.vocab), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        plain = run(target, tokens, 9, one_by_one(7))
        cut = one_by_one(7 % window) + [Piece(window)] * (7 // window)
        found = [run(target, tokens, 9, cut, slot) for slot in {slots // 2, slots - 1}]
    finally:
        torch.set_num_threads(before)
    assert all(same(one, plain) for one in found)


def test_keys_and_values_of_a_step_do_not_depend_on_the_place():
    tokens = tokens_of(12, SMALL.vocab)
    caches = []
    for cut in (one_by_one(12), [Piece(6), Piece(6)], [Piece(1), Piece(5, (3,)), Piece(6)]):
        target = target_of(SMALL)
        run(target, tokens, 0, cut)
        decoder = target._decoder
        caches.append([kept[:, 0, :, :12].clone() for kept in (decoder._keys, decoder._values)])
    assert same(caches[1], caches[0])
    assert same(caches[2], caches[0])
    assert caches[0][0].abs().min(dim=-1).values.max() > 0


def test_what_is_masked_changes_nothing_whatever_it_is():
    tokens = tokens_of(14, SMALL.vocab)
    clean, poisoned = target_of(SMALL), target_of(SMALL)
    for kept in (poisoned._decoder._keys, poisoned._decoder._values):
        kept.fill_(1e30)
    assert same(run(poisoned, tokens, 9, [Piece(5, (1,))]), run(clean, tokens, 9, one_by_one(5)))


def test_the_end_of_a_prompt_changes_nothing_of_what_is_before_it():
    tokens, target = tokens_of(140, SMALL.vocab), target_of(SMALL, context=150)
    whole = target.prefill(0, tokens)
    for count in (1, 63, 64, 65, 128, 139):
        assert torch.equal(target.prefill(2, tokens[:count]), whole[:count])


def test_rows_that_are_not_kept_yet_outlive_the_steps_of_others():
    tokens = tokens_of(10, SMALL.vocab)
    target, alone = target_of(SMALL), target_of(SMALL)
    target.prefill(0, tokens[:4])
    target.step([Row(0, tokens[4:8])])
    for _ in range(3):
        target.step([Row(1, tokens[:6]), Row(2, tokens[:1])])
    target.keep(0, 4)
    found = target.step([Row(0, tokens[8:])])
    logits, _ = run(alone, tokens, 4, one_by_one(6))
    assert torch.equal(found.logits[0, :2], logits[4:])


@pytest.mark.parametrize("bits", [VALUE_BITS, WEIGHT_BITS])
def test_the_grid_is_the_nearest_and_keeps_what_lies_on_it(bits):
    step = 2.0**-bits
    values = torch.tensor([0.0, 0.49, 0.5, 0.51, 1.5, -0.5, -0.75, 2.5, 1e9], dtype=torch.float64)
    expected = torch.tensor([0.0, 0, 0, 1, 2, 0, -1, 2, 1e9], dtype=torch.float64)
    assert torch.equal(on_grid(values * step, bits), expected * step)
    patterns = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    large = patterns[patterns.isfinite() & (patterns.abs() >= 2.0 ** (7 - bits))]
    assert len(large) > 1 << 15
    assert torch.equal(on_grid(large, bits), large.double())


@settings(max_examples=30)
@given(st.integers(0, 1 << 30), st.integers(1, 700), st.permutations(range(5)))
def test_a_sum_on_the_grid_has_no_order(seed, width, order):
    state = torch.Generator().manual_seed(seed)
    scale = torch.tensor([1e-6, 1e-3, 1.0, 20.0, 90.0])[list(order)].repeat(width)[:width]
    left = on_grid((torch.randn(4, width, generator=state) * scale).bfloat16())
    right = on_grid((torch.randn(3, width, generator=state) * scale.flip(0).sqrt()).bfloat16())
    shuffled = torch.randperm(width, generator=state)
    expected = left @ right.T
    assert torch.equal(left[:, shuffled] @ right[:, shuffled].T, expected)
    steps = [[int(v * 2**VALUE_BITS) for v in row] for row in left.tolist()]
    others = [[int(v * 2**VALUE_BITS) for v in row] for row in right.tolist()]
    sums = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in others] for x in steps]
    assert (expected * 4.0**VALUE_BITS).tolist() == sums


def test_no_last_bit_of_silu_shows_in_bf16():
    """All BF16 numbers: results that are some units of float64 apart round to the same."""
    patterns = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    finite = patterns[patterns.isfinite()]
    wide = finite.double()
    for factor in (1 - 2.0**-48, 1, 1 + 2.0**-48):
        assert torch.equal((wide / (1 + torch.exp(-wide)) * factor).bfloat16(), silu(finite))


def noisy_silu(real, sign):
    """Off by some last places of the type that a library computes in: FP32 for BF16."""

    def silu(values):
        places = 48 if values.dtype == torch.float64 else 20
        return (real(values.double()) * (1 + sign * 2.0**-places)).to(values.dtype)

    return silu


def test_last_bits_of_silu_do_not_show(monkeypatch):
    real, tokens, found = torch.nn.functional.silu, tokens_of(64, WIDE.vocab), []
    for sign in (-1, 1):
        monkeypatch.setattr(torch.nn.functional, "silu", noisy_silu(real, sign))
        target = target_of(WIDE, taps=(0, 1), slots=1, context=70)
        found.append((*run(target, tokens, 58, [Piece(6)]), target._decoder._values))
    assert same(*found)


READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}


def reads_of(call):
    """By which operators values are read back from tensors."""
    # of what runs on a CPU it notes every operator, also those that others call
    with torch.autograd.profiler.profile() as noted:
        call()
    names = {one.name for one in noted.function_events}
    assert names
    return names & READS


def test_a_step_reads_nothing_back():
    target = target_of(SMALL)
    target.prefill(0, [1, 2])

    def step():
        target.step([Row(0, [3, 4]), Row(2, [1])])
        target.keep(0, 1)

    assert reads_of(torch.ones(1).item) == {"aten::_local_scalar_dense"}
    assert reads_of(step) == set()


@pytest.mark.gpu
def test_a_step_waits_for_nothing_on_a_gpu():
    target = target_of(WIDE, taps=(0, 1), context=512, device="cuda")
    target.prefill(0, [1, 2])
    rows = [Row(0, [3, 4]), Row(2, [1])]
    expected = target.step(rows).logits[0, :2].clone()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = target.step(rows)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert torch.equal(found.logits[0, :2], expected)
