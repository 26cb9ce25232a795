"""Memory of real processes by name, and what the driver said in the form of a round."""

import subprocess
import sys

import pytest
import torch

from pp4.engine.measured.looking import Resident, allocator, gpu_facts, gpu_memory
from pp4.errors import BadInputError
from pp4.worker.gpu_readings import Reading
from tests.unit.processes import LONG, state, within

MIB = 1 << 20
GROWS = """
import sys
sys.stdin.read(1)
taken = bytearray(b"x") * (64 << 20)
print("grown", flush=True)
sys.stdin.read()
"""
FINE = Reading(10, 346, 3201, 76_543, 31, ("gpu_idle",), {})
MUTE = Reading(None, None, 3201, None, 31, (), {"memory_used_bytes": "lost", "clocks.sm": "lost"})


@pytest.fixture
def child():
    """A process that takes 64 MiB when it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", GROWS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate(timeout=LONG)


def test_what_a_process_takes_is_seen(child):
    watched = Resident({"rank0": child.pid})
    (before,) = watched.read().values()
    child.stdin.write("x")
    child.stdin.flush()
    assert child.stdout.readline() == "grown\n"
    found = watched.read()
    assert list(found) == ["rss.rank0"]
    assert 64 * MIB <= found["rss.rank0"] - before < 80 * MIB
    watched.close()
    assert watched.read() == {}


def test_a_process_that_has_ended_gives_its_reason(child):
    watched = Resident({"worker": child.pid})
    child.kill()
    assert within(lambda: state(child.pid) == "Z")
    # neither as a zombie nor once the number is free
    assert isinstance(watched.read()["rss.worker"], str)
    child.communicate(timeout=LONG)
    assert "smaps_rollup" in watched.read()["rss.worker"]
    watched.close()


def test_a_process_that_is_not_there_is_refused(child):
    child.kill()
    child.communicate(timeout=LONG)
    with pytest.raises(BadInputError, match="process rank1: expected one that runs"):
        Resident({"rank1": child.pid})


def test_a_cpu_has_no_allocator_that_counts():
    found = allocator(torch.device("cpu"))
    assert set(found) == {"torch.allocated", "torch.reserved"}
    assert all(isinstance(reason, str) for reason in found.values())


def test_memory_of_gpus_is_by_rank():
    assert gpu_memory((FINE, MUTE)) == {"nvml.gpu.0": 10, "nvml.gpu.1": "lost"}
    assert gpu_memory(()) == {"nvml": "no GPU takes part"}


def test_facts_are_by_rank_and_none_is_made_up():
    assert gpu_facts((FINE, MUTE)) == {
        "gpu.0.sm_mhz": 346,
        "gpu.0.memory_mhz": 3201,
        "gpu.0.power_mw": 76_543,
        "gpu.0.temperature_c": 31,
        "gpu.0.slowed_by": ("gpu_idle",),
        "gpu.1.memory_mhz": 3201,
        "gpu.1.temperature_c": 31,
        "gpu.1.slowed_by": (),
        "gpu.1.unanswered": ("clocks.sm: lost", "memory_used_bytes: lost"),
    }
    assert gpu_facts(()) == {}
