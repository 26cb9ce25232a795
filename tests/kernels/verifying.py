"""Launches the verifier's kernels over poisoned buffers, and compares with torch's operators."""

import dataclasses
from contextlib import contextmanager

import torch
from hypothesis import strategies as st

from pp4.verifier import fused, vectorised
from pp4.verifier.fused import Tiling
from pp4.verifier.vectorised import Verdicts

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
