"""Which pair may serve again: only one on which nothing went wrong, of which nobody is lost."""

import os
import signal

import pytest

from tests.unit.processes import halt, running, within
from tests.unit.worker.owners import HASTY, case

STREAM = {"batch": 1, "n_out": 1, "cached": "mixed", "seed": 7, "blocks": 1}


def healthy(owner):
    """The owner's word; a refusal is no answer to this question, and health needs no reason."""
    found = owner.ask("healthy")
    assert not (found["healthy"] and found["why"])
    return found["healthy"]


def test_a_pair_is_healthy_once_it_is_primed_and_while_it_serves(owner):
    owner.teardown()
    assert not healthy(owner)
    owner.start()
    assert not healthy(owner)
    owner.prime()
    assert healthy(owner)
    owner.link()
    assert owner.block()["released"]
    assert healthy(owner)
    # a new rendezvous on the same processes serves like the first
    pids = owner.pids
    start = owner.link()
    found = owner.block()
    assert found["released"]
    assert found["expected_stamps"] == [[start + 1, start + 2]]
    assert owner.pids == pids
    assert healthy(owner)


def test_what_a_rank_refuses_before_it_launches_takes_no_health(pair):
    assert pair.refused("block", case=case(), launches=[{"graph": "none"}] * 2)
    assert pair.refused("prime", shape={"vocab": 1}) == "BAD_FRAME"
    assert healthy(pair)
    assert pair.block()["released"]


def test_a_stream_that_ended_well_takes_no_health(pair):
    for found in pair.both("stream", STREAM):
        assert (found["mismatches"], found["own_error"]) == (0, 0)
    assert healthy(pair)
    pair.link()
    assert pair.block()["released"]


def test_a_reply_that_was_kept_ends_the_health_and_says_why(owner):
    owner.fresh()
    assert owner.block(case(flaw="nan"))["why"] == "BAD_LOGITS"
    found = owner.ask("healthy")
    assert not found["healthy"]
    assert "BAD_LOGITS" in found["why"]
    # a new rendezvous heals nothing
    owner.link()
    assert not healthy(owner)


def test_a_block_that_did_not_end_in_time_ends_the_health(owner):
    owner.fresh()
    halt(owner.pids[0])
    reply = owner.reply("block", case=case(), limit_s=0.5)
    assert reply.refusal["code"] == "STEP_TIMEOUT"
    os.kill(owner.pids[0], signal.SIGCONT)
    assert not healthy(owner)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pair_that_lost_a_rank_is_not_healthy(owner, rank):
    owner.fresh()
    os.kill(owner.pids[rank], signal.SIGKILL)
    assert within(lambda: not running(owner.pids[rank]))
    # nobody has asked that rank anything since
    assert not healthy(owner)


def test_a_rank_that_timed_out_alone_ends_the_health_of_the_pair(owner):
    """Past the owner's rules the words are the rank's answer, and they are as sticky."""
    owner.fresh(HASTY)
    alone = owner.one(0, "run", {"case": case(n_out=1), "launch": {}})
    assert alone["own_error"] == 3
    assert not healthy(owner)


def test_a_stream_that_ended_in_an_error_word_ends_the_health_of_the_pair(owner):
    owner.fresh(HASTY)
    found = owner.one(0, "stream", STREAM)
    assert (found["own_error"], found["mismatches"]) == (3, 1)
    assert not healthy(owner)


# -- a rank that counts from elsewhere ------------------------------------------------------


def test_ranks_that_both_count_from_elsewhere_are_kept_by_their_stamps(pair):
    start = pair.link()
    elsewhere = 9 if start != 9 else 11
    assert pair.both("recount", {"start": elsewhere}) == [{}, {}]
    found = pair.block()
    # to each other they are right, with every word clean; only the owner knows better
    assert (found["released"], found["why"]) == (False, "INCOMPLETE")
    for one in found["blocks"]:
        assert (one["own_error"], one["peer_error"]) == (0, 0)
        assert one["stamps"] == [[elsewhere + 1, elsewhere + 2]]


@pytest.mark.parametrize("step", [2, -2])
def test_a_rank_that_counts_from_elsewhere_alone_is_found_by_its_peer(owner, step):
    # patient: who is ahead is found as soon as a message arrives, and the peer is told
    start = owner.fresh()
    # the same slots, so that the messages meet
    assert owner.one(0, "recount", {"start": start + step}) == {}
    found = owner.block()
    assert (found["released"], found["why"]) == (False, "PROTOCOL")
    assert all(min(one["errors"][0]) > 0 for one in found["blocks"])


def test_what_a_recount_leaves_is_a_new_workspace(pair):
    start = pair.link()
    assert pair.block()["released"]
    assert pair.both("recount", {"start": start}) == [{}, {}]
    found = pair.block()
    assert [one["stamps"] for one in found["blocks"]] == [[[start + 1, start + 2]]] * 2
    assert not any(one["own_error"] or one["peer_error"] for one in found["blocks"])
