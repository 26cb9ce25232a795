"""The owner's rules, asked of a real owner with two real ranks in the interpreter."""

import hashlib
import os

import pytest

from tests.unit.processes import running
from tests.unit.worker.owners import HASTY, OTHER, PATIENT, SHAPE, Asker, case

GREEDY = {"modes": [2]}


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
    expected = pair.ask("expect", case=given, by=["reference", "solo"])["ranks"]
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
    owner.link()
    assert owner.refused("block", case=case()) == "UNPRIMED"
    assert owner.refused("select", case=case(), switch=True) == "UNPRIMED"
    launch = {"case": case(), "launch": {}}
    assert owner.both("run", launch) == ["UNPRIMED"] * 2
    capture = {"name": "early", "case": case()}
    assert owner.both("capture", capture) == ["UNPRIMED"] * 2


def test_a_launch_without_a_link_is_refused(owner):
    owner.start()
    owner.prime()
    assert owner.both("run", {"case": case(), "launch": {}}) == ["UNPRIMED"] * 2


def test_a_rank_that_was_sealed_without_a_shape_captures_nothing(owner):
    owner.start()
    owner.link()
    # whatever comes with it: sealing primes nothing
    owner.both("seal", {"shape": SHAPE})
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
    assert owner.refused("prime", shape={**SHAPE, "split": 0}) == "BAD_INPUT"
    assert owner.refused("block", case=case()) == "UNPRIMED"


def test_a_link_does_not_take_the_place_of_priming(owner):
    owner.start()
    given = {"nonce": "n", "fence": 1, "rows": 1, "waits": [PATIENT] * 2}
    assert owner.refused("link", **given, shape=SHAPE) == "BAD_FRAME"
    owner.link()
    assert owner.refused("block", case=case()) == "UNPRIMED"


def test_pair_and_solo_are_primed_and_compared_on_both_ranks(owner):
    owner.start()
    found = owner.prime()
    for name, shards in (("primed", 1), ("solo", 2)):
        first, second = found[name]
        assert f"SHARDS={shards}" in first["key"]
        assert (first["rank"], second["rank"]) == (0, 1)
        for member in ("key", "ptx_sha256", "cubin_sha256"):
            assert first[member] == second[member]


def spoil(record):
    """Write a digest into a record that no binary has, and give that binary to it."""
    other = hashlib.sha256(b"another").hexdigest()
    (record.parent / "triton" / "planted").mkdir()
    (record.parent / "triton" / "planted" / "x.cubin").write_bytes(b"another")
    text = record.read_text()
    digest = text.partition('"cubin_sha256":"')[2][:64]
    record.write_text(text.replace(digest, other))


SMALLEST = {"vocab": 64, "split": 32, "tile": 32, "rank_dim": 1}
"""It compiles fastest."""


@pytest.fixture
def records(tmp_path):
    """An owner with records of its own; -> it and where they are."""
    asker = Asker(tmp_path, compiled=tmp_path / "compiled")
    asker.start()
    first = asker.prime(SMALLEST)
    assert not any(one["recorded"] for one in first["primed"] + first["solo"])
    yield asker, tmp_path / "compiled"
    asker.teardown()
    asker.close()


def test_a_record_is_compared_like_what_was_compiled(records):
    asker, home = records
    asker.start()
    again = asker.prime(SMALLEST)
    assert all(one["recorded"] for one in again["primed"] + again["solo"])
    for path in sorted((home / "rank-1").glob("*.json")):
        spoil(path)
        break
    asker.start()
    assert asker.refused("prime", shape=SMALLEST, recorded=True) == "KERNELS_DIFFER"
    asker.link()
    assert asker.refused("block", case=case()) == "UNPRIMED"
    # a record whose binary is gone is none: the compiler is asked again, and both agree
    (home / "rank-1" / "triton" / "planted" / "x.cubin").unlink()
    renewed = asker.prime(SMALLEST)
    assert sum(not one["recorded"] for one in renewed["primed"] + renewed["solo"]) == 1
    assert asker.block()["released"]


def test_a_delayed_rank_holds_every_launch_back(owner):
    owner.start()
    owner.link()
    found = owner.prime(delayed=1, probe={"case": case()})
    assert found["meanwhile"] == "UNPRIMED"
    assert owner.block()["released"]
    # primed once more: the waiting rank can launch nothing although both were sealed before
    again = owner.prime(delayed=1, probe={"case": case()})
    assert again["meanwhile"] == "UNPRIMED"
    assert owner.block()["released"]


def test_solo_runs_only_what_was_primed_for_it(pair):
    for rank in (0, 1):
        found = pair.one(rank, "expect", {"case": case(), "by": "solo"})
        assert found["by"] == "solo"
    pair.start()
    pair.both("prime", {"shape": SHAPE, "recorded": True})
    pair.both("seal")
    assert pair.one(1, "expect", {"case": case(), "by": "solo"}) == "UNPRIMED"
    assert pair.one(1, "expect", {"case": case(), "by": "reference"})["by"] == "reference"


# -- one rank -------------------------------------------------------------------------------


def test_one_rank_is_asked_while_the_other_hears_nothing(owner):
    owner.fresh(HASTY)
    for rank in (0, 1):
        assert owner.one(rank, "identity")["pid"] == owner.pids[rank]
    assert owner.one(1, "no-such-verb") == "BAD_FRAME"
    alone = owner.one(0, "run", {"case": case(n_out=1), "launch": {}})
    assert alone["errors"] == [[3]]


# -- the branch -----------------------------------------------------------------------------


def captured(owner, given=None, **more):
    """Capture a graph on both ranks; -> what select is asked with."""
    given = given or case()
    assert owner.both("capture", {"name": "g", "case": given, **more}) == [{}, {}]
    return {"case": given, "switch": True, "graph": "g"}


def test_what_is_sampled_in_the_branch_is_released_like_a_block(pair):
    start = pair.link()
    ask = captured(pair)
    for block in range(2):
        found = pair.ask("select", **ask)
        assert (found["released"], found["why"]) == (True, "")
        first, second = (rank["facts"]["block"] for rank in found["ranks"])
        assert first["stamps"] == [[start + 2 * block + 1, start + 2 * block + 2]]
        assert first["digest"] == second["digest"]
    assert pair.block()["expected_stamps"] == [[start + 5, start + 6]]


def test_where_nothing_is_sampled_there_is_nothing_to_release(pair):
    start = pair.link()
    ask = captured(pair)
    for found in (
        pair.ask("select", **{**ask, "case": case(**GREEDY)}),
        pair.ask("select", **{**ask, "switch": False}),
        pair.ask("select", **{**ask, "head_mode": "native"}),
        pair.ask("select", **{**ask, "graph": None}),
    ):
        assert (found["released"], found["why"]) == (None, "")
    # nothing was launched: neither the epochs nor the owner's trust are touched
    assert pair.block()["expected_stamps"] == [[start + 1, start + 2]]


def test_a_bad_row_in_the_branch_is_kept_and_sticks(owner):
    owner.fresh()
    ask = captured(owner)
    found = owner.ask("select", **{**ask, "case": case(flaw="nan", flaw_rank=1)})
    assert (found["released"], found["why"]) == (False, "BAD_LOGITS")
    assert owner.refused("select", **ask) == "STICKY"
    assert owner.refused("block", case=case()) == "STICKY"


def test_after_a_kept_block_the_branch_launches_nothing(owner):
    owner.fresh(HASTY)
    ask = captured(owner)
    assert owner.block(second="never")["why"] == "PEER_TIMEOUT"
    assert owner.refused("select", **ask) == "STICKY"
    assert owner.refused("select", **{**ask, "switch": False}) == "STICKY"


def test_a_branch_that_only_one_rank_took_is_kept(owner):
    owner.fresh(HASTY)
    ask = captured(owner)
    owner.start()
    owner.prime()
    owner.link(HASTY)
    assert owner.one(0, "capture", {"name": "g", "case": case()}) == {}
    found = owner.ask("select", **ask)
    assert (found["released"], found["why"]) == (False, "PEER_TIMEOUT")
    assert found["ranks"][1]["refusal"]["code"] == "MISSING_SAMPLED_GRAPH"
    assert owner.refused("block", case=case()) == "STICKY"


def test_a_control_runs_under_a_name_of_its_own(owner):
    owner.fresh(controls=["ignores_sticky"])
    launches = [{"control": "ignores_sticky"}] * 2
    assert owner.block(launches=launches)["released"]
    ask = captured(owner, control="ignores_sticky")
    assert owner.ask("select", **ask)["released"]
    # the product runs beside it, and no other control does
    assert owner.block()["released"]
    assert owner.refused("block", case=case(), launches=[{"control": "t0_draws"}] * 2) == "UNPRIMED"


def test_a_control_does_not_stand_for_the_product(owner):
    owner.fresh(controls=["missing_stamp"])
    assert owner.block()["released"]
    launches = [{"control": "missing_stamp"}] * 2
    found = owner.block(launches=launches)
    assert (found["released"], found["why"]) == (False, "INCOMPLETE")


def test_a_control_that_comes_after_the_seal_is_refused(pair):
    late = {"shape": SHAPE, "controls": ["missing_stamp"]}
    assert pair.both("plant", late) == ["COMPILED_AFTER_PRIMING"] * 2
    assert pair.refused("prime", **late, recorded=True) == "COMPILED_AFTER_PRIMING"
    launches = [{"control": "missing_stamp"}] * 2
    assert pair.refused("block", case=case(), launches=launches) == "UNPRIMED"
    # the refusals changed nothing
    assert pair.block()["released"]


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
        ("one", {"verb_of_rank": "run"}),
        ("one", {"verb_of_rank": "run", "rank": 2}),
        ("expect", {"case": case()}),
        ("select", {"case": case()}),
        ("libraries", {}),
        ("expect", {"case": case(), "by": []}),
        ("healthy", {"really": True}),
        ("start", {"now": True}),
        ("teardown", {"force": True}),
        ("settle", {"x": None}),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_a_refusal_and_nothing_else(owner, verb, arguments):
    assert owner.refused(verb, **arguments) == "BAD_FRAME"
    assert "ranks" in owner.ask("settle")


NONSENSE = [
    ("no-such-verb", {}),
    ("leave", {}),
    ("prime", {"shape": SHAPE, "shards": 3}),
    ("run", {}),
    ("run", {"case": case(), "launch": {"grpah": 1}}),
    ("link", {"waits": {}}),
    ("expect", {"case": case(), "by": "rumour"}),
    ("capture", {"name": "x"}),
    ("pattern", {"writer": 0}),
    ("select", {"case": case(), "switch": True, "head_mode": "sideways"}),
    ("libraries", {"flip": "yes"}),
    ("stream", {"batch": 1}),
    ("plant", {"controls": ["no_such"]}),
    ("recount", {}),
]


def test_a_rank_answers_nonsense_with_a_refusal_and_lives_on(pair):
    for verb, arguments in NONSENSE:
        codes = pair.both(verb, arguments)
        assert all(isinstance(code, str) for code in codes), (verb, arguments, codes)
        assert pair.block()["released"], (verb, arguments)


def test_settle_tells_what_is_left(owner):
    owner.fresh()
    left = owner.ask("settle")
    assert left["ranks"] == list(owner.pids)
    assert len(left["links"]) == 2
    owner.teardown()
    assert owner.ask("settle") == {"ranks": [], "links": []}


def test_an_owner_that_ends_takes_the_workspaces_along(tmp_path):
    asker = Asker(tmp_path)
    asker.fresh()
    assert len(list(asker.directory.glob("link-*"))) == 2
    # no teardown: the end of its input is all that it gets
    assert asker.close() == 0
    assert list(asker.directory.glob("link-*")) == []


def test_libraries_are_hashed_by_each_rank_on_request(owner):
    owner.start()
    plain, flipped = (owner.both("libraries", {"flip": flip}) for flip in (False, True))
    # both ranks map the same, and each says what it maps itself
    assert plain[0] == plain[1]
    for before, after in zip(plain, flipped, strict=True):
        names = [[one["name"] for one in found["libraries"]] for found in (before, after)]
        assert names[0] == names[1]
        changed = [
            one
            for one, other in zip(before["libraries"], after["libraries"], strict=True)
            if one != other
        ]
        assert len(before["libraries"]) > len(changed) == 1
