"""Both ranks hold both shards: each runs for itself, and the owner's rule compares them."""

import pytest

from pp4.worker.device import Seats
from pp4.worker.owner import places
from tests.unit.worker.owners import HASTY, Asker, case

STREAM = {"batch": 2, "n_out": 2, "cached": "mixed", "seed": 7, "blocks": 2}


@pytest.fixture(scope="module")
def solo(tmp_path_factory):
    """An owner whose ranks share one seat, with a primed pair."""
    asker = Asker(tmp_path_factory.mktemp("solo"), seats=["--solo"])
    asker.start()
    asker.prime()
    asker.link()
    yield asker
    asker.teardown()
    asker.close()


@pytest.mark.parametrize(
    ("words", "seats"),
    [
        ([], Seats()),
        (["--solo"], Seats(solo=True)),
    ],
)
def test_the_command_line_says_where_ranks_run(words, seats, tmp_path):
    homes, found = places(["a", "b", *words])
    assert (str(homes.pair), str(homes.compiled), found) == ("a", "b", seats)
    assert found.shards == (2 if seats.solo else 1)


def test_gpus_are_taken_in_order_with_and_without_solo():
    assert places(["a", "b", "GPU-2", "GPU-1"])[1] == Seats(("GPU-2", "GPU-1"))
    for words in (["--solo", "GPU-2"], ["GPU-2", "--solo"]):
        assert places(["a", "b", *words])[1] == Seats(("GPU-2",), solo=True)


def test_two_processes_share_one_seat(solo):
    first, second = solo.both("identity")
    assert first["pid"] != second["pid"]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["device"] == second["device"] == "interpreter-0"


def test_a_block_is_released_and_equals_every_reference(solo):
    start = solo.link()
    given = case(batch=3, n_out=2, modes=[1, 2, 0])
    found = solo.block(given)
    assert (found["released"], found["why"]) == (True, "")
    assert found["expected_stamps"] == [[start + 1, start + 2]] * 2 + [[start] * 2]
    assert all(one["stamps"] == found["expected_stamps"] for one in found["blocks"])
    # nobody is waited for
    assert all(one["waited"] == [[0, 0]] * 3 for one in found["blocks"])
    digests = {one["digest"] for one in found["blocks"]}
    for ways in (["reference", "vectorised"], ["solo"]):
        expected = [rank["facts"] for rank in solo.ask("expect", case=given, by=ways)["ranks"]]
        assert [one["by"] for one in expected] == ways
        digests |= {one["digest"] for one in expected}
    assert len(digests) == 1


def test_a_captured_graph_gives_what_an_eager_run_gives(solo):
    solo.link()
    given = case(batch=2)
    assert solo.both("capture", {"name": "g", "case": case(batch=2, seed=99)}) == [{}, {}]
    replayed = solo.block(given, launches=[{"graph": "g"}] * 2)
    eager = solo.block(given)
    assert (replayed["released"], eager["released"]) == (True, True)
    assert len({one["digest"] for found in (replayed, eager) for one in found["blocks"]}) == 1


def test_a_rank_needs_no_peer(solo):
    start = solo.link(HASTY)
    alone = solo.one(1, "run", {"case": case(), "launch": {}})
    assert (alone["rank"], alone["errors"]) == (1, [[0, 0]])
    assert alone["stamps"] == [[start + 1, start + 2]]
    solo.link()
    found = solo.one(0, "stream", STREAM)
    assert (found["blocks"], found["mismatches"], found["own_error"]) == (2, 0, 0)


def test_both_ranks_stream_the_same(solo):
    solo.link()
    first, second = solo.both("stream", STREAM)
    for one in (first, second):
        assert (one["blocks"], one["rows"], one["mismatches"]) == (2, 8, 0)
        assert one["waits"][0] == sum(one["waits"]) == 8
    assert (first["inputs"], first["outputs"]) == (second["inputs"], second["outputs"])


def test_the_original_selector_needs_no_peer_either(solo):
    solo.link()
    given = case(batch=2, modes=[2, 2])
    ask = {"case": given, "switch": False}
    found = [rank["facts"] for rank in solo.ask("select", **ask)["ranks"]]
    assert [one["path"] for one in found] == ["original"] * 2
    (expected,) = solo.ask("expect", case=given, by=["reference"])["ranks"]
    assert [one["tokens"] for one in found] == [expected["facts"]["tokens"]] * 2


def test_there_is_no_workspace_to_leave_and_no_peer_to_write_to(solo):
    solo.link()
    assert solo.ask("settle")["links"] == []
    pattern = {"writer": 0, "seed": 1, "epochs": 2, "flip_at": -1}
    assert solo.both("pattern", pattern) == ["BAD_INPUT"] * 2
    assert solo.block()["released"]


def test_what_was_primed_for_a_pair_is_primed_as_well(solo):
    found = solo.prime()
    for name, shards in (("primed", 1), ("solo", 2)):
        assert all(f"SHARDS={shards}" in one["key"] for one in found[name])
        assert len({one["cubin_sha256"] for one in found[name]}) == 1


def test_a_fault_of_both_is_kept_and_sticks(tmp_path):
    asker = Asker(tmp_path, seats=["--solo"])
    try:
        asker.fresh(controls=["t0_draws"])
        greedy = case(modes=[2])
        # a control runs solo too; both ranks err alike, so only the reference could tell
        launches = [{"control": "t0_draws"}, {}]
        found = asker.block(greedy, launches=launches)
        assert (found["released"], found["why"]) == (False, "RANKS_DIFFER")
        assert asker.refused("block", case=case()) == "STICKY"
    finally:
        asker.teardown()
        asker.close()
