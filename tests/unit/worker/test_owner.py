"""The owner's rules, asked of a real owner with two real ranks in the interpreter."""

import os

import pytest

from tests.unit.worker.owners import HASTY, OTHER, PATIENT, SHAPE, case, running


def test_two_ranks_are_two_processes_that_map_the_same_libraries(owner):
    first, second = owner.start()
    assert [first["rank"], second["rank"]] == [0, 1]
    assert first["device"] != second["device"]
    assert len({first["pid"], second["pid"], owner.channel.pid, os.getpid()}) == 4
    assert first["mapped"] == second["mapped"]
    # they live in the owner's group, so that whoever ends the group ends them
    assert {os.getpgid(pid) for pid in owner.pids} == {owner.channel.pid}


def test_a_pair_runs_and_both_ranks_agree_with_the_reference(pair):
    given = case(batch=2, n_out=2)
    found = pair.block(given)
    assert (found["released"], found["why"], found["died"]) == (True, "", [])
    expected = pair.ask("expect", case=given, solo=True)["ranks"]
    digests = {one["digest"] for one in found["blocks"]}
    assert digests == {rank["facts"]["digest"] for rank in expected}
    assert [rank["facts"]["by"] for rank in expected] == ["reference", "solo"]
    assert [one["stamps"] for one in found["blocks"]] == [found["expected_stamps"]] * 2


def test_epochs_go_on_from_block_to_block(pair):
    start = pair.link()
    first = pair.block(case(batch=2, n_out=2))
    assert first["expected_stamps"] == [[start + 1, start + 2]] * 2
    again = pair.block(case(batch=1, n_out=1))
    assert again["expected_stamps"] == [[start + 3]]
    padded = pair.block(case(batch=2, n_out=1, modes=[0, 1]))
    assert padded["expected_stamps"] == [[start + 3], [start + 3]]
    assert first["released"]
    assert again["released"]
    assert padded["released"]


def test_every_rendezvous_starts_elsewhere(pair):
    starts = [pair.link() for _ in range(3)]
    assert len(set(starts)) == 3
    assert pair.block()["released"]


# -- priming --------------------------------------------------------------------------------


def test_nothing_runs_without_a_pair(owner):
    owner.teardown()
    assert owner.refused("teardown") == "UNPRIMED"
    assert owner.refused("both", verb_of_rank="identity") == "UNPRIMED"
    assert owner.refused("block", case=case()) == "UNPRIMED"


def test_a_launch_without_priming_is_refused_by_owner_and_rank(owner):
    owner.start()
    owner.link(shape=None)
    assert owner.refused("block", case=case()) == "UNPRIMED"
    launch = {"case": case(), "launch": {}}
    assert owner.both("run", launch) == ["UNPRIMED"] * 2
    capture = {"name": "early", "case": case()}
    assert owner.both("capture", capture) == ["UNPRIMED"] * 2


def test_a_launch_without_a_link_is_refused(owner):
    owner.start()
    assert owner.both("seal", {"shape": SHAPE}) == [{}, {}]
    assert owner.both("run", {"case": case(), "launch": {}}) == ["UNPRIMED"] * 2


def test_a_rank_that_was_sealed_without_a_shape_captures_nothing(owner):
    owner.start()
    owner.link(shape=None)
    owner.both("seal")
    assert owner.both("capture", {"name": "x", "case": case()}) == ["UNPRIMED"] * 2


def test_a_compilation_after_priming_is_refused_and_names_the_specialisation(pair):
    replies = pair.ask("both", verb_of_rank="prime", arguments=[{"shape": OTHER}] * 2)["ranks"]
    for rank in replies:
        assert rank["refusal"]["code"] == "COMPILED_AFTER_PRIMING"
        assert "TILE=64" in rank["refusal"]["found"]
    assert pair.refused("prime", shape=OTHER) == "COMPILED_AFTER_PRIMING"
    # the refusal changed nothing
    assert pair.block()["released"]


def test_a_shape_that_no_kernel_has_is_not_sealed(owner):
    owner.start()
    given = {"nonce": "n", "fence": 1, "rows": 1, "waits": [PATIENT] * 2}
    assert owner.refused("link", **given, shape={**SHAPE, "split": 0}) == "BAD_INPUT"
    assert owner.refused("block", case=case()) == "UNPRIMED"


# -- sticky ---------------------------------------------------------------------------------


def test_after_a_fault_every_block_is_refused_until_the_pair_is_torn_down(owner):
    owner.fresh()
    spoilt = case(flaw="nan", flaw_rank=1)
    found = owner.block(spoilt)
    assert (found["released"], found["why"]) == (False, "BAD_LOGITS")
    for _ in range(2):
        assert owner.refused("block", case=case()) == "STICKY"
    # a new link on the same pair heals nothing
    owner.link()
    assert owner.refused("block", case=case()) == "STICKY"
    gone = owner.teardown()
    assert (gone["dead"], gone["links_left"]) == ([True, True], 0)
    owner.fresh()
    assert owner.block()["released"]


def test_a_pair_that_runs_is_not_started_again(pair):
    before = pair.pids
    assert pair.refused("start") == "STICKY"
    assert all(running(pid) for pid in before)
    assert pair.block()["released"]


def test_a_block_that_both_ranks_refuse_before_they_launch_leaves_the_pair_healthy(pair):
    missing = [{"graph": "none"}] * 2
    assert pair.refused("block", case=case(), launches=missing) == "MISSING_SAMPLED_GRAPH"
    assert pair.refused("block", case=case(batch=9)) == "BAD_INPUT"
    assert pair.block()["released"]


def test_a_block_that_one_rank_refuses_while_the_other_launches_is_sticky(owner):
    owner.fresh(HASTY)
    launches = [{}, {"graph": "none"}]
    assert owner.refused("block", case=case(), launches=launches) == "MISSING_SAMPLED_GRAPH"
    assert owner.refused("block", case=case()) == "STICKY"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("second", ["never", "answered"])
def test_a_rank_alone_times_out_and_nothing_leaves(owner, first, second):
    owner.fresh(HASTY)
    found = owner.block(first=first, second=second)
    assert (found["released"], found["why"]) == (False, "PEER_TIMEOUT")
    assert found["order"] == ([first] if second == "never" else [first, 1 - first])
    assert [one["rank"] for one in found["blocks"]] == sorted(found["order"])
    assert owner.refused("block", case=case()) == "STICKY"


# -- arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("no-such-verb", {}),
        ("block", {}),
        ("block", {"case": 1}),
        ("block", {"case": {}}),
        ("block", {"case": case(content="rubbish")}),
        ("block", {"case": case(), "launches": [{}]}),
        ("block", {"case": case(), "second": "sometimes"}),
        ("block", {"case": case(), "first": 2}),
        ("link", {}),
        ("link", {"nonce": "n", "fence": 1, "rows": "3", "waits": [{}, {}]}),
        ("prime", {}),
        ("both", {}),
        ("both", {"verb_of_rank": "run", "arguments": [1, 2]}),
        ("expect", {"case": case()}),
        ("select", {"case": case()}),
        ("libraries", {"flip": "yes"}),
        ("start", {"now": True}),
        ("teardown", {"force": True}),
        ("settle", {"x": None}),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_a_refusal_and_nothing_else(owner, verb, arguments):
    assert owner.refused(verb, **arguments) == "BAD_FRAME"
    assert "ranks" in owner.ask("settle")


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("no-such-verb", {}),
        ("run", {}),
        ("run", {"case": case(), "launch": {"grpah": 1}}),
        ("link", {"waits": {}}),
        ("expect", {"case": case(), "by": "rumour"}),
        ("capture", {"name": "x"}),
        ("pattern", {"writer": 0}),
        ("select", {"case": case(), "switch": True, "head_mode": "sideways"}),
    ],
    ids=str,
)
def test_a_rank_answers_nonsense_with_a_refusal_and_lives_on(pair, verb, arguments):
    assert all(isinstance(code, str) for code in pair.both(verb, arguments))
    assert pair.block()["released"]


def test_settle_tells_what_is_left(owner):
    owner.fresh()
    left = owner.ask("settle")
    assert left["ranks"] == list(owner.pids)
    assert len(left["links"]) == 2
    owner.teardown()
    assert owner.ask("settle") == {"ranks": [], "links": [], "mapped": 0}


def test_libraries_are_hashed_on_request(owner):
    plain, flipped = (owner.ask("libraries", flip=flip)["libraries"] for flip in (False, True))
    assert len(plain) == len(flipped) > 0
    assert sum(one != other for one, other in zip(plain, flipped, strict=True)) == 1
