"""A replay: the kernel gives what is frozen, on any device and in any batch, or it is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.engine.replay import replaying
from pp4.engine.replay.arms import ARMS, compare_exactly, proposals, targets, verdicts
from pp4.engine.replay.producing import Producer
from pp4.engine.replay.reading import read_heldout
from pp4.engine.replay.replaying import _Tally, replay
from pp4.errors import BadInputError, Code, WrongError
from pp4.kernels import expected as exact
from pp4.kernels.block import POISON_INT, SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.head import unpaired, values_of
from pp4.kernels.reference_block import ReferenceBlock

CPU = torch.device("cpu")


def test_the_kernel_and_the_exact_reference_give_one_report(short):
    short = read_heldout(short)
    # two rows: the last launch has one of padding
    kernel = replay(short, part=3, rows=2, device=CPU)
    reference = replay(short, part=3, rows=1, device=CPU, make_block=ReferenceBlock)
    assert kernel == reference
    assert kernel["part"] == {"blocks": 3, "of": 4, "documents": 2, "exact": 3}
    assert kernel["digests"]["file"] == short.sha256


class ByRows:
    """A block that the exact reference in Python integers computes, row by row."""

    def __init__(self, head, link, *, batch, n_out):
        del link, batch, n_out
        self._w1 = values_of(unpaired(head.w1, head.geometry.rank_dim))
        self._w2 = values_of(torch.cat([head.columns(0), head.columns(1)]))

    def load(self, requests, logits):
        self._inputs = requests, values_of(logits)

    def poison(self):
        pass

    def run(self):
        pass

    def outputs(self):
        return exact.reference_outputs(self._w1, self._w2, *self._inputs)


def test_a_producer_in_python_integers_gives_the_same(held):
    by_rows = replay(held, part=3, rows=2, device=CPU, make_block=ByRows)
    assert by_rows == replay(held, part=3, rows=3, device=CPU, make_block=ReferenceBlock)


def test_a_part_is_the_first_blocks(held):
    whole = replay(held, part=4, rows=4, device=CPU, make_block=ReferenceBlock)
    one = replay(held, part=1, rows=4, device=CPU, make_block=ReferenceBlock)
    assert one["part"] == {"blocks": 1, "of": 4, "documents": 1, "exact": 1}
    assert [arm["blocks"] for arm in one["arms"]] == [1] * 5
    assert one["digests"]["file"] == whole["digests"]["file"]
    assert one["digests"]["drafts"] != whole["digests"]["drafts"]
    for part in (0, 5, -1):
        with pytest.raises(BadInputError):
            replay(held, part=part, rows=4, device=CPU, make_block=ReferenceBlock)


def test_digests_cover_what_was_consumed_and_decided(held):
    before = replay(held, part=4, rows=4, device=CPU, make_block=ReferenceBlock)
    flat = torch.full_like(held.sampled.targets, 1 / 150)
    other = replace(held, sampled=replace(held.sampled, targets=flat))
    after = replay(other, part=4, rows=4, device=CPU, make_block=ReferenceBlock)
    assert after["digests"]["drafts"] == before["digests"]["drafts"]
    assert after["digests"]["verdicts"] != before["digests"]["verdicts"]
    changed = [
        (one["temperature"], one["switch"])
        for one, two in zip(before["arms"], after["arms"], strict=True)
        if one["verdicts"] != two["verdicts"]
    ]
    assert changed == [("0.7", "on"), ("1.0", "on")]


@pytest.mark.parametrize("name", ["ids", "q", "tokens", "greedy"])
def test_every_draft_is_in_the_digest(held, name):
    drafts = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock).run(0, 4)
    before, after = _Tally(), _Tally()
    before.take_drafts(drafts)
    array = getattr(drafts, name).copy()
    array.view(np.int32)[3].flat[-1] ^= 1
    after.take_drafts(replace(drafts, **{name: array}))
    assert before.drafts.digest() != after.drafts.digest()


def mutant(name, place, value):
    """A block of which one output of one place is another."""

    class Mutant(ReferenceBlock):
        def outputs(self):
            found = super().outputs()
            array = getattr(found, name)
            array[place] = value(array[place])
            return found

    return Mutant


def wrong(held, make_block=ReferenceBlock):
    with pytest.raises(WrongError) as caught:
        replay(held, part=4, rows=2, device=CPU, make_block=make_block)
    return caught.value.refusal


def test_a_producer_that_draws_another_token(held):
    found = wrong(held, mutant("token", (1, 3), lambda token: (token + 1) % 150))
    assert (found.code, found.where) == (
        Code.OUTPUT_MISMATCH,
        "block 1, position 3: sampled token",
    )
    token = int(held.sampled.tokens[1, 3])
    assert (found.expected, found.found) == (f"{token}, as frozen", str((token + 1) % 150))


def test_a_producer_with_an_error_word(held):
    found = wrong(held, mutant("error", (0, 2), lambda _: int(Fault.BAD_LOGITS)))
    assert (found.code, found.where, found.found) == (
        Code.OUTPUT_MISMATCH,
        "block 0, position 2",
        "BAD_LOGITS",
    )


def test_a_producer_whose_q_is_no_tickets(held):
    found = wrong(held, mutant("q", (0, 2, 0), lambda q: q + 2**-20))
    assert (found.code, found.where) == (Code.OUTPUT_MISMATCH, "block 0, position 2: q 0")


def others(held, block, index):
    """Two places in the list of a position that its token does not have."""
    drafts = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock).run(0, 4)
    places = np.flatnonzero(drafts.ids[block, index] != drafts.tokens[block, index])
    return drafts, places[0], places[-1]


def test_the_token_is_right_and_q_is_that_of_other_tickets(held):
    """Well-formed throughout: it would be verified, and what is emitted would not be the target's.

    Row 1 of the second launch is block 3.
    """
    drafts, one, two = others(held, 3, 4)
    q = drafts.q[3, 4].copy()
    wanted = str(q[one])
    q[[one, two]] = q[[two, one]]
    proposed = replace(drafts, q=drafts.q.copy())
    proposed.q[3, 4] = q
    assert len(proposals(held, ARMS[1], proposed, 0)) == 4

    class Mutant(ReferenceBlock):
        def outputs(self):
            found = super().outputs()
            if found.token[1].tolist() == held.sampled.tokens[3].tolist():
                found.q[1, 4] = q
            return found

    found = wrong(held, Mutant)
    assert (found.code, found.where) == (Code.OUTPUT_MISMATCH, f"block 3, position 4: q {one}")
    assert (found.expected, found.found) == (f"{wanted}, of the exact reference", str(q[one]))


def test_a_producer_with_another_candidate(held):
    drafts, one, _ = others(held, 0, 1)
    own = set(drafts.ids[0, 1].tolist())
    other = next(token for token in range(150) if token not in own)
    found = wrong(held, mutant("ids", (0, 1, one), lambda _: other))
    assert found.where == f"block 0, position 1: candidate {one}"
    assert found.expected.startswith(f"{drafts.ids[0, 1, one]}, ")


def test_a_launch_that_writes_nothing_leaves_no_block_from_before(held):
    producer = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock)
    producer.run(0, 4)
    producer._block.run = lambda: None
    with pytest.raises(WrongError) as caught:
        producer.run(0, 4)
    refusal = caught.value.refusal
    # poison is no fault that there is
    assert (refusal.where, refusal.found) == ("block 0, position 0", str(POISON_INT))


@pytest.mark.parametrize("chain", ["sampled", "greedy"])
def test_frozen_tokens_that_nobody_drew(held, chain):
    tokens = getattr(held, chain).tokens.clone()
    # the last of a chain has no token after it
    tokens[2, 4] = (tokens[2, 4] + 1) % 150
    other = replace(held, **{chain: replace(getattr(held, chain), tokens=tokens)})
    assert wrong(other).where == f"block 2, position 4: {chain} token"


def test_a_verifier_that_decides_otherwise_is_seen(held):
    drafts = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock).run(0, 4)
    for arm in ARMS:
        proposed, target = proposals(held, arm, drafts, 0), targets(held, arm, 0, 4)
        found = verdicts(arm, proposed, target, CPU)
        compare_exactly(arm, proposed, target, found, 4)
        found.tokens[3, 0] ^= 1
        compare_exactly(arm, proposed, target, found, 3)
        with pytest.raises(WrongError) as caught:
            compare_exactly(arm, proposed, target, found, 4)
        assert caught.value.refusal.code is Code.OUTPUT_MISMATCH


def test_a_replay_asks_the_exact_verifier_too(held, monkeypatch):
    def otherwise(*given):
        found = verdicts(*given)
        found.tokens[-1, 0] ^= 1
        return found

    monkeypatch.setattr(replaying, "verdicts", otherwise)
    found = wrong(held)
    assert (found.code, found.where) == (
        Code.OUTPUT_MISMATCH,
        "T = 0, switch either, row 1",
    )


def test_a_target_that_cannot_be_verified_is_seen(held):
    drafts = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock).run(0, 4)
    target = targets(held, ARMS[1], 0, 4).clone()
    target[2, 1] /= 2
    with pytest.raises(WrongError) as caught:
        verdicts(ARMS[1], proposals(held, ARMS[1], drafts, 0), target, CPU)
    refusal = caught.value.refusal
    assert refusal.code is Code.OUTPUT_MISMATCH
    assert (refusal.where, refusal.found) == ("T = 0.7, switch on, row 2", "the flaw TARGET")


def test_words_are_those_of_the_file(held):
    drafts = Producer(held, rows=4, device=CPU, make_block=ReferenceBlock).run(2, 4)
    for arm in ARMS:
        found = proposals(held, arm, drafts, 2)
        for name in ("round", "position"):
            assert [getattr(one, name) for one in found] == getattr(held, name)[2:].tolist()
        assert [one.key for one in found] == [key % 2**64 for key in held.key[2:].tolist()]


def test_more_blocks_than_rows_are_refused(held):
    producer = Producer(held, rows=2, device=CPU, make_block=ReferenceBlock)
    for first, last in ((0, 3), (1, 1), (2, 1)):
        with pytest.raises(BadInputError):
            producer.run(first, last)


def test_the_product_is_what_runs_where_nothing_else_is_said(held):
    assert type(Producer(held, rows=1, device=CPU)._block) is SampledBlock
