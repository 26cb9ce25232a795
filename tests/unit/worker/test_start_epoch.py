"""Start epochs: in range, the same for both ranks, another one for every rendezvous."""

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pp4.kernels.link import START_BELOW
from pp4.worker.epochs import start_epoch

ROOT = Path(__file__).parents[3]
nonces = st.text(max_size=40)
fences = st.integers(0, 1 << 63)
generations = st.integers(1, 1 << 40)


@given(nonces, fences, generations)
def test_a_start_is_one_that_a_link_takes(nonce, fence, generation):
    assert 0 < start_epoch(nonce, fence, generation) < START_BELOW


@given(nonces, fences, generations, st.integers(1, START_BELOW - 2))
def test_two_rendezvous_of_a_hold_never_start_alike(nonce, fence, generation, later):
    first = start_epoch(nonce, fence, generation)
    assert first != start_epoch(nonce, fence, generation + later)


@given(nonces, fences, generations)
def test_neighbours_are_far_apart(nonce, fence, generation):
    """A block uses few epochs: the next link must not begin where the last one may have ended."""
    one, other = (start_epoch(nonce, fence, generation + step) for step in (0, 1))
    assert min((one - other) % (START_BELOW - 1), (other - one) % (START_BELOW - 1)) > 300_000


def test_nonce_and_fence_both_count():
    base = start_epoch("nonce", 1, 1)
    assert len({base, start_epoch("other", 1, 1), start_epoch("nonce", 2, 1)}) == 3
    # written out: "1:1" and "11:" must not be the same words
    assert start_epoch("1", 11, 1) != start_epoch("1:1", 1, 1)


def test_another_process_counts_the_same():
    code = "from pp4.worker.epochs import start_epoch; print(start_epoch('a', 3, 7))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == start_epoch("a", 3, 7)
