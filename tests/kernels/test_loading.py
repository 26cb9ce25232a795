"""Loading without a launch, with a driver that stands in for a GPU's."""

import pytest
import torch

from pp4.errors import BadInputError
from pp4.kernels.geometry import Geometry
from pp4.kernels.loading import load
from pp4.kernels.sampled_fused import _kernel
from tests.kernels.drivers import said

TINY = Geometry(vocab=64, split=32, tile=32, rank_dim=1)

LAUNCH = """
built = load(kernel, geometry=geometry, shards=2, device=device)
found["loaded"], found["launched"] = list(loaded), list(launched)
found["current"] = driver.current
found["same"] = replace(built, resident=None) == compile_offline(geometry, shards=2)
found["resident"] = built.resident
found["target"] = built.target

allow = forbid_compilation(note)
driver.current = 1
block = case.block(SoloLink(2))
block.run()
for base in (0, 1, 2**40 + 1):
    arguments = block.arguments(0)
    for name in sampled_fused.SCALARS:
        arguments[name] = base if name in ("own_workspace", "budget") else base & 1
    kernel[block.grid](**arguments)
found["after"] = list(seen)
found["launches"], found["modules"] = len(launched), len(loaded)

driver.current = 0
block.run()
found["elsewhere"] = list(seen)
allow()
found["hooks"] = [triton.knobs.runtime.jit_cache_hook, triton.knobs.compilation.listener]
load(kernel, geometry=geometry, shards=1, device=device)
found["allowed"] = len(seen)
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("loading")


@pytest.fixture(scope="module")
def launches(directory):
    return said(LAUNCH, directory)


def test_a_load_loads_and_launches_nothing(launches):
    ((name, size, device),) = launches["loaded"]
    assert (name, device) == ("_kernel", 1)
    assert size > 0
    assert launches["launched"] == []
    # the device that was current before is current again
    assert launches["current"] == 0


def test_what_is_loaded_is_what_is_compiled_without_a_gpu(launches):
    assert launches["same"]
    assert launches["target"] == "sm_90"
    assert launches["resident"] == 264


def test_the_launches_of_a_block_find_what_was_loaded(launches):
    assert launches["after"] == []
    assert launches["launches"] == 4
    assert launches["modules"] == 1


def test_a_launch_on_another_device_is_a_compilation(launches):
    ((name, key),) = launches["elsewhere"]
    assert name == "pp4.kernels.sampled_fused._kernel"
    assert "num_warps" in key


def test_compilation_can_be_allowed_again(launches):
    assert launches["allowed"] == 1
    assert launches["hooks"] == [None, None]


WHATEVER = """
load(kernel, geometry=geometry, shards=1, device=device)
called = []
triton.knobs.runtime.jit_cache_hook = lambda **said: called.append("hook") and None
triton.knobs.compilation.listener = lambda **said: called.append("listener")
allow = forbid_compilation(note)


def names():
    new, seen[:] = [name for name, _ in seen], []
    return new


mutant = build("missing_stamp", Path(DIRECTORY))._kernel
load(mutant, geometry=geometry, shards=1, device=device)
found["mutant"], found["called"] = names(), list(called)
load(mutant, geometry=geometry, shards=1, device=device)
found["again"] = names()
compile_offline(geometry, shards=2)
found["direct"] = names()
compile_offline(geometry, shards=1)
found["on_disk"] = names()


@triton.jit
def other(pointer):
    triton.language.store(pointer, 1)


other.fn.__module__ = "elsewhere"
other.warmup(triton.MockTensor(torch.int32), grid=(1,))
found["other"] = names()
other.warmup(triton.MockTensor(torch.int64), grid=(1,))
found["other_type"] = names()
allow()


def refuse(name, key):
    raise Pp4Error(Refusal(Code.COMPILED_AFTER_PRIMING, name, "no compilation", key))


from pp4.errors import Code, Refusal

forbid_compilation(refuse)
before, driver.current = len(launched), 1
block = case.block(SoloLink(2))
found["refused"] = refusal(block.run)
found["not_launched"] = len(launched) - before
found["not_compiled"] = called[-1]
"""


@pytest.fixture(scope="module")
def whatever(tmp_path_factory):
    return said(WHATEVER, tmp_path_factory.mktemp("whatever"))


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("mutant", ["sampled_fused._kernel"]),
        ("again", []),
        ("direct", ["pp4.kernels.sampled_fused._kernel"]),
        ("on_disk", ["pp4.kernels.sampled_fused._kernel"]),
        ("other", ["elsewhere.other"]),
        ("other_type", ["elsewhere.other"]),
    ],
)
def test_each_compilation_is_told_once(whatever, what, names):
    assert len(whatever[what]) == len(names)
    assert all(found.endswith(name) for found, name in zip(whatever[what], names, strict=True))
    assert what != "mutant" or whatever[what][0].startswith("pp4_control_missing_stamp_")


def test_hooks_that_were_there_are_still_called(whatever):
    assert whatever["called"] == ["hook", "listener"]


def test_an_error_ends_a_launch_before_anything_is_compiled(whatever):
    assert "COMPILED_AFTER_PRIMING: pp4.kernels.sampled_fused._kernel" in whatever["refused"]
    assert "num_warps" in whatever["refused"]
    assert whatever["not_launched"] == 0
    # the hooks that were there have heard of nothing since
    assert whatever["not_compiled"] == "listener"


REFUSED = """
def attempt(function=kernel):
    return refusal(lambda: load(function, geometry=geometry, shards=1, device=device))


SHARED = -1
found["shared"] = attempt()
found["current"] = driver.current
SHARED = 1 << 20
triton.knobs.runtime.jit_cache_hook = lambda **said: True
found["hook"] = attempt(build("missing_stamp", Path(DIRECTORY))._kernel)
"""


NO_GPU = """
triton.runtime.driver.set_active(None)
found["cpu"] = refusal(
    lambda: load(kernel, geometry=geometry, shards=1, device=torch.device("cpu"))
)
found["any"] = refusal(
    lambda: load(kernel, geometry=geometry, shards=1, device=torch.device("cuda"))
)
if not torch.cuda.is_available():
    found["none"] = refusal(lambda: load(kernel, geometry=geometry, shards=1, device=device))
"""


@pytest.fixture(scope="module")
def refused(directory):
    """In the cache of the launches: what is compiled there already is loaded like anything else."""
    return said(REFUSED + NO_GPU, directory)


def test_what_does_not_load_is_one_refusal(refused):
    for name, reason in (("shared", "OutOfResources"), ("hook", "a hook of Triton")):
        assert refused[name].startswith("UNPRIMED: kernel pp4"), refused
        assert "loads on cuda:1" in refused[name]
        assert reason in refused[name]
    assert refused["current"] == 0


def test_a_device_that_is_none_refuses(refused):
    assert refused["cpu"].startswith("BAD_INPUT: device: expected a CUDA device with its number")
    assert refused["any"].endswith("found cuda")
    assert refused.get("none", "UNPRIMED").startswith("UNPRIMED")


def test_an_interpreting_process_loads_nothing():
    with pytest.raises(BadInputError, match="TRITON_INTERPRET"):
        load(_kernel, geometry=TINY, shards=1, device=torch.device("cuda", 0))
