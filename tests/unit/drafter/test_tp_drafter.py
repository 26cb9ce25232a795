"""A rank's drafter: its branch, its rows against the exact reference, what a row depends on."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.drafter.heads import HeadMode
from pp4.drafter.shapes import Path
from pp4.errors import Code, RefusedError
from pp4.kernels.block import SampledBlock
from tests.unit.drafter.drafting import (
    CONFIGS,
    GREEDY,
    MIXED,
    PADDING,
    SAMPLED,
    WIDE,
    Row,
    base_of,
    check,
    draft,
    expected,
    greedy,
    solo,
    unused,
)

# -- the sampled path ---------------------------------------------------------------------------


@pytest.mark.parametrize("n_out", [4, 5])
@pytest.mark.parametrize("name", CONFIGS)
def test_sampled_and_greedy_rows_are_those_of_the_exact_reference(name, n_out):
    config = CONFIGS[name]
    captured, found, tail = draft(solo(config, [(3, n_out)]), n_out, MIXED)
    assert captured.path is Path.SAMPLED
    wanted = check(config, MIXED, n_out, found)
    assert not wanted.error.any()
    assert not tail.any()
    # each row had one epoch more at each position, from 1
    assert found["stamp"][:, :n_out].tolist() == [list(range(2, n_out + 2))] * 3


@pytest.mark.parametrize("name", ["five", "reduced"])
def test_the_interpreted_kernel_gives_the_same_bytes(name):
    config, rows = CONFIGS[name], (MIXED[0], PADDING, replace(MIXED[1], request=2))
    raw = []
    for make in (None, SampledBlock):
        drafter = solo(config, [(3, 4)], **({"make_block": make} if make else {}))
        captured, found, _ = draft(drafter, 4, rows)
        check(config, rows, 4, found)
        raw.append(captured.outputs.numpy().tobytes())
    assert raw[0] == raw[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_confidences_are_of_the_anchor_and_the_drafted_tokens(name):
    config = CONFIGS[name]
    for rows, path in ((MIXED, Path.SAMPLED), (greedy(MIXED), Path.ORIGINAL)):
        drafter = solo(config, [(3, 4)])
        captured, found, _ = draft(drafter, 4, rows)
        assert captured.path is path
        hidden, _ = base_of(config, rows, 4)
        anchors = np.array([[row.anchor] for row in rows])
        previous = torch.from_numpy(np.hstack([anchors, found["token"][:, :3]]).astype(np.int64))
        wanted = drafter._model.confidence(hidden[:, :4], previous)
        assert found["confidence"][:, :4].tobytes() == wanted.numpy().tobytes()
        assert (found["confidence"][:, :4] > 0).all()
        unused(found, 4)


def test_without_a_confidence_head_confidences_are_zero():
    config = replace(WIDE, confidence=False, confidence_with_markov=False)
    drafter = solo(config, [(3, 4)])
    for rows in (MIXED, greedy(MIXED)):
        _, found, _ = draft(drafter, 4, rows)
        assert not found["confidence"].any()


# -- the branch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_rows_are_the_original_path_and_equal_the_switch_off(name):
    config, rows = CONFIGS[name], greedy(MIXED)
    on, off = (solo(config, [(3, 4)], on=switch) for switch in (True, False))
    first, by_off, tail = draft(off, 4, MIXED)
    second, by_on, _ = draft(on, 4, rows)
    assert (first.path, second.path) == (Path.ORIGINAL, Path.ORIGINAL)
    assert first.outputs.numpy().tobytes() == second.outputs.numpy().tobytes()
    wanted = expected(config, rows, 4)
    assert by_on["token"][:, :4].tolist() == wanted.token.tolist()
    assert (by_off["ids"][:, :4] == -1).all()
    assert not by_off["q"].any()
    assert not by_off["error"].any()
    assert not by_off["stamp"].any()
    assert not tail.any()
    unused(by_off, 4)
    # a greedy row beside sampled ones draws nothing else than it does alone
    _, mixed, _ = draft(on, 4, MIXED)
    assert mixed["token"][1].tolist() == by_off["token"][1].tolist()
    assert mixed["token"][0].tolist() != by_off["token"][0].tolist()
    assert mixed["confidence"][1].tobytes() == by_off["confidence"][1].tobytes()


def test_one_object_a_path_after_any_order_and_all_greedy_is_the_original_itself():
    drafter = solo(WIDE, [(3, 4), (3, 5)])
    original, _, _ = draft(drafter, 4, greedy(MIXED))
    sampled, _, _ = draft(drafter, 4, MIXED)
    again, _, _ = draft(drafter, 4, [*greedy(MIXED[:2]), PADDING])
    assert again is original
    assert draft(drafter, 4, MIXED)[0] is sampled
    assert sampled is not original
    assert sampled.outputs is not original.outputs
    assert draft(drafter, 5, greedy(MIXED))[0] is not original
    pointers = {one.outputs.data_ptr() for one in (original, again)}
    assert len(pointers) == 1


def test_original_outputs_outlive_sampled_blocks_and_the_other_way_round():
    drafter = solo(WIDE, [(3, 4)])
    original, first, _ = draft(drafter, 4, greedy(MIXED))
    kept = original.outputs.clone()
    sampled, _, _ = draft(drafter, 4, MIXED)
    assert torch.equal(original.outputs, kept)
    other = sampled.outputs.clone()
    draft(drafter, 4, greedy(MIXED))
    assert torch.equal(sampled.outputs, other)
    assert first["token"].any()


def refuses_to_be_made(*_, **__):
    raise AssertionError("a sampled block where sampled drafting is off")


def test_off_nothing_of_the_sampled_path_is_made():
    drafter = solo(WIDE, [(3, 4)], on=False, make_block=refuses_to_be_made, cache_mib=64)
    assert drafter.markov is None
    captured, _, _ = draft(drafter, 4, MIXED)
    assert captured.path is Path.ORIGINAL
    for mode in HeadMode:
        assert drafter.heads((3, 4), (SAMPLED, SAMPLED, GREEDY), mode) is captured


@pytest.mark.parametrize("mode", [one for one in HeadMode if one is not HeadMode.DEFAULT])
def test_another_head_mode_refuses_where_a_row_is_sampled(mode):
    drafter = solo(WIDE, [(3, 4)])
    with pytest.raises(RefusedError) as caught:
        drafter.heads((3, 4), (SAMPLED, GREEDY, GREEDY), mode)
    assert caught.value.refusal.code is Code.UNSUPPORTED_HEAD_MODE
    assert drafter.heads((3, 4), (GREEDY,) * 3, mode).path is Path.ORIGINAL


@pytest.mark.parametrize(
    ("modes", "code"),
    [((SAMPLED, GREEDY), Code.MISSING_SAMPLED_GRAPH), ((GREEDY, GREEDY), Code.MISSING_GRAPH)],
)
def test_a_shape_that_was_not_captured_refuses(modes, code):
    drafter = solo(WIDE, [(3, 4)])
    with pytest.raises(RefusedError) as caught:
        drafter.heads((2, 4), modes)
    assert caught.value.refusal.code is code
    with pytest.raises(RefusedError) as caught:
        drafter.inputs((2, 4))
    assert caught.value.refusal.code is Code.MISSING_GRAPH
    assert drafter.shapes == ((3, 4),)


# -- what a row depends on ----------------------------------------------------------------------


def test_a_row_depends_on_itself_alone():
    """Not on its neighbours, its place, padding, or what a shape drafted before."""
    mine = Row(0, 9, 5)
    others = [Row(1, 20, 77, GREEDY), Row(2, 1, 3), Row(3, 0, 149)]
    seen = []
    for on, rows in (
        (True, [mine, *others[:2]]),
        (True, [others[2], others[0], mine]),
        (True, [PADDING, mine, PADDING]),
        (False, [mine, *others[:2]]),
        (False, [PADDING, PADDING, mine]),
    ):
        drafter = solo(WIDE, [(3, 4)], on=on)
        draft(drafter, 4, [Row(3, 0, 88), PADDING, PADDING])
        _, found, _ = draft(drafter, 4, rows)
        row = found[rows.index(mine)].copy()
        row["stamp"] = 0
        seen.append(row.tobytes())
    assert len(set(seen[:3])) == 1
    assert len(set(seen[3:])) == 1


@pytest.mark.parametrize("on", [True, False])
def test_a_row_of_padding_is_zero_but_for_its_stamp(on):
    drafter = solo(WIDE, [(3, 4)], on=on)
    draft(drafter, 4, MIXED)
    _, found, _ = draft(drafter, 4, [PADDING, MIXED[0], PADDING])
    for place in (0, 2):
        for name in ("ids", "q", "token", "confidence", "error"):
            assert not found[name][place].any(), name
    assert found["token"][1].any()


def test_a_request_goes_on_with_features_of_what_was_accepted():
    """Blocks one after another over a slot that another request had before."""
    drafter = solo(WIDE, [(1, 4)])
    draft(drafter, 4, [Row(5, 24, 1)])
    drafter.cache.close(5)
    row = Row(6, 3, 9)
    for step in range(3):
        _, found, _ = draft(drafter, 4, [row])
        check(WIDE, [row], 4, found)
        # the anchor and one drafted token were accepted, and the target said what comes next
        row = replace(row, length=row.length + 2, anchor=int(found["token"][0, 1]), round=step + 2)
