"""Where a rank runs: a GPU that is not there is an answer; a foreign process takes its memory."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pp4.config import child_environment
from pp4.errors import Code, RefusedError
from pp4.worker import cuda, interpreted
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.interpreted import Interpreted
from pp4.worker.rank import device_of
from tests.unit.processes import running
from tests.unit.worker.owners import SHAPE, Asker, case

ROOT = Path(__file__).parents[3]
NOT_THERE = ("GPU-nobody", "GPU-has-this")


ENVIRONMENT = child_environment({"PYTHONPATH": str(ROOT), "TRITON_INTERPRET": "1"})


def seen(monkeypatch, *uuids):
    """Let torch see these GPUs."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(uuid=uuids[number])
    )


# -- which GPU ------------------------------------------------------------------------------


def test_a_gpu_has_the_number_that_torch_gives_it(monkeypatch):
    seen(monkeypatch, "b", "a")
    assert (cuda.number_of("GPU-a"), cuda.number_of("GPU-b")) == (1, 0)


@pytest.mark.parametrize(
    ("uuids", "asked", "found"),
    [
        ((), "GPU-a", "this process sees no GPU"),
        (("b", "a"), "GPU-c", "this process sees GPU-a, GPU-b"),
        # the beginning of a name is no name
        (("abc",), "GPU-a", "this process sees GPU-abc"),
        (("a",), "a", "this process sees GPU-a"),
    ],
)
def test_a_gpu_that_is_not_there_is_named_with_those_that_are(monkeypatch, uuids, asked, found):
    seen(monkeypatch, *uuids)
    with pytest.raises(RefusedError) as caught:
        cuda.number_of(asked)
    refusal = caught.value.refusal
    assert (refusal.code, refusal.expected) == (Code.NO_GPU_PAIR, f"GPU {asked}")
    assert (refusal.found, refusal.next) == (found, "pp4 doctor")


def test_without_gpus_a_rank_is_interpreted(bench, tmp_path):
    device = device_of(1, Homes(tmp_path, tmp_path), Seats())
    assert isinstance(device, Interpreted)
    assert (device.name, device.shards, str(device.where)) == ("interpreter-1", 1, "cpu")
    alone = device_of(1, Homes(tmp_path, tmp_path), Seats(solo=True))
    assert (alone.name, alone.shards) == ("interpreter-0", 2)


@pytest.mark.parametrize("seats", [NOT_THERE, ("--solo", NOT_THERE[0])])
def test_a_rank_without_its_gpu_answers_and_lives(tmp_path, monkeypatch, seats):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    asker = Asker(tmp_path, seats=seats)
    try:
        ranks = asker.ask("start")["ranks"]
        wanted = [NOT_THERE[0]] * 2 if "--solo" in seats else NOT_THERE
        for rank, uuid in zip(ranks, wanted, strict=True):
            assert rank["facts"] is None
            assert (rank["refusal"]["code"], rank["refusal"]["expected"]) == (
                "NO_GPU_PAIR",
                f"GPU {uuid}",
            )
            assert "no GPU" in rank["refusal"]["found"]
        pids = asker.ask("settle")["ranks"]
        assert len(pids) == 2
        assert all(running(pid) for pid in pids)
        # it says so again, to everything that needs the GPU; what needs none is answered
        assert asker.refused("prime", shape=SHAPE) == "NO_GPU_PAIR"
        assert asker.refused("block", case=case()) == "UNPRIMED"
        assert asker.both("identity") == ["NO_GPU_PAIR"] * 2
        assert all(found["libraries"] for found in asker.both("libraries"))
        assert asker.ask("teardown")["dead"] == [True, True]
    finally:
        asker.close()


# -- the foreign process of gate 0 ----------------------------------------------------------

FOREIGN = """
import sys
import torch
from pp4.worker import foreign
taken = []
zeros, read = torch.zeros, foreign.os.read

def take(size, *, dtype, device):
    taken.append((size, str(dtype), str(device)))
    return zeros(1, dtype=dtype)

def hear(source, most):
    taken.append(read(source, most))
    return taken[-1]

foreign.os.read = hear
torch.zeros = take
torch.cuda.synchronize = lambda device: taken.append("waited")
foreign.number_of = {"GPU-x": 3}.__getitem__
foreign.main(sys.argv[1])
print(taken, file=sys.stderr)
"""


def test_a_foreign_process_takes_memory_says_so_and_stays_until_its_input_ends():
    process = subprocess.Popen(
        [sys.executable, "-c", FOREIGN, "GPU-x"],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        said = process.stdout.read1(1 << 16)
        assert b"occupied" in said
        # words do not end it; the end of its input does
        process.stdin.write(b"anything")
        process.stdin.flush()
        rest, error = process.communicate(timeout=50)
        assert (process.returncode, rest) == (0, b"")
        memory = (2 << 30, "torch.uint8", "cuda:3")
        assert error.decode().strip() == str([memory, "waited", b"anything", b""])
    finally:
        process.kill()
        process.wait()


def test_a_foreign_process_without_a_gpu_ends_at_once_and_says_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "pp4.worker.foreign", "GPU-nobody-has-this"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert done.stdout == ""
    assert "NO_GPU_PAIR" in done.stderr


# -- the interpreter's own part -------------------------------------------------------------


def test_solo_both_ranks_are_the_same_one(bench):
    mine = torch.tensor([[4, 5], [6, 7]], dtype=torch.int32)
    assert bench.device.gather(mine).tolist() == [[[4, 5], [6, 7]]] * 2


def test_a_rank_is_held_back_as_long_as_it_was_asked_for(bench, monkeypatch):
    slept = []
    monkeypatch.setattr(interpreted.time, "sleep", slept.append)
    bench.device.delay(1_500_000)
    assert slept == [0.0015]


# -- what is loaded before ranks are forked --------------------------------------------------

PRELOADED = """
import sys
from pp4.worker.owner import places
lazily = "torch.fx.experimental.symbolic_shapes"
loaded = [lazily in sys.modules]
places(["pair", "compiled"])
loaded.append(lazily in sys.modules)
places(["pair", "compiled", *sys.argv[1:]])
loaded.append(lazily in sys.modules)
import torch
from torch._prims_common import make_contiguous_strides_for
before = set(sys.modules)
make_contiguous_strides_for((1,))
print(*loaded, len(set(sys.modules) - before), torch.cuda.is_initialized())
"""


def test_an_owner_of_gpus_loads_what_every_rank_would():
    done = subprocess.run(
        [sys.executable, "-c", PRELOADED, *NOT_THERE],
        capture_output=True, text=True, check=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    *loaded, later, context = done.stdout.split()
    # an owner without GPUs does not
    assert (loaded, context) == (["False", "False", "True"], "False")
    # the step of symmetric memory's allocation that imports has nothing left to import
    assert later == "0"
