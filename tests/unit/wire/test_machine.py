"""What a machine says about itself, and what evidence is held against."""

import pytest

from pp4.errors import Code, WrongError
from pp4.receipts.bindings import kernel_facts
from pp4.receipts.models import read_model
from pp4.run.machine import subject_of
from pp4.wire.facts import read
from pp4.wire.machine import Machine
from tests.unit.qualify.machines import NEXT, machine
from tests.unit.receipts import samples


def subject(facts, uuids=None):
    return subject_of(read(Machine, facts), "s", uuids)


def test_what_was_dumped_is_read_back():
    one = read(Machine, machine())
    assert read(Machine, one.model_dump(mode="json")) == one


def test_a_subject_has_the_facts_by_the_names_of_receipts():
    model = read_model(samples.sample("qualification"), "q")
    found = subject(machine())
    assert found.source_digest == "s"
    assert found.gpu_uuids == frozenset(samples.UUIDS)
    assert found.gpu_models == {"H200"}
    assert found.drivers == {"570.1"}
    assert found.libraries == {row["name"]: row["sha256"] for row in samples.LIBRARIES}
    assert found.kernels == kernel_facts(model.kernels)


def test_two_files_of_one_name_are_both_said():
    facts = machine()
    facts["libraries"].append({**facts["libraries"][0], "sha256": samples.digest("0")})
    name = facts["libraries"][0]["name"]
    both = sorted([samples.digest("0"), facts["libraries"][0]["sha256"]])
    assert subject(facts).libraries[name] == " and ".join(both)
    facts["libraries"][-1] = facts["libraries"][0]
    assert subject(facts).libraries[name] == facts["libraries"][0]["sha256"]


@pytest.mark.parametrize(
    ("uuids", "found"),
    [
        (None, {*samples.UUIDS, NEXT}),
        ((), {*samples.UUIDS, NEXT}),
        (samples.UUIDS, set(samples.UUIDS)),
        ((samples.UUIDS[0], "GPU-gone"), {samples.UUIDS[0]}),
        (("GPU-gone",), {*samples.UUIDS, NEXT}),
    ],
)
def test_only_the_gpus_that_are_meant_count(uuids, found):
    facts = machine()
    facts["gpus"].append({"uuid": NEXT, "name": "L4", "driver": "570.1"})
    assert subject(facts, uuids).gpu_uuids == found


@pytest.mark.parametrize(
    "change",
    [
        {"gpus": []},
        {"gpus": None},
        {"libraries": [{"name": "a"}]},
        {"kernels": [{"name": "a"}]},
        {"boot_id": ""},
        {"more": 1},
    ],
)
def test_another_shape_is_a_bad_frame(change):
    with pytest.raises(WrongError) as caught:
        read(Machine, {**machine(), **change})
    assert caught.value.refusal.code is Code.BAD_FRAME
