"""How many blocks are resident, with a driver that stands in for a GPU's."""

from types import SimpleNamespace

import pytest
import torch

from pp4.errors import Code, RefusedError
from pp4.kernels.occupancy import resident_blocks

BUILT = SimpleNamespace(
    name="_kernel", function=0x1234, metadata=SimpleNamespace(num_warps=4, shared=2048)
)


class Driver:
    """Writes down what it is asked and answers."""

    def __init__(self, each, status=0):
        self.each, self.status, self.asked = each, status, []

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out, function, threads, shared):
        self.asked.append((function.value, threads.value, shared.value))
        out._obj.value = self.each
        return self.status


@pytest.fixture(autouse=True)
def _multiprocessors(monkeypatch):
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


@pytest.mark.parametrize("each", [0, 1, 2, 7])
def test_the_whole_device_holds_what_its_multiprocessors_hold(each):
    driver = Driver(each)
    assert resident_blocks(BUILT, torch.device("cuda", 1), driver) == 132 * each
    # the function, threads of four warps, bytes of shared memory
    assert driver.asked == [(0x1234, 128, 2048)]


def test_a_driver_that_does_not_say_is_a_refusal():
    with pytest.raises(RefusedError) as raised:
        resident_blocks(BUILT, torch.device("cuda", 1), Driver(2, status=400))
    assert raised.value.refusal.code is Code.UNPRIMED
    assert raised.value.refusal.found == "CUDA error 400"


@pytest.mark.gpu
def test_a_gpu_holds_more_blocks_of_a_small_kernel_than_it_has_multiprocessors():
    triton = pytest.importorskip("triton")
    if triton.knobs.runtime.interpret:
        pytest.skip("kernels are interpreted in this process")
    from pp4.kernels import pattern

    device = torch.device("cuda", 0)
    built = pattern.prime(device)
    limit = torch.cuda.get_device_properties(device)
    assert limit.multi_processor_count < built.resident <= 32 * limit.multi_processor_count
