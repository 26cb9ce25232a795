"""A report of GPUs: which names mean which, and which two are a pair."""

import pytest

from pp4.errors import Code, RefusedError, WrongError
from pp4.wire.facts import read
from pp4.wire.gpus import OK, UNSUPPORTED, GpuReport, both_ways, find, first_pair

NONE = dict.fromkeys(
    (
        *("pci_bus_id", "vbios", "temperature_c", "power_mw", "power_limit_mw", "slowed_by"),
        *("performance_state", "ecc_uncorrected", "ecc_uncorrected_ever", "compute_mode"),
        *("persistence", "nvlinks", "processes", "mps_processes", "mig_pending"),
        *(f"memory_{part}_bytes" for part in ("total", "used", "free", "reserved")),
    )
)
CLOCKS = dict.fromkeys(("graphics", "sm", "memory"))


def gpu(index, uuid, mig=False, unanswered=None):
    return {
        **NONE,
        "index": index,
        "uuid": uuid,
        "name": "X",
        "clocks": CLOCKS,
        "max_clocks": CLOCKS,
        "mig": mig,
        "unanswered": unanswered or {},
    }


def tree(*gpus, bad=(), unreadable=()):
    """A report; ``bad`` ways (source, target, member) do not work."""
    indices = [one["index"] for one in gpus]
    ways = [(a, b) for a in indices for b in indices if a != b]
    members = ("read", "write", "atomics", "nvlink")
    return {
        "driver_version": "1",
        "cuda_driver_version": "13.0",
        "nvml_version": "1",
        "gpus": list(gpus),
        "unreadable": [{"index": index, "reason": "GPU is lost"} for index in unreadable],
        "p2p": [
            {
                "source": a,
                "target": b,
                **{name: "not_supported" if (a, b, name) in bad else OK for name in members},
                "topology": None,
                "unanswered": {},
            }
            for a, b in ways
        ],
        "unanswered": {},
    }


def report(*gpus, **rest):
    return read(GpuReport, tree(*gpus, **rest))


FOUR = [gpu(0, "GPU-aa00"), gpu(1, "GPU-aa11"), gpu(2, "GPU-bb22"), gpu(3, "GPU-bb")]


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("GPU-aa00", 0),
        ("GPU-aa1", 1),
        ("GPU-bb2", 2),
        # a whole UUID is that GPU, also where another one begins with it
        ("GPU-bb", 3),
        ("0", 0),
        ("3", 3),
    ],
)
def test_a_gpu_is_found_by_uuid_by_its_beginning_and_by_index(name, index):
    assert find(report(*FOUR), name).index == index


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("GPU-aa", "several: 0: GPU-aa00, 1: GPU-aa11"),
        ("GPU-b", "several: 2: GPU-bb22, 3: GPU-bb"),
        ("GPU-c", "0: GPU-aa00, 1: GPU-aa11, 2: GPU-bb22, 3: GPU-bb"),
        *((name, "0: GPU-aa00") for name in ("", "GPU-", "gpu-aa00", "aa00", "4", "00", "-1", "٣")),
    ],
)
def test_any_other_name_refuses_and_says_what_there_is(name, found):
    with pytest.raises(RefusedError) as caught:
        find(report(*FOUR), name)
    refusal = caught.value.refusal
    assert refusal.code is Code.NO_GPU_PAIR
    assert refusal.found.startswith(found)
    assert repr(name) in refusal.where
    assert refusal.next == "nvidia-smi -L"


def test_no_gpu_and_a_lost_gpu_are_said():
    for one, name, found in (
        (report(), "0", "no GPU"),
        (report(FOUR[0], unreadable=[5]), "5", "GPU is lost"),
    ):
        with pytest.raises(RefusedError) as caught:
            find(one, name)
        assert caught.value.refusal.found == found


def test_the_first_pair_is_the_first_that_reaches_both_ways():
    assert first_pair(report(*FOUR)) == ("GPU-aa00", "GPU-aa11")
    no_zero = [(0, other, "read") for other in (1, 2, 3)]
    assert first_pair(report(*FOUR, bad=no_zero)) == ("GPU-aa11", "GPU-bb22")
    assert first_pair(report(*FOUR, bad=[(1, 0, "write")])) == ("GPU-aa00", "GPU-bb22")
    assert first_pair(report(*FOUR, bad=[(0, 1, "atomics"), (0, 1, "nvlink")])) == (
        "GPU-aa00",
        "GPU-aa11",
    )
    assert first_pair(report(FOUR[2])) is first_pair(report()) is None


@pytest.mark.parametrize(
    ("mig", "unanswered", "whole"),
    [
        (False, {}, True),
        (True, {}, False),
        (None, {"mig": UNSUPPORTED}, True),
        (None, {"mig": "Insufficient Permissions"}, False),
        (None, {}, False),
    ],
)
def test_only_gpus_known_to_be_whole_are_paired(mig, unanswered, whole):
    one = gpu(0, "GPU-0", mig, unanswered)
    found = report(one, gpu(1, "GPU-1"))
    assert found.gpus[0].whole is whole
    assert first_pair(found) == (("GPU-0", "GPU-1") if whole else None)


def test_no_gpu_is_its_own_peer():
    found = report(*FOUR)
    assert both_ways(found, found.gpus[1], found.gpus[3])
    assert not both_ways(found, found.gpus[1], found.gpus[1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t["gpus"].reverse(),
        lambda t: t["gpus"][1].update(index=0),
        lambda t: t["gpus"][1].update(uuid="GPU-aa00"),
        lambda t: t["gpus"][0].update(uuid=""),
        lambda t: t["p2p"].pop(),
        lambda t: t["p2p"].append(t["p2p"][0]),
        lambda t: t["p2p"][0].update(target=9),
        lambda t: t["p2p"][0].update(target=0),
        lambda t: t["unreadable"].append({"index": 1, "reason": "lost"}),
        lambda t: t["gpus"][0].update(performance_state=16),
        lambda t: t["gpus"][0].update(memory_used_bytes=-1),
        lambda t: t["gpus"][0].update(clocks=None),
        lambda t: t["gpus"][0].pop("power_mw"),
        lambda t: t.update(source="nvidia-smi"),
    ],
)
def test_a_report_that_contradicts_itself_is_a_bad_frame(spoil):
    spoiled = tree(gpu(0, "GPU-aa00"), gpu(1, "GPU-aa11"))
    read(GpuReport, spoiled)
    spoil(spoiled)
    with pytest.raises(WrongError) as caught:
        read(GpuReport, spoiled)
    assert caught.value.refusal.code is Code.BAD_FRAME
