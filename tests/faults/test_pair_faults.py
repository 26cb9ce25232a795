"""Real signals at real ranks and owners: an answer within a bound, and nobody left behind."""

import os
import signal

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import WrongError
from pp4.wire import Request
from tests.unit.processes import halt, running, within
from tests.unit.worker.owners import HASTY, PATIENT, SHAPE, case

LATER_HASTY = {**PATIENT, "next_polls": HASTY["next_polls"]}
BOUND_S = 1.5
"""What an owner is given for a wait that cannot end otherwise."""


def proves_death_and_serves_again(owner):
    """Tear the pair down, see for oneself that it is gone, and run a block on a fresh one."""
    pids = owner.pids
    gone = owner.teardown()
    assert gone["pids"] == list(pids)
    assert gone["dead"] == [True, True]
    assert gone["links_left"] == 0
    assert not any(running(pid) for pid in pids)
    owner.fresh()
    assert set(owner.pids).isdisjoint(pids)
    assert owner.block()["released"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_killed_before_a_block(survivor, rank):
    survivor.fresh(HASTY)
    os.kill(survivor.pids[rank], signal.SIGKILL)
    assert within(lambda: not running(survivor.pids[rank]))
    found = survivor.block()
    assert (found["released"], found["died"]) == (False, [rank])
    # the survivor waited for its peer, ran out of patience and says so
    assert found["why"] == "PEER_TIMEOUT"
    assert [one["rank"] for one in found["blocks"]] == [1 - rank]
    assert survivor.refused("block", case=case()) == "STICKY"
    assert survivor.refused("both", verb_of_rank="identity") == "RANK_DIED"
    proves_death_and_serves_again(survivor)


def test_both_ranks_killed_before_a_block(survivor):
    survivor.fresh()
    for pid in survivor.pids:
        os.kill(pid, signal.SIGKILL)
    found = survivor.block()
    assert (found["released"], found["why"], found["died"]) == (False, "RANK_DIED", [0, 1])
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_killed_between_two_positions(survivor):
    survivor.fresh(LATER_HASTY)
    launches = [{}, {"pause_before": 1}]
    found = survivor.block(case(n_out=3), launches=launches, on_pause="kill")
    assert (found["released"], found["why"], found["died"]) == (False, "PEER_TIMEOUT", [1])
    assert found["blocks"][0]["errors"] == [[0, 3, 3]]
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_that_comes_late_to_a_later_position(survivor):
    survivor.fresh(LATER_HASTY)
    launches = [{"pause_before": 1}, {}]
    found = survivor.block(case(n_out=2), launches=launches, on_pause="resume-late")
    assert (found["released"], found["why"], found["died"]) == (False, "PEER_TIMEOUT", [])
    assert [one["errors"] for one in found["blocks"]] == [[[0, 3]], [[0, 3]]]
    proves_death_and_serves_again(survivor)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_rank_does_not_outlast_the_bound(survivor, rank):
    survivor.fresh(HASTY)
    halt(survivor.pids[rank])
    reply = survivor.reply("block", case=case(), limit_s=BOUND_S)
    assert reply.refusal["code"] == "STEP_TIMEOUT"
    assert str(survivor.pids[rank]) in reply.refusal["left"]
    # it may launch the block whenever it wakes up, so nothing may follow on this pair
    os.kill(survivor.pids[rank], signal.SIGCONT)
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_stopped_for_good_is_torn_down(survivor):
    survivor.fresh(HASTY)
    halt(survivor.pids[1])
    ask = {"verb_of_rank": "identity", "limit_s": BOUND_S}
    assert survivor.refused("both", **ask) == "STEP_TIMEOUT"
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_that_reads_nothing_does_not_block_its_owner(survivor):
    survivor.fresh()
    halt(survivor.pids[0])
    ballast = {"text": "x" * (1 << 20)}
    given = {"verb_of_rank": "identity", "arguments": [ballast, {}], "limit_s": BOUND_S}
    reply = survivor.reply("both", **given)
    assert reply.refusal["code"] == "STEP_TIMEOUT"
    assert reply.refusal["left"] == f"process {survivor.pids[0]}"
    # it may have got a part of the request: nobody knows what it does with it
    os.kill(survivor.pids[0], signal.SIGCONT)
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_killed_before_the_branch(survivor):
    survivor.fresh(PATIENT)
    capture = {"name": "g", "case": case()}
    assert survivor.both("capture", capture) == [{}, {}]
    ask = {"case": case(), "switch": True, "graph": "g"}
    # once with both, or the survivor would look a minute for its peer before it launches
    assert survivor.ask("select", **ask)["released"]
    survivor.link(HASTY)
    assert survivor.both("capture", capture) == [{}, {}]
    os.kill(survivor.pids[1], signal.SIGKILL)
    assert within(lambda: not running(survivor.pids[1]))
    assert survivor.refused("select", **ask) == "RANK_DIED"
    assert survivor.refused("block", case=case()) == "STICKY"
    proves_death_and_serves_again(survivor)


def test_a_rank_that_dies_while_it_is_primed(survivor):
    survivor.start()
    os.kill(survivor.pids[1], signal.SIGKILL)
    assert within(lambda: not running(survivor.pids[1]))
    assert survivor.refused("prime", shape=SHAPE) == "RANK_DIED"
    assert survivor.refused("block", case=case()) == "UNPRIMED"
    proves_death_and_serves_again(survivor)


# -- the owner ------------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
def test_ranks_end_with_an_owner_that_is_killed(owner, stopped):
    owner.fresh()
    if stopped:
        halt(owner.pids[0])
    os.kill(owner.channel.pid, signal.SIGKILL)
    assert within(lambda: not any(running(pid) for pid in owner.pids))
    with pytest.raises(WrongError):
        owner.reply("settle")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_ranks_end_with_an_owner_that_is_asked_to_end(owner, number):
    owner.fresh()
    os.kill(owner.channel.pid, number)
    assert within(lambda: not any(running(pid) for pid in (*owner.pids, owner.channel.pid)))


def busy(owner, verb, **arguments):
    """Ask for something that takes the owner as long as its bound allows, and do not wait."""
    request = Request(sequence=99, verb=verb, arguments=arguments)
    owner.channel.send(request, Deadline.after(SystemClock(), 60))


def test_a_busy_owner_notices_that_nobody_asks_any_more(owner):
    """Its wait would last ten minutes; the end of its input ends it at once."""
    owner.fresh()
    halt(owner.pids[0])
    busy(owner, "block", case=case(), limit_s=600)
    # end of input and nothing else: the grace is far longer than it takes, no TERM follows
    assert owner.channel.stop(60) == 0
    assert not any(running(pid) for pid in owner.pids)


def test_an_owner_with_a_request_left_unread_notices_too(owner):
    owner.fresh()
    halt(owner.pids[0])
    for _ in range(2):
        busy(owner, "both", verb_of_rank="identity", limit_s=600)
    assert owner.channel.stop(60) == 0
    assert not any(running(pid) for pid in owner.pids)


def test_an_owner_that_is_told_garbage_ends_with_its_ranks(owner):
    owner.fresh()
    os.write(owner.channel._stdin.fileno(), b"\xff" * 64)
    assert within(lambda: not any(running(pid) for pid in (*owner.pids, owner.channel.pid)))
    assert "BAD_FRAME" in owner.channel.last_lines(1)[0]


def test_the_careless_owner_of_a_control_is_the_same_program_otherwise(tmp_path):
    from tests.unit.worker.owners import Asker

    careless = Asker(tmp_path, "pp4.worker.controls")
    try:
        careless.fresh(HASTY, controls=["ignores_sticky"])
        late = careless.block(
            case(n_out=1), launches=[{}, {"control": "ignores_sticky"}], second="answered"
        )
        assert late["released"]
        assert late["blocks"][0]["own_error"] == 3
        assert careless.close() == 0
        assert not any(running(pid) for pid in careless.pids)
    finally:
        careless.close()
