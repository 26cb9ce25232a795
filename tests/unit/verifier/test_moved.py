"""Arrays of a batch that go to a device together."""

import numpy as np
import pytest
import torch

from pp4.verifier.batch import moved, pack, unpacked


def arrays():
    """Of every type and of sizes that end between two places."""
    state = np.random.default_rng(3)
    return [
        state.integers(-9, 9, (3, 5, 32)).astype(np.int32),
        state.integers(-9, 9, (3, 5)).astype(np.int32),
        state.integers(-(1 << 62), 1 << 62, 3),
        np.array([0.5]),
        np.array([-7], np.int32),
    ]


def test_what_was_packed_comes_out_where_it_is_aligned():
    given = arrays()
    whole = np.full(4096, 255, np.uint8)
    pack(given, whole)
    found = unpacked(torch.from_numpy(whole), given)
    for one, array in zip(found, given, strict=True):
        assert one.numpy().dtype == array.dtype
        assert np.array_equal(one.numpy(), array)
        assert (one.data_ptr() - whole.ctypes.data) % 16 == 0
    size = sum(-(-array.nbytes // 16) * 16 for array in given)
    # one behind the other
    assert whole[size:].tolist() == [255] * (4096 - size)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_was_moved_is_what_there_was(device):
    for _ in range(3):
        given = arrays()
        found = moved(given, device)
        assert [one.device.type for one in found] == [device] * len(given)
        for one, array in zip(found, given, strict=True):
            assert one.is_contiguous()
            assert one.cpu().numpy().dtype == array.dtype
            assert np.array_equal(one.cpu().numpy(), array)


@pytest.mark.gpu
def test_it_is_not_waited_for():
    given = arrays()
    moved(given, "cuda")
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        # more of them than there is a device for: none may be written over
        torch.cuda._sleep(50_000_000)
        found = [moved([one + number for one in given], "cuda") for number in range(20)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    for number, some in enumerate(found):
        for one, array in zip(some, given, strict=True):
            assert np.array_equal(one.cpu().numpy(), array + number)
