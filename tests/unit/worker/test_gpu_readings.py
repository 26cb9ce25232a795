"""GPUs that are looked at again and again: one NVML, the order that was asked for, no answers."""

import pytest

from pp4.errors import Code, RefusedError
from pp4.worker.gpu_readings import GpuReadings
from tests.unit.worker.nvml_double import DRIVER_NOT_LOADED, GPU_IS_LOST, Nvml, fails, gpu, uuid


def test_nvml_stays_open_from_look_to_look():
    nvml = Nvml(gpu(0), gpu(1))
    readings = GpuReadings([uuid(1)], nvml)
    (first,) = readings.read()
    nvml.gpus[1]["nvmlDeviceGetPowerUsage"] = 400_000
    (second,) = readings.read()
    assert (nvml.open, nvml.closed) == (1, 0)
    assert (first.power_mw, second.power_mw) == (76_543, 400_000)
    assert (first.memory_used_bytes, first.sm_mhz, first.memory_mhz) == (10, 346, 3201)
    assert (first.temperature_c, first.slowed_by, dict(first.unanswered)) == (31, ("gpu_idle",), {})
    readings.close()
    assert (nvml.open, nvml.closed) == (0, 1)


def test_readings_are_in_the_order_of_the_ranks():
    one, other = gpu(0), gpu(1)
    one["nvmlDeviceGetPowerUsage"], other["nvmlDeviceGetPowerUsage"] = 1, 2
    readings = GpuReadings([uuid(1), uuid(0)], Nvml(one, other))
    assert [found.power_mw for found in readings.read()] == [2, 1]


def test_what_is_not_answered_has_its_reason():
    lost = gpu(0)
    readings = GpuReadings([uuid(0)], Nvml(lost))
    lost.update({name: fails(GPU_IS_LOST) for name in lost})
    (found,) = readings.read()
    assert found.memory_used_bytes is found.sm_mhz is found.power_mw is found.slowed_by is None
    reasons = ("memory_used_bytes", "clocks.sm", "power_mw", "temperature_c", "slowed_by")
    assert {found.unanswered[name] for name in reasons} == {"GPU is lost"}


def test_a_gpu_that_is_not_there_is_refused_and_nvml_let_go():
    nvml = Nvml(gpu(0))
    with pytest.raises(RefusedError) as caught:
        GpuReadings([uuid(0), uuid(1)], nvml)
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
    assert (caught.value.refusal.expected, caught.value.refusal.found) == (
        f"GPU {uuid(1)}",
        uuid(0),
    )
    assert (nvml.open, nvml.closed) == (0, 1)


def test_no_driver_is_refused():
    with pytest.raises(RefusedError) as caught:
        GpuReadings([], Nvml(init=DRIVER_NOT_LOADED))
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
