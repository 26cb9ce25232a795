"""Gate 6 judged: what a sound worker is, and when its outputs are those of the archive."""

from dataclasses import fields, replace

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from pp4.qualify.judge.whole_worker import Identity
from pp4.receipts.models import read_model
from tests.unit.qualify.whole_runs import (
    BATCH,
    DEVICES,
    LIBRARIES,
    PIDS,
    SOLO_KERNELS,
    digest,
    frozen,
    output,
    primed,
    served,
    settled,
    torn_down,
    whole_run,
)
from tests.unit.receipts import samples


def sound(*, compiles=True, **changes):
    return judge.sound(whole_run(**changes), DEVICES, BATCH, compiles=compiles)


def test_a_worker_that_did_everything_is_sound():
    assert sound() is None
    # what nobody can see is not counted as nothing: it is said to be unseen
    both = served(compilations=(None, None)), settled(compilations=(None, None))
    assert sound(compiles=False, served=both[0], settled=both[1]) is None
    assert sound(compiles=False, served=served(bias=())) is None


@pytest.mark.parametrize("unseen", [(None, 0), (0, None), (None, None)])
def test_a_rank_that_compiles_itself_has_to_have_looked(unseen):
    assert sound(served=served(compilations=unseen)) is Code.INCOMPLETE
    assert sound(settled=settled(compilations=unseen)) is Code.INCOMPLETE


FAULTY = primed(1).model_copy(update={"faults": ("a store after the release",)})
UNSOUND = {
    "another device": ({"frozen": frozen(devices=DEVICES[::-1])}, Code.DEVICE_MISMATCH),
    "one device twice": ({"frozen": frozen(devices=DEVICES[:1] * 2)}, Code.DEVICE_MISMATCH),
    "compiled meanwhile": ({"settled": settled(compilations=(0, 1))}, Code.COMPILED_AFTER_PRIMING),
    "compiled before": ({"served": served(compilations=(1, 0))}, Code.COMPILED_AFTER_PRIMING),
    "no kernel": ({"served": served(kernels=())}, Code.KERNELS_DIFFER),
    "one rank's kernel": ({"served": served(kernels=(primed(0),))}, Code.KERNELS_DIFFER),
    "two kernels": (
        {"served": served(kernels=(primed(0), primed(1, "other")))},
        Code.KERNELS_DIFFER,
    ),
    "a rank twice": ({"served": served(kernels=(primed(0), primed(0)))}, Code.KERNELS_DIFFER),
    "bias rows of one rank": ({"served": served(bias=(primed(0, "b"),))}, Code.KERNELS_DIFFER),
    "no kernel of bias rows": ({"served": served(bias=())}, Code.KERNELS_DIFFER),
    "two kernels of bias rows": (
        {"served": served(bias=(primed(0, "b"), primed(1, "c")))},
        Code.KERNELS_DIFFER,
    ),
    "order in the text": ({"served": served(kernels=(primed(0), FAULTY))}, Code.PTX_ORDER),
    "other files mapped": ({"mapped": ("m", "n")}, Code.LIBRARY_CHANGED),
    "nothing mapped": ({"mapped": ("", "")}, Code.LIBRARY_CHANGED),
    "switch off": ({"frozen": frozen(sampled=False)}, Code.INCOMPLETE),
    "another batch": ({"frozen": frozen(batches=(1, BATCH))}, Code.INCOMPLETE),
    "nothing to draw": ({"frozen": frozen(asked_sampled=0, with_q=0)}, Code.INCOMPLETE),
    "a drawn row without q": ({"frozen": frozen(with_q=13)}, Code.INCOMPLETE),
    "a greedy row with q": ({"frozen": frozen(without_q=9)}, Code.T0_DREW),
    "rows one after another": (
        {"settled": settled(counters={"blocks": 13, "rows": 24})},
        Code.INCOMPLETE,
    ),
    "rows of somebody else": (
        {"settled": settled(counters={"blocks": 12, "rows": 25})},
        Code.INCOMPLETE,
    ),
    "nothing counted": ({"settled": settled(counters={})}, Code.INCOMPLETE),
    "ranks of one process": (
        {"served": served(pids=(41, 41)), "ended": torn_down(pids=(41, 41))},
        Code.NOT_TORN_DOWN,
    ),
    "others ended": ({"ended": torn_down(pids=PIDS[::-1])}, Code.NOT_TORN_DOWN),
    "one lives": ({"ended": torn_down(dead=(True, False))}, Code.NOT_TORN_DOWN),
    "a workspace left": ({"ended": torn_down(links_left=1)}, Code.NOT_TORN_DOWN),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_worker_that_is_not_sound(name):
    changes, code = UNSOUND[name]
    assert sound(**changes) is code


ONE, MORE = LIBRARIES
CHANGED = ONE.model_copy(update={"sha256": "0" * 64})


@pytest.mark.parametrize(
    ("gates", "worker", "code"),
    [
        ((ONE,), (ONE, MORE), None),
        ((ONE, MORE), (ONE,), None),
        ((CHANGED, MORE), (ONE, MORE), Code.LIBRARY_CHANGED),
        # two files under one name, one of which nobody has hashed before
        ((ONE,), (ONE, CHANGED), Code.LIBRARY_CHANGED),
        ((ONE,), (MORE,), Code.LIBRARY_CHANGED),
        ((ONE,), (), Code.LIBRARY_CHANGED),
        ((), (ONE,), Code.LIBRARY_CHANGED),
    ],
)
def test_libraries_of_a_worker_are_those_of_the_gates_as_far_as_both_have_them(gates, worker, code):
    assert judge.loaded(served(libraries=worker), gates) is code


def test_blocks_that_are_all_alike_depend_on_nothing():
    same = output(1, 4).model_copy(update={"blocks": (digest("x"),) * 3})
    assert sound(frozen=frozen(outputs=(same, output(1, 5)))) is Code.OUTPUT_MISMATCH
    # one block alone can be like no other
    alone = {"counters": {"blocks": 1, "rows": 24}}
    assert sound(frozen=frozen(outputs=(output(1, 4, blocks=1),)), settled=settled(**alone)) is None


def identity(**changes):
    given = {
        "gpu_model": "H200",
        "definition_sha256": "d" * 64,
        "query_block": 5,
        "checkpoint_sha256": digest("checkpoint"),
        "input_set_sha256": digest("inputs"),
        "solo_kernels": SOLO_KERNELS,
        "outputs": frozen().outputs,
        **changes,
    }
    return Identity(**given)


def test_the_same_outputs_of_the_same_are_identical():
    assert judge.identity(identity(), identity()) is None


def flipped(outputs, place, block, character):
    """Outputs with one character of one digest changed."""
    one = outputs[place]
    text = one.blocks[block]
    other = "0" if text[character] != "0" else "1"
    changed = text[:character] + other + text[character + 1 :]
    blocks = (*one.blocks[:block], changed, *one.blocks[block + 1 :])
    spoiled = one.model_copy(update={"blocks": blocks})
    return (*outputs[:place], spoiled, *outputs[place + 1 :])


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize("character", [0, 17, 63])
def test_one_byte_anywhere_in_any_digest_is_found(place, block, character):
    archive = identity(outputs=flipped(frozen().outputs, place, block, character))
    assert judge.identity(archive, identity()) is Code.OUTPUT_MISMATCH
    assert judge.identity(identity(), archive) is Code.OUTPUT_MISMATCH


OTHERS = {
    "definition_sha256": "e" * 64,
    "query_block": 7,
    "checkpoint_sha256": digest("another"),
    "input_set_sha256": digest("another"),
    "solo_kernels": frozenset({("sm_90", "1" * 64, "2" * 64)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_outputs_are_bound_to_is_compared_before_them(name):
    archive = identity(**{name: OTHERS[name]}, outputs=())
    assert judge.identity(archive, identity()) is Code.EVIDENCE_MISMATCH


def test_everything_that_outputs_are_bound_to_is_compared():
    assert {field.name for field in fields(Identity)} == {*OTHERS, "gpu_model", "outputs"}


def test_another_model_is_refused_whatever_else_differs():
    archive = identity(gpu_model="GB10", outputs=(), checkpoint_sha256=digest("another"))
    assert judge.identity(archive, identity()) is Code.SUBJECT_MISMATCH


@pytest.mark.parametrize(
    "outputs",
    [
        (),
        frozen().outputs[:-1],
        frozen().outputs[::-1],
        (*frozen().outputs[:-1], output(8, 5)),
        (*frozen().outputs[:-1], output(3, 5, blocks=2)),
    ],
)
def test_blocks_that_are_missing_are_not_called_different(outputs):
    assert judge.identity(identity(outputs=outputs), identity()) is Code.INCOMPLETE


def test_nothing_equals_nothing_is_no_identity():
    assert judge.identity(identity(outputs=()), identity(outputs=())) is Code.INCOMPLETE


def test_an_archived_receipt_states_all_of_it():
    receipt = read_model(samples.sample("whole_worker"), "r")
    found = judge.archived(receipt)
    assert found.gpu_model == "H200"
    assert found.definition_sha256 == "d" * 64
    assert (found.query_block, found.checkpoint_sha256) == (5, "3" * 64)
    assert found.input_set_sha256 == "4" * 64
    assert found.solo_kernels == {
        ("sm_90", "8" * 64, "9" * 64),
        ("sm_90", "4" * 64, "5" * 64),
    }
    assert [(one.key, one.blocks) for one in found.outputs] == [
        ((1, 5, 4), ("5" * 64,)),
        ((1, 5, 5), ("6" * 64, "7" * 64)),
    ]
    # a run that gave the same is identical to it, and one that did not is not
    assert judge.identity(found, replace(found)) is None
    other = flipped(found.outputs, 1, 1, 5)
    assert judge.identity(found, replace(found, outputs=other)) is Code.OUTPUT_MISMATCH
