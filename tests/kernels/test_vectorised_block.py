"""The vectorised block equals the exact one, byte for byte, and never asks the host."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels import vectorised
from pp4.kernels.block import Outputs, Request
from pp4.kernels.faults import Fault
from pp4.kernels.head import patterns
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import differences, normal, random_case
from tests.kernels.test_solo import row
from tests.kernels.test_vectorised import keys, mode_tensor, modes, unsigned, word_tensors, words


def run(arguments):
    """``block`` with its arguments by name."""
    others = {name: value for name, value in arguments.items() if name not in ("w1", "w2")}
    return vectorised.block(arguments["w1"], arguments["w2"], **others)


def on_torch(case, **more):
    """A case through ``block``; -> (its arguments, outputs as the reference gives them)."""
    arguments = {
        "w1": patterns(case.w1),
        "w2": patterns(case.w2),
        "base": patterns(case.logits),
        "mode": mode_tensor(case.requests),
        "anchor": torch.tensor([one.anchor for one in case.requests]),
        **word_tensors(case.requests),
    }
    if case.token_map is not None:
        arguments["token_map"] = torch.tensor(case.token_map, dtype=torch.int32)
    arguments.update(more)
    found = run(arguments)
    arrays = [getattr(found, name).numpy() for name in ("ids", "q", "token", "error")]
    return arguments, Outputs(*arrays, np.zeros(found.token.shape, np.int64))


def check_block(case, **more):
    _, outputs = on_torch(case, **more)
    expected = case.expected()
    for name in ("ids", "q", "token", "error"):
        assert getattr(outputs, name).dtype == getattr(expected, name).dtype
        assert getattr(outputs, name).shape == getattr(expected, name).shape
    assert differences(outputs, expected) == []
    return expected


@given(st.integers(0, 2**32), st.integers(33, 120), st.integers(1, 4), st.integers(1, 4), st.data())
@settings(max_examples=40)
def test_any_blocks(seed, vocab, batch, n_out, data):
    wanted = st.builds(
        Request, mode=modes, key=keys, position=st.integers(0, 2**31 - 1), round=words,
        anchor=st.integers(0, vocab - 1),
    )  # fmt: skip
    case = random_case(
        seed, vocab=vocab, split=1, batch=batch, n_out=n_out,
        requests=data.draw(st.lists(wanted, min_size=batch, max_size=batch)),
    )  # fmt: skip
    logits = case.logits.copy()
    for row_, index in data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * 2), max_size=2)):
        logits[row_ % batch, index % n_out] = data.draw(st.sampled_from([-np.inf, np.nan, np.inf]))
    check_block(dataclasses.replace(case, logits=logits))


@pytest.mark.parametrize("mode", [SAMPLED, GREEDY])
def test_the_first_error_of_a_row_stays_with_it(mode):
    case = random_case(6, vocab=60, split=31, batch=3, n_out=4)
    logits = case.logits.copy()
    logits[0, 1], logits[0, 2, 5] = -np.inf, np.nan
    logits[1, 0, 59], logits[1, 3] = np.inf, -np.inf
    wanted = [dataclasses.replace(one, mode=mode) for one in case.requests]
    expected = check_block(dataclasses.replace(case, logits=logits, requests=wanted))
    empty, bad = Fault.EMPTY_ROW, Fault.BAD_LOGITS
    assert expected.error.tolist() == [[0, empty, empty, empty], [bad] * 4, [0] * 4]


def mapped_case():
    base = random_case(4, vocab=60, split=31, batch=4, n_out=3)
    emitted = sorted(np.random.default_rng(2).choice(np.arange(1, 200), 60, replace=False).tolist())
    logits = base.logits.copy()
    logits[0, 1, 7] = np.nan
    logits[3, 2, 20:] = -np.inf
    return dataclasses.replace(
        base,
        geometry=dataclasses.replace(base.geometry, mapped=True),
        w1=normal(9, 200, 8),
        token_map=emitted,
        logits=logits,
        requests=[
            Request(key=1, anchor=199), Request(key=2, mode=GREEDY), Request(mode=INACTIVE),
            Request(key=3, anchor=5),
        ],
    )  # fmt: skip


def test_a_reduced_vocabulary_with_errors_and_padding():
    expected = check_block(mapped_case())
    # no draft id is emitted as 0, so a padded row that was mapped would show
    assert not expected.ids[2].any()
    assert (expected.ids[3, 2] == -1).sum() == 12


def test_the_anchor_of_padding_is_not_looked_at():
    case = mapped_case()
    anchor = torch.tensor([one.anchor for one in case.requests])
    anchor[2] = -0x5A5A5A5B
    check_block(case, anchor=anchor)


def test_bias_rows_of_the_caller_take_the_place_of_the_tree():
    case = random_case(9, vocab=50, split=25, batch=3, n_out=3)
    table = vectorised.markov_bias(patterns(case.w1), patterns(case.w2))
    check_block(case, bias_of=lambda previous: table[previous])
    _, wrong = on_torch(case, bias_of=lambda previous: table[previous] * 0)
    assert differences(wrong, case.expected())


def test_nothing_is_read_back_and_nothing_lies_on_another_device():
    arguments, _ = on_torch(mapped_case())
    # tensors without values cannot be read, and no operator joins them with tensors that have some
    arguments = {name: tensor.to("meta") for name, tensor in arguments.items()}
    found = run(arguments)
    assert found.ids.is_meta
    assert found.ids.shape == (4, 3, 32)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bytes_without_waiting_for_the_host():
    case = mapped_case()
    arguments, expected = on_torch(case)
    arguments = {name: tensor.cuda() for name, tensor in arguments.items()}
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = run(arguments)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    for name in ("ids", "q", "token", "error"):
        assert getattr(found, name).cpu().numpy().tobytes() == getattr(expected, name).tobytes()


def call_select(**more):
    wanted = [Request()] * 2
    arguments = {"patterns": unsigned([row(), row()]), "mode": mode_tensor(wanted)}
    arguments = {**arguments, **word_tensors(wanted), **more}
    return vectorised.select(arguments.pop("patterns"), **arguments)


def call_block(**more):
    arguments, _ = on_torch(random_case(1, vocab=40, split=20, batch=2, n_out=1))
    return run({**arguments, **more})


short, wide = torch.zeros(2, 4, dtype=torch.int16), torch.zeros(2, 3, dtype=torch.int16)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: vectorised.markov_bias(short.float(), short), "w1_rows"),
        (lambda: vectorised.markov_bias(short[0], short), "w1_rows"),
        (lambda: vectorised.markov_bias(short, wide), "w2"),
        (lambda: vectorised.markov_bias(wide, wide), "power of two"),
        (lambda: vectorised.markov_bias(short, short, 0), "chunk"),
        (lambda: vectorised.conditioned(short, wide), "bias"),
        (lambda: vectorised.conditioned(short.int(), short), "base"),
        (lambda: call_select(patterns=short), "patterns"),
        (lambda: call_select(patterns=torch.zeros(2, 0, dtype=torch.int32)), "one column"),
        (lambda: call_select(key=torch.zeros(3, dtype=torch.int64)), "key"),
        (lambda: call_select(position=torch.zeros(2, dtype=torch.int32)), "position"),
        (lambda: call_select(mode=torch.zeros(2, dtype=torch.int64)), "mode"),
        (lambda: call_block(w1=wide), "w1"),
        (lambda: call_block(base=short), "base"),
        (lambda: call_block(base=torch.zeros(2, 0, 40, dtype=torch.int16)), "one position"),
        (lambda: call_block(anchor=torch.zeros(3, dtype=torch.int64)), "anchor"),
        (lambda: call_block(token_map=torch.zeros(39, dtype=torch.int32)), "token_map"),
        (lambda: call_block(bias_of=lambda previous: short), "bias"),
    ],
)
def test_other_shapes_and_dtypes_refuse(call, match):
    with pytest.raises(BadInputError, match=match):
        call()
