"""The branch between the selectors: every switch, batch and head mode."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.drafter.heads import HeadMode, Heads
from pp4.errors import Code, RefusedError

PADDING, SAMPLED, GREEDY = 0, 1, 2
SHAPE, OTHER = (2, 4), (3, 4)


class Original:
    """Counts replays; its outputs are one object for ever."""

    def __init__(self):
        self.outputs, self.replays = object(), 0

    def replay(self):
        self.replays += 1
        return self.outputs


class Sampled:
    def __init__(self):
        self.block, self.replays = object(), 0

    def replay(self):
        self.replays += 1


@pytest.fixture
def original():
    return Original()


@pytest.fixture
def sampled():
    return Sampled()


def modes_of(length):
    return list(product((PADDING, SAMPLED, GREEDY), repeat=length))


@pytest.mark.parametrize("modes", modes_of(2))
@pytest.mark.parametrize("head_mode", list(HeadMode))
def test_off_is_always_the_original_itself(original, modes, head_mode):
    chosen = Heads({SHAPE: original}, None).select(SHAPE, modes, head_mode)
    assert chosen is original.outputs
    assert original.replays == 1


@pytest.mark.parametrize("modes", [m for m in modes_of(3) if SAMPLED not in m])
@pytest.mark.parametrize("head_mode", list(HeadMode))
@pytest.mark.parametrize("captured", [True, False])
def test_on_with_nothing_to_sample_is_the_original_itself(
    original, sampled, modes, head_mode, captured
):
    heads = Heads({OTHER: original}, {OTHER: sampled} if captured else {})
    assert heads.select(OTHER, modes, head_mode) is original.outputs
    assert (original.replays, sampled.replays) == (1, 0)


@pytest.mark.parametrize("modes", [m for m in modes_of(2) if SAMPLED in m])
def test_on_with_one_sampled_row_is_the_sampled_graph_alone(original, sampled, modes):
    chosen = Heads({SHAPE: original}, {SHAPE: sampled}).select(SHAPE, modes)
    assert chosen is sampled.block
    assert (original.replays, sampled.replays) == (0, 1)


def test_off_and_all_greedy_on_give_the_same_object_after_any_order(original, sampled):
    off, on = Heads({SHAPE: original}, None), Heads({SHAPE: original}, {SHAPE: sampled})
    first = off.select(SHAPE, (GREEDY, GREEDY))
    assert on.select(SHAPE, (SAMPLED, GREEDY)) is sampled.block
    assert on.select(SHAPE, (GREEDY, GREEDY)) is first
    assert off.select(SHAPE, (GREEDY, SAMPLED)) is first


@pytest.mark.parametrize("captured", [{}, {OTHER: Sampled()}, {(4, 2): Sampled()}])
def test_a_shape_without_a_sampled_graph_refuses_and_nothing_runs_instead(original, captured):
    with pytest.raises(RefusedError) as caught:
        Heads({SHAPE: original}, captured).select(SHAPE, (SAMPLED, GREEDY))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.MISSING_SAMPLED_GRAPH, "batch 2, n_out 4")
    assert original.replays == 0
    assert all(graph.replays == 0 for graph in captured.values())


UNSUPPORTED = [mode for mode in HeadMode if mode is not HeadMode.DEFAULT]


@pytest.mark.parametrize("head_mode", UNSUPPORTED)
@pytest.mark.parametrize("captured", [True, False])
def test_a_head_mode_that_the_sampled_path_lacks_refuses_by_name(
    original, sampled, head_mode, captured
):
    heads = Heads({SHAPE: original}, {SHAPE: sampled} if captured else {})
    with pytest.raises(RefusedError) as caught:
        heads.select(SHAPE, (SAMPLED, SAMPLED), head_mode)
    refusal = caught.value.refusal
    assert refusal.code is Code.UNSUPPORTED_HEAD_MODE
    assert refusal.found == head_mode.value
    assert refusal.next
    assert (original.replays, sampled.replays) == (0, 0)


def test_the_modes_are_those_that_were_named():
    assert {mode.value for mode in UNSUPPORTED} == {"native", "partial-rank", "margin", "traced"}


@given(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.booleans())
def test_the_branch_depends_on_the_switch_and_on_one_sampled_row(modes, switch):
    original, sampled = Original(), Sampled()
    chosen = Heads({SHAPE: original}, {SHAPE: sampled} if switch else None).select(SHAPE, modes)
    assert (chosen is sampled.block) is (switch and SAMPLED in modes)
    assert original.replays + sampled.replays == 1


@pytest.mark.parametrize("switch", [True, False])
def test_a_shape_without_an_original_graph_refuses_by_name(original, sampled, switch):
    heads = Heads({OTHER: original}, {SHAPE: sampled} if switch else None)
    with pytest.raises(RefusedError) as caught:
        heads.select(SHAPE, (GREEDY, GREEDY))
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.MISSING_GRAPH, "batch 2, n_out 4")
    assert (original.replays, sampled.replays) == (0, 0)
