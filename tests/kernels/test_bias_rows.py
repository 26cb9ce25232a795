"""Bias rows by the kernel: the bits of the exact reference, on a GPU where there is one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import BadInputError
from pp4.kernels import bias_rows, reference
from pp4.kernels.device import bias_rows as device_rows
from pp4.kernels.head import patterns, values_of
from tests.kernels import compiling

NAN = 0x7FC0


def weights(seed, vocab, columns, rank_dim):
    """Random BF16 weights with rows of zeros and of tiny numbers among them."""
    random = np.random.default_rng(seed)
    made = []
    for rows in (vocab, columns):
        values = random.normal(size=(rows, rank_dim)).astype(np.float32)
        values[::3] *= 2.0**-60
        values[::5] = 0
        made.append((values.view(np.uint32) & 0xFFFF0000).view(np.float32))
    return made, [patterns(values) for values in made]


def poisoned(count, columns):
    return torch.full((count, columns), -0x5A5B, dtype=torch.int16)


@settings(max_examples=8)
@given(st.integers(0, 999), st.integers(1, 300), st.sampled_from([1, 8, 16, 32]))
def test_the_kernel_gives_the_bits_of_the_reference(seed, columns, rank_dim):
    (w1, w2), given_ = weights(seed, 11, columns, rank_dim)
    previous = torch.tensor([3, 10, 0, 3], dtype=torch.int32)
    out = poisoned(4, columns)
    bias_rows.launch(previous, *given_, out)
    expected = [reference.markov_bias(w1[token], w2) for token in previous]
    assert values_of(out).tolist() == np.array(expected).tolist()


@pytest.mark.parametrize("token", [-1, 11, 2**31 - 1])
def test_a_token_that_does_not_exist_reads_nothing_and_gives_nan(token):
    _, given_ = weights(1, 11, 40, 8)
    out = poisoned(1, 40)
    bias_rows.launch(torch.tensor([token], dtype=torch.int32), *given_, out)
    assert set(out.view(torch.int16).tolist()[0]) == {NAN}


def test_without_a_gpu_it_is_the_vectorised_reference():
    (w1, w2), given_ = weights(2, 11, 70, 8)
    out = bias_rows.bias_rows(torch.tensor([5], dtype=torch.int32), *given_)
    assert values_of(out)[0].tolist() == reference.markov_bias(w1[5], w2).tolist()


@pytest.mark.parametrize("which", range(4))
def test_what_does_not_fit_is_refused(which):
    _, (w1, w2) = weights(3, 11, 64, 8)
    given_ = [torch.zeros(2, dtype=torch.int32), w1, w2, poisoned(2, 64)]
    wrong = [given_[0].long(), w1[:, :4], w2.t(), poisoned(1, 64)]
    given_[which] = wrong[which]
    with pytest.raises(BadInputError):
        bias_rows.launch(*given_)


_ON_A_GPU = """
import sys
import torch
from pp4.kernels import bias_rows, vectorised
device = torch.device("cuda", 0)
for rank_dim in (64, 256):
    bias_rows.prime(rank_dim, device)
    w1, w2 = (
        torch.randn(rows, rank_dim, device=device).to(torch.bfloat16).view(torch.int16)
        for rows in (1000, 64641)
    )
    previous = torch.tensor([0, 7, 999, -1, 12], dtype=torch.int32, device=device)
    found = bias_rows.bias_rows(previous, w1, w2)
    expected = vectorised.markov_bias(w1[previous.clamp(min=0)], w2)
    expected[3] = 0x7FC0
    if not torch.equal(found, expected):
        sys.exit(f"rank_dim {rank_dim}: other bits than the reference")
"""


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    done = compiling.python(["-c", _ON_A_GPU], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_row_of_no_token_is_a_bad_pattern():
    assert int(device_rows.UNKNOWN.value) == NAN
