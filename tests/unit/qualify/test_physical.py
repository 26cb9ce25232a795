"""What a run on GPUs takes, and how it takes the names of machines out of what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, Exit, RefusedError
from pp4.qualify.physical import pair_of
from pp4.run.naming import without_names
from pp4.wire.gpus import GpuReport
from tests.unit.qualify.gpus import PLACES, UUIDS, gpu, report

COMMAND = "pp4 pair-qualify --hold local"


def refused(found):
    with pytest.raises(RefusedError) as caught:
        pair_of(found, COMMAND)
    refusal = caught.value.refusal
    assert (refusal.code, caught.value.exit) == (Code.NO_GPU_PAIR, Exit.REFUSED)
    assert (refusal.where, refusal.source) == (COMMAND, "NVML")
    assert refusal.next == "pp4 doctor"
    assert "two GPUs" in refusal.expected
    return refusal


def test_the_first_two_gpus_that_reach_each_other_are_a_pair():
    assert pair_of(report(gpu(0), gpu(1)), COMMAND) == UUIDS
    third = gpu(2, pci_bus_id="00000000:D8:00.0")
    three = report(gpu(0), gpu(1), third, bad={(0, 1)})
    assert pair_of(three, COMMAND) == (gpu(0).uuid, third.uuid)


@pytest.mark.parametrize("index", [0, 1])
def test_a_gpu_whose_place_is_not_told_is_refused_before_the_run(index):
    """Its receipt would not verify."""
    gpus = [gpu(0), gpu(1)]
    gpus[index] = gpu(index, pci_bus_id=None)
    with pytest.raises(RefusedError) as caught:
        pair_of(report(*gpus), COMMAND)
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
    assert "PCI id" in caught.value.refusal.found


@pytest.mark.parametrize(("gpus", "there"), [((), "no GPU"), ((0,), "0: H200"), ((1,), "1: H200")])
def test_less_than_two_gpus_are_no_pair(gpus, there):
    assert refused(report(*(gpu(index) for index in gpus))).found == there


@pytest.mark.parametrize("bad", [{(0, 1)}, {(1, 0)}, {(0, 1), (1, 0)}])
def test_gpus_that_cannot_write_each_other_are_no_pair(bad):
    found = refused(report(gpu(0), gpu(1), bad=bad)).found
    assert found.startswith("0: H200, 1: H200; ")
    for source, target in bad:
        assert f"{source} to {target}: read ok, write not_supported" in found
    assert ("write ok" in found) == (len(bad) == 1)


def test_gpus_that_can_write_but_not_read_are_told_so():
    good = report(gpu(0), gpu(1))
    ways = [way.model_copy(update={"read": "chipset_not_supported"}) for way in good.p2p]
    found = refused(good.model_copy(update={"p2p": tuple(ways)})).found
    assert "read chipset_not_supported" in found


def test_a_gpu_that_is_cut_into_slices_is_told_so():
    """All that the refusal says of the way is good: it is the slices that keep them apart."""
    found = refused(report(gpu(0), gpu(1, mig=True))).found
    assert "slices" in found or "MIG" in found.upper()


def test_the_refusal_names_models_and_no_board():
    refusal = refused(report(gpu(0), gpu(1), bad={(0, 1)}))
    assert not any(name in str(refusal.as_dict()) for name in (*UUIDS, *PLACES))


def test_a_report_of_nothing_is_still_a_report():
    assert GpuReport.model_validate(report().model_dump()).gpus == ()


# -- names --------------------------------------------------------------------------------------

NAMES = {
    "gpu.0.uuid": UUIDS[0],
    "gpu.1.uuid": UUIDS[1],
    "gpu.0.pci_id": PLACES[0],
    "gpu.1.pci_id": PLACES[1],
}
SECRETS = tuple(NAMES.values())
WORDS = {value: name for name, value in NAMES.items()}
TEXTS = st.lists(st.sampled_from([*SECRETS, "", "a", "GPU-", " on ", "\n"]), max_size=4).map(
    "".join
)
KEYS = st.text("abc", min_size=1, max_size=3)
TREES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)


def texts(tree):
    """Every text of a tree, keys of objects among them."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield key
            yield from texts(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from texts(value)


def back(tree):
    """Put the names back."""
    if isinstance(tree, str):
        for name, value in NAMES.items():
            tree = tree.replace(name, value)
        return tree
    if isinstance(tree, dict):
        return {key: back(value) for key, value in tree.items()}
    return [back(value) for value in tree] if isinstance(tree, list | tuple) else tree


def plain(tree):
    """The tree with lists for tuples, as JSON has them."""
    if isinstance(tree, dict):
        return {key: plain(value) for key, value in tree.items()}
    return [plain(value) for value in tree] if isinstance(tree, list | tuple) else tree


@given(TREES)
def test_no_name_is_left_and_nothing_else_is_changed(tree):
    found = without_names(tree, WORDS)
    for text in texts(found):
        assert not any(secret in text for secret in SECRETS)
    assert back(found) == plain(tree)


def test_a_name_as_the_key_of_an_object_is_taken_out_as_well():
    found = without_names({"memory": {UUIDS[0]: 5, PLACES[1]: [6]}}, WORDS)
    assert found == {"memory": {"gpu.0.uuid": 5, "gpu.1.pci_id": [6]}}


def test_numbers_and_nothing_stay_what_they_are():
    for value in (0, 1, True, False, None, 1.5, 1 << 70):
        assert without_names(value, WORDS) is value
    assert without_names((), WORDS) == []
    assert without_names({"a": UUIDS[0]}, {}) == {"a": UUIDS[0]}


def test_the_longest_name_is_looked_for_first():
    """The driver's own messages have a shorter form of a place that is inside the longer one."""
    words = {"3b:00.0": "short", "0000:3b:00.0": "long"}
    assert without_names("at 0000:3b:00.0, or 3b:00.0", words) == "at long, or short"
