import itertools
import re
from collections import deque
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.qualify.host_model import CONTRACT, ECHOING, ONE_SLOT, PLANTED, Property, explore
from pp4.qualify.host_model import world as w
from pp4.qualify.host_model.explore import moves_from
from tests.order.naive_exchange import reads_wrong

CODE_BITS = (w.EMPTY_ROW, w.BAD_LOGITS, w.PEER_TIMEOUT, w.PROTOCOL, w.EPOCH_EXHAUSTED)
ORDER_SWITCHES = (
    "ack_barrier",
    "store_barrier",
    "read_barrier",
    "consumed_barrier",
    "flag_after_data",
    "flag_release",
    "waits_ack",
)


def starts(protocol, launches=2):
    return [w.first_world(protocol.slots, launches, rough=rough) for rough in (False, True)]


def reachable(protocol, positions, launches):
    """Every reachable state with its moves, found without the search under test."""
    todo = deque(starts(protocol, launches))
    seen = set(todo)
    while todo:
        state = todo.popleft()
        moves = list(moves_from(state, protocol, positions))
        yield state, moves
        for move in moves:
            if move.world not in seen:
                seen.add(move.world)
                todo.append(move.world)


# --- the contract -----------------------------------------------------------------------------


def test_contract_keeps_every_property():
    """With one slot; the others are an arm of every rehearsal, and tests/rehearsal reads it."""
    found = explore(ONE_SLOT)
    assert found.violations == ()
    assert found.complete
    assert found.protocol == ONE_SLOT.name
    assert found.moves > found.states
    # a number that shrinks unnoticed would mean that a fault or an interleaving fell out
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert f"{found.states:,}" in page


@pytest.fixture(scope="module")
def small_space():
    return list(reachable(CONTRACT, 2, 1))


def test_search_reaches_every_fault_code_and_outcome(small_space):
    worlds = [state for state, _ in small_space]
    ranks = [rank for state in worlds for rank in state.ranks]
    faults = {state.fault[0] for state in worlds}
    assert faults == set(range(w.NO_FAULT, w.FAULT_DEATH + 1))
    assert all(any(rank.own & bit for rank in ranks) for bit in CODE_BITS)
    told = {bit for bit in CODE_BITS if any(rank.told & bit for rank in ranks)}
    assert told == {w.PEER_TIMEOUT, w.PROTOCOL, w.EPOCH_EXHAUSTED}
    assert {rank.pc for rank in ranks} == set(range(w.CHECK, w.DEAD + 1))
    ends = [state for state, moves in small_space if not moves]
    assert {state.released for state in ends} == {(True,), (False,)}


def test_echoing_ranks_tell_what_they_found_and_what_they_were_told():
    ranks = [r for state, _ in reachable(ECHOING, 1, 1) for r in state.ranks]
    assert all(any(rank.told & bit for rank in ranks) for bit in CODE_BITS)
    assert any(rank.own & rank.told & w.EPOCH_EXHAUSTED for rank in ranks)


def test_search_kills_a_rank_at_every_place(small_space):
    before = {
        state.ranks[who].pc
        for state, moves in small_space
        for move in moves
        for who in (0, 1)
        if move.world.ranks[who].pc == w.DEAD != state.ranks[who].pc
    }
    assert before == {w.CHECK, w.WAIT_ACK, w.WAIT_FLAG, w.READ, w.JOIN, w.REPORT}


def test_every_move_makes_progress_so_every_run_is_bounded(small_space):
    def measure(state):
        total = state.fault[0] != w.NO_FAULT
        for rank in state.ranks:
            total += 100 * rank.row + 70 * len(rank.reports) + 10 * rank.pc
            total += sum(value != w.UNREAD for value in rank.got)
        return total

    for state, moves in small_space:
        assert all(measure(move.world) > measure(state) for move in moves)


def test_a_fault_never_ends_in_a_released_reply(small_space):
    hurt = [
        state
        for state, moves in small_space
        if not moves
        and (any(r.own or r.told for r in state.ranks) or state.fault[0] == w.FAULT_LOST)
    ]
    assert hurt
    assert not any(state.released[0] for state in hurt)


def test_model_stays_clean_with_more_launches_and_other_lengths():
    for positions, launches in ((1, 3), (4, 1)):
        assert explore(CONTRACT, positions=positions, launches=launches).violations == ()


def test_two_slots_in_lockstep_hide_the_lack_of_an_acknowledgement():
    """No wrong data without the wait, yet the rule is broken: why one slot shows the damage."""
    found = explore(PLANTED["missing-acknowledgement"], launches=1)
    assert found.complete
    assert [v.property for v in found.violations] == [Property.REUSE]


# --- the planted bugs ---------------------------------------------------------------------------


@cache
def searched(name):
    """What the search for a planted bug finds; the tests look at one search for each."""
    return explore(PLANTED[name], until=PLANTED[name].breaks)


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_planted_bug_is_found_by_the_property_it_breaks(name):
    found = searched(name)
    assert PLANTED[name].breaks in {violation.property for violation in found.violations}


def test_the_page_on_the_protocol_says_what_the_search_finds():
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| `([A-Z_]+)` \| (\d+) \|$", page, re.MULTILINE)
    said = {name: (broken, int(lines)) for name, broken, lines in rows}
    assert len(said) == len(rows)
    found = {}
    for name, bug in PLANTED.items():
        violations = searched(name).violations
        (violation,) = [v for v in violations if v.property is bug.breaks]
        found[name] = (violation.property.name, len(violation.trace))
    assert said == found


def test_every_property_is_broken_by_some_bug():
    assert {bug.breaks for bug in PLANTED.values()} == set(Property)


def test_bugs_are_named_apart_and_turn_few_rules():
    assert all(name == bug.name for name, bug in PLANTED.items())
    for bug in PLANTED.values():
        base = ONE_SLOT if bug.slots == 1 else CONTRACT
        turned = [
            field.name
            for field in fields(bug)
            if field.name not in ("name", "breaks")
            and getattr(bug, field.name) != getattr(base, field.name)
        ]
        assert len(turned) == (2 if bug.name == "reused-epoch-unchecked" else 1), bug.name


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_trace_is_a_real_run_that_ends_in_the_broken_property(name):
    protocol, found = PLANTED[name], searched(name)
    (violation,) = [v for v in found.violations if v.property is protocol.breaks]
    level = set(starts(protocol))
    for line in violation.trace[:-1]:
        following = set()
        for state in level:
            for move in moves_from(state, protocol, 3):
                if move.text == line:
                    following.add(move.world)
        level = following
        assert level, f"no run has the line {line!r} here"
    last = [list(moves_from(state, protocol, 3)) for state in level]
    text = violation.trace[-1]
    if text.startswith("rank "):
        assert any(m.text == text and protocol.breaks in m.broken for moves in last for m in moves)
    else:  # a verdict on a state out of which nothing leads
        assert [] in last


@pytest.mark.parametrize("name", ["missing-barrier", "unbounded-wait", "unequal-masks"])
def test_no_shorter_run_breaks_the_property(name):
    protocol, found = PLANTED[name], searched(name)
    (violation,) = [v for v in found.violations if v.property is protocol.breaks]
    level = set(starts(protocol))
    for _ in violation.trace[:-1]:
        moves = [m for state in level for m in moves_from(state, protocol, 3)]
        assert not any(protocol.breaks in move.broken for move in moves)
        level = {move.world for move in moves}


def test_trace_reads_as_numbered_lines():
    bug = PLANTED["missing-barrier"]
    violation = explore(bug, until=bug.breaks).violations[0]
    lines = str(violation).splitlines()
    assert lines[0] == f"broken: {Property.UNION.value}"
    assert lines[1].startswith("  1. rank ")
    assert len(lines) == 1 + len(violation.trace)
    assert "no barrier" in str(violation)
    assert "before anything landed" in lines[-1]


def test_search_that_ends_early_says_so():
    bug = PLANTED["missing-barrier"]
    assert not explore(bug, until=bug.breaks).complete


@pytest.mark.parametrize(("positions", "launches"), [(0, 2), (3, 0), (-1, 1)])
def test_empty_runs_are_refused(positions, launches):
    with pytest.raises(ValueError, match="start at 1"):
        explore(positions=positions, launches=launches)


# --- the memory ---------------------------------------------------------------------------------


def rank(**changes):
    return w.first_world(2, 1, rough=False).ranks[0]._replace(**changes)


def test_release_lands_with_everything_before_it():
    peer = rank(queue=(w.Store(w.DATA, 2, 7), w.Store(w.FLAG, 1, 7), w.Store(w.ACK, 0, 6)))
    me, left = w.arrive(rank(), peer, 1, shared_word=False)
    assert me.inbox == (0, 0, 7, 0)
    assert me.flags == (0, 7)
    assert me.ack == 0
    assert left.queue == (w.Store(w.ACK, 0, 6),)


def test_plain_store_lands_alone():
    peer = rank(queue=(w.Store(w.DATA, 2, 7), w.Store(w.FLAG, 1, 7, plain=True)))
    me, left = w.arrive(rank(), peer, 1, shared_word=False)
    assert me.inbox == (0, 0, 0, 0)
    assert me.flags == (0, 7)
    assert left.queue == (w.Store(w.DATA, 2, 7),)


def test_load_may_find_what_is_in_flight_in_either_warp():
    peer = rank(queue=(w.Store(w.DATA, 3, 1),), loose=(w.Store(w.DATA, 3, 2),))
    found = {value: (me, left) for value, me, left in w.readings(rank(), peer, 3)}
    assert set(found) == {0, 1, 2}
    me, left = found[2]
    assert me.inbox[3] == 2
    # the older store can no longer overwrite the newer one
    assert left.queue == left.loose == ()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_stores_to_one_place_never_land_out_of_order(places, data):
    stores = tuple(
        w.Store(w.DATA, place, number, plain=True) for number, place in enumerate(places, start=1)
    )
    me, peer = rank(), rank(queue=stores)
    while peer.queue:
        pick = data.draw(st.integers(0, len(peer.queue) - 1))
        me, peer = w.arrive(me, peer, pick, shared_word=False)
    newest = {place: number for number, place in enumerate(places, start=1)}
    assert me.inbox == tuple(newest.get(place, 0) for place in range(4))


@given(st.sets(st.sampled_from(CODE_BITS)))
def test_precedence_is_that_of_the_codes(bits):
    expected = max(bits, default=0)
    assert w.worst(sum(bits)) == expected
    assert w.CODES[expected]


def test_codes_rise_from_empty_row_to_exhausted_epoch():
    names = [w.CODES[bit] for bit in CODE_BITS]
    assert names == ["EMPTY_ROW", "BAD_LOGITS", "PEER_TIMEOUT", "PROTOCOL", "EPOCH_EXHAUSTED"]


# --- against a model that leaves nothing out ----------------------------------------------------


def test_reduced_search_agrees_with_the_naive_one_on_every_mix_of_order_rules():
    """The naive model interleaves single stores, landings and loads of all four warps."""
    for values in itertools.product((True, False), repeat=len(ORDER_SWITCHES)):
        rules = dict(zip(ORDER_SWITCHES, values, strict=True))
        protocol = replace(ONE_SLOT, name="mixed", **rules)
        naive, _ = reads_wrong(protocol, 2)
        found = explore(protocol, positions=2, launches=1, until=Property.UNION)
        reduced = Property.UNION in {violation.property for violation in found.violations}
        assert reduced == naive, [name for name, value in rules.items() if not value]


@pytest.mark.slow
def test_naive_model_finds_no_wrong_read_when_two_slots_are_reused():
    wrong, states = reads_wrong(CONTRACT, 3)
    assert not wrong
    assert states > 100_000
