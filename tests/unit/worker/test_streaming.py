"""Streams of blocks: nothing that is wrong in one row of them passes, and its place is told."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from pp4.errors import RefusedError
from pp4.kernels import sampled_fused, vectorised
from pp4.kernels.controls import build
from pp4.kernels.faults import Fault
from pp4.wire.facts import BUCKETS, Stream
from pp4.worker import expecting, inputs, streaming
from pp4.worker.originals import Originals
from pp4.worker.streaming import Streaming
from tests.unit.worker.owners import HASTY, SHAPE, case

STREAM = {"batch": 2, "n_out": 2, "cached": "mixed", "seed": 7, "blocks": 3}
ROWS = 2 * 2 * 3


def asked(**changes):
    return Stream(**{**STREAM, **changes})


def run(bench, **changes):
    """One rank's stream, in this process."""
    return Streaming(bench, Originals(bench)).run(asked(**changes))


# -- one rank -------------------------------------------------------------------------------


def test_a_clean_stream_counts_every_row_and_finds_nothing(bench):
    found = run(bench)
    assert (found.rank, found.blocks, found.rows) == (0, 3, ROWS)
    assert (found.mismatches, found.first_mismatch) == (0, ())
    assert (found.own_error, found.peer_error) == (0, 0)
    assert found.elapsed_ns > 0
    assert len(found.waits) == BUCKETS
    # solo nobody is waited for
    assert found.waits[0] == sum(found.waits) == ROWS
    # epochs went on on the device, two positions a block
    assert bench.link.words().epochs == (7 + 6, 7 + 6, 7)


@pytest.mark.parametrize("cached", ["none", "all"])
def test_cached_rows_change_no_output(bench, cached):
    mixed, other = (run(bench, cached=which, blocks=1) for which in ("mixed", cached))
    assert (other.inputs, other.outputs) == (mixed.inputs, mixed.outputs)
    assert other.mismatches == 0


def test_digests_are_those_of_the_seed(bench):
    streaming = Streaming(bench, Originals(bench))
    # batch 1, one position: what differs is the seed
    first, again, other = (
        streaming.run(asked(batch=1, n_out=1, blocks=2, seed=seed)) for seed in (7, 7, 8)
    )
    assert (again.inputs, again.outputs) == (first.inputs, first.outputs)
    assert other.inputs != first.inputs
    assert other.outputs != first.outputs
    fewer = streaming.run(asked(batch=1, n_out=1, blocks=1))
    assert fewer.inputs != first.inputs
    assert fewer.outputs != first.outputs


def test_skew_holds_back_and_changes_nothing(bench, monkeypatch):
    held = []
    monkeypatch.setattr(bench.device, "delay", held.append)
    small = {"batch": 1, "n_out": 1}
    plain, skewed = (run(bench, **small, skew_ns=skew_ns) for skew_ns in (0, 1000))
    assert (skewed.inputs, skewed.outputs) == (plain.inputs, plain.outputs)
    assert len(held) == 3
    assert all(0 <= nanoseconds < 1000 for nanoseconds in held)
    # another rank is held back by other times, or there would be no skew
    bench.rank = 1
    run(bench, **small, skew_ns=1000)
    assert held[3:] != held[:3]


class Wrong:
    """A reference that is wrong in one place: block, row, position."""

    def __init__(self, member, place):
        self.member, self.place, self.calls = member, place, 0
        self.right = expecting.block_of

    def __call__(self, geometry, given, base):
        number, row, index = self.place
        right = self.right(geometry, given, base)
        self.calls += 1
        # what a device launches to warm up or to capture would count too; here nothing is captured
        if self.calls == number + 1:
            changed = getattr(right, self.member).clone()
            changed.view(torch.int32)[(row, index, *[-1] * (changed.ndim - 2))] ^= 1
            right = dataclasses.replace(right, **{self.member: changed})
        return right


@pytest.mark.parametrize(
    ("member", "place"),
    [("ids", (0, 0, 0)), ("q", (1, 0, 1)), ("token", (2, 1, 0)), ("error", (1, 1, 1))],
)
def test_one_bit_in_one_row_is_found_with_its_place(bench, monkeypatch, member, place):
    monkeypatch.setattr(expecting, "block_of", Wrong(member, place))
    found = run(bench)
    assert (found.mismatches, found.first_mismatch) == (1, place)
    # a mismatch is no error word: the stream goes on and counts
    assert (found.blocks, found.rows) == (3, ROWS)


def run_mutant(bench, monkeypatch, tmp_path, name, **changes):
    monkeypatch.setattr(sampled_fused, "_kernel", build(name, tmp_path / "controls")._kernel)
    return run(bench, **changes)


def test_a_missing_stamp_is_a_mismatch_everywhere(bench, monkeypatch, tmp_path):
    found = run_mutant(bench, monkeypatch, tmp_path, "missing_stamp")
    assert (found.mismatches, found.first_mismatch) == (ROWS, (0, 0, 0))


def greedy(batch=2, blocks=3):
    """Blocks and rows that are greedy."""
    stream = asked(batch=batch, blocks=blocks)
    modes = [streaming._case(stream, number).modes for number in range(blocks)]
    every = ((number, row) for number in range(blocks) for row in range(batch))
    return [(number, row) for number, row in every if modes[number][row] == 2]


def test_greedy_rows_are_among_them_and_are_compared(bench, monkeypatch, tmp_path):
    found = run_mutant(bench, monkeypatch, tmp_path, "t0_draws")
    assert greedy() == [(0, 0)]
    # such a row draws and has tickets, at both positions
    assert (found.mismatches, found.first_mismatch) == (2, (0, 0, 0))


def test_greedy_rows_come_again_and_again_in_every_row():
    rows = greedy(batch=7, blocks=10)
    assert {row for _, row in rows} == set(range(7))
    assert {number for number, _ in rows} == set(range(10))
    assert len(rows) == 14


def test_a_block_that_is_wrong_throughout_is_found_at_its_beginning(bench, monkeypatch, tmp_path):
    found = run_mutant(bench, monkeypatch, tmp_path, "mask_swapped", blocks=2)
    assert found.mismatches == 8
    assert found.first_mismatch == (0, 0, 0)


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_stream_stops_at_an_error_word(bench, monkeypatch, blocks):
    logits, made = inputs.logits, []

    def spoilt(geometry, given, device):
        base = logits(geometry, given, device)
        # the capture loads the first block as well; nothing of that is launched
        if given.seed == STREAM["seed"] + blocks - 1 and len(made) >= 1:
            base[1, 1, 3] = 0x7FC0
        made.append(given.seed)
        return base

    monkeypatch.setattr(inputs, "logits", spoilt)
    found = run(bench, blocks=9)
    assert (found.blocks, found.rows) == (blocks, 4 * blocks)
    assert found.own_error == Fault.BAD_LOGITS
    # nothing of the next block was made
    assert max(made) == STREAM["seed"] + blocks - 1


def test_on_a_link_with_an_error_word_no_block_runs(bench):
    bench.link.own_error[0] = int(Fault.PEER_TIMEOUT)
    found = run(bench)
    assert (found.blocks, found.rows, found.first_mismatch) == (0, 0, ())
    assert (found.own_error, sum(found.waits)) == (Fault.PEER_TIMEOUT, 0)


def test_waits_are_counted_by_powers_of_two(bench):
    block = bench.sampled_block(asked_case(), None)
    base = torch.zeros((2, 2, SHAPE["vocab"]), dtype=torch.int16)
    tally, waited = streaming._Tally(), [0, 1, 2, 3, 4, 7, 8, 1 << 46, (1 << 47) - 1, 1 << 60]
    for value in waited:
        block.waited.fill_(value)
        tally.add(base, block, torch.zeros((2, 2), dtype=torch.bool))
    counted = np.zeros(BUCKETS, int)
    for value in waited:
        counted[min(BUCKETS - 1, math.ceil(math.log2(value + 1)))] += 4
    assert tally.waits.tolist() == counted.tolist()
    assert tally.waits[:5].tolist() == [4, 4, 8, 8, 4]


def asked_case():
    return streaming._case(asked(), 0)


def test_a_bit_of_any_logit_that_is_sampled_is_in_the_digest_of_the_inputs(bench):
    block, nothing = bench.sampled_block(asked_case(), None), torch.zeros((2, 2), dtype=torch.bool)
    digests = set()
    for place in (None, (0, 0, 0), (1, 1, 66), (1, 0, 1)):
        base = torch.zeros((2, 2, SHAPE["vocab"]), dtype=torch.int16)
        if place is not None:
            base[place] = 1
        tally = streaming._Tally()
        tally.add(base, block, nothing)
        digests.add(tally.inputs.hexdigest())
    assert len(digests) == 4


def test_a_stream_needs_what_every_launch_needs(bench):
    bench.priming._loaded.clear()
    with pytest.raises(RefusedError, match="UNPRIMED"):
        run(bench)


def test_the_original_selector_runs_in_between_and_changes_nothing(bench):
    originals = Originals(bench)
    streams = Streaming(bench, originals)
    plain, between = (streams.run(asked(blocks=2, off=off)) for off in (False, True))
    assert (between.inputs, between.outputs) == (plain.inputs, plain.outputs)
    assert between.mismatches == 0
    selector, _ = originals.captured(asked_case())
    # the last case of the stream is what it was given, and it wrote its tokens
    last = streaming._case(asked(), 1)
    geometry = bench.require_geometry()
    assert selector.anchor.tolist() == [one.anchor for one in inputs.requests(geometry, last)]
    assert (selector.outputs.token >= 0).all()


def test_a_reference_is_made_once_for_each_shape(bench, monkeypatch):
    made, repeated = [], bench.device.repeated
    monkeypatch.setattr(bench.device, "repeated", lambda f: made.append(f) or repeated(f))
    streams = Streaming(bench, Originals(bench))
    for changes in ({}, {"seed": 9, "cached": "all"}, {"n_out": 2}, {}):
        given = {"batch": 1, "n_out": 1, "blocks": 1, **changes}
        assert streams.run(asked(**given)).mismatches == 0
    assert len(made) == 2


def test_the_reference_is_a_block_of_members_that_are_all_compared():
    members = [member.name for member in dataclasses.fields(vectorised.Block)]
    assert sorted(members) == ["error", "ids", "q", "token"]


# -- two ranks ------------------------------------------------------------------------------


def test_both_ranks_see_the_same_stream(pair):
    first, second = pair.both("stream", STREAM)
    assert [first["rank"], second["rank"]] == [0, 1]
    for one in (first, second):
        assert (one["blocks"], one["rows"], one["mismatches"]) == (3, ROWS, 0)
        assert (one["own_error"], one["peer_error"], one["first_mismatch"]) == (0, 0, [])
        # each exchange looked at least once: nothing is in the bucket of those that never waited
        assert sum(one["waits"]) == sum(one["waits"][1:]) == ROWS
    for name in ("inputs", "outputs"):
        assert first[name] == second[name]
    # streams may follow each other, the originals between their blocks, the ranks apart in time
    for found in pair.both("stream", {**STREAM, "off": True, "skew_ns": 2_000_000}):
        assert (found["inputs"], found["outputs"]) == (first["inputs"], first["outputs"])
        assert found["mismatches"] == 0
    # the owner's count of epochs is not the device's any more, and it notices
    found = pair.block()
    assert (found["released"], found["why"]) == (False, "INCOMPLETE")


def test_a_rank_that_streams_alone_stops_after_one_block(owner):
    owner.fresh(HASTY)
    found = owner.one(0, "stream", STREAM)
    assert (found["blocks"], found["rows"], found["mismatches"]) == (1, 4, 4)
    assert (found["own_error"], found["first_mismatch"]) == (3, [0, 0, 0])
    late = owner.one(1, "stream", STREAM)
    assert (late["blocks"], late["own_error"], late["peer_error"]) == (0, 0, 3)


def test_streams_of_ranks_with_other_inputs_tell_so(pair):
    """A rank that did not take the other's inputs has other digests, whatever it compared."""
    first, second = pair.both("stream", {**STREAM, "blocks": 1}, {**STREAM, "blocks": 1, "seed": 8})
    assert first["inputs"] != second["inputs"]
    assert first["mismatches"] + second["mismatches"] > 0


def test_a_control_streams_under_its_own_name_and_is_found_by_both_ranks(owner):
    owner.fresh(controls=["dropped_candidate"])
    for found in owner.both("stream", {**STREAM, "blocks": 2, "control": "dropped_candidate"}):
        assert (found["blocks"], found["own_error"], found["peer_error"]) == (2, 0, 0)
        assert found["mismatches"] > 0
        number, row, index = found["first_mismatch"]
        assert number in (0, 1)
        assert row in (0, 1)
        assert index in (0, 1)
    # the product's own stream on the same pair is clean, and no other control runs
    owner.link()
    assert [found["mismatches"] for found in owner.both("stream", STREAM)] == [0, 0]
    assert owner.both("stream", {**STREAM, "control": "t0_draws"}) == ["UNPRIMED"] * 2


def test_nothing_streams_before_priming(owner):
    owner.start()
    owner.link()
    assert owner.both("stream", STREAM) == ["UNPRIMED"] * 2
    owner.prime()
    assert owner.block(case())["released"]
