"""Workspaces at addresses that fit 32 bits: where a heap lies is not ours to choose."""

import ctypes

import pytest
import torch

from pp4.kernels.block import Request
from pp4.kernels.geometry import Geometry
from pp4.kernels.link import Bounds, LinkState, workspace_words
from tests.kernels.cases import Case, differences, normal

PROT_READ_WRITE = 0x3
MAP_PRIVATE_ANONYMOUS_32BIT = 0x02 | 0x20 | 0x40
SIZE = 1 << 16


class LowLink(LinkState):
    """A solo link whose words lie below 2**31."""

    shards = 2
    rank = 0
    peer_address = 0

    def __init__(self, words, rows):
        super().__init__(words, rows, 1, Bounds())


@pytest.fixture
def low_words():
    """int64 words below 2**31, unmapped afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    address = libc.mmap(None, SIZE, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_32BIT, -1, 0)
    if address is None or not 0 < address < 1 << 31:
        pytest.skip("the system gives no memory below 2**31")
    yield torch.frombuffer((ctypes.c_int64 * (SIZE // 8)).from_address(address), dtype=torch.int64)
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.munmap(address, SIZE)


def test_a_low_workspace_gives_the_reference_bits(low_words):
    geometry = Geometry(vocab=70, split=40, tile=32, rank_dim=4)
    case = Case(
        geometry,
        normal(1, 70, 4),
        normal(2, 70, 4),
        [Request(key=5, position=7, round=1, anchor=3)],
        normal(3, 1, 2, 70),
    )
    block = case.block(LowLink(low_words[: workspace_words(1)], 1))
    block.run()
    assert not differences(block.outputs(), case.expected())
    assert block.link.words().clean
