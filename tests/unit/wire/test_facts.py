"""Facts: what is not exactly as the model says is a bad frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, Refusal, WrongError
from pp4.kernels.faults import Fault
from pp4.wire import asks
from pp4.wire.facts import (
    BUCKETS,
    FAULTS,
    Block,
    Case,
    Exchange,
    Identity,
    Launch,
    Library,
    Primed,
    Selected,
    Shape,
    Stream,
    Streamed,
    read,
    refusal_of,
    word_of,
)
from tests.unit.wire.examples import block, exchange, kept

CASE = {"batch": 1, "n_out": 2, "seed": 3, "modes": [1]}
STREAM = {"batch": 1, "n_out": 2, "cached": "mixed", "seed": 3, "blocks": 4}
STREAMED = {
    "rank": 1,
    "blocks": 4,
    "rows": 8,
    "mismatches": 1,
    "first_mismatch": [2, 0, 1],
    "inputs": "i",
    "outputs": "o",
    "waits": [8] + [0] * (BUCKETS - 1),
    "own_error": 0,
    "peer_error": 0,
    "elapsed_ns": 5,
}
IDENTITY = {
    "rank": 0,
    "pid": 7,
    "device": "interpreter-0",
    "device_name": "Triton interpreter",
    "peer_access": True,
    "python": "3",
    "torch": "2",
    "triton": "3",
    "mapped": "m",
}
PRIMED = {
    "rank": 1,
    "key": "k",
    "target": "sm_90",
    "ptx_sha256": "p",
    "cubin_sha256": "c",
    "faults": ["a release that is none"],
    "primed_ns": 9,
}


def bad(model, tree):
    with pytest.raises(WrongError) as caught:
        read(model, tree)
    refusal = caught.value.refusal
    assert (refusal.code, refusal.expected) == (Code.BAD_FRAME, model.__name__)
    return refusal


def test_what_was_dumped_is_read_back():
    for fact in (block(1), exchange(), kept(Code.PEER_TIMEOUT, block(0)), read(Case, CASE)):
        assert read(type(fact), fact.model_dump(mode="json")) == fact


@pytest.mark.parametrize(
    ("model", "tree"),
    [(Identity, IDENTITY), (Primed, PRIMED), (Stream, STREAM), (Streamed, STREAMED)],
)
def test_a_fact_has_all_its_members_and_is_read_back(model, tree):
    fact = read(model, tree)
    assert {name: fact.model_dump(mode="json")[name] for name in tree} == tree
    for name in tree:
        bad(model, {key: value for key, value in tree.items() if key != name})


@pytest.mark.parametrize(
    ("model", "tree"),
    [
        (Stream, {**STREAM, "blocks": 0}),
        (Stream, {**STREAM, "skew_ns": -1}),
        (Stream, {**STREAM, "control": 1}),
        (Launch, {"delay_ns": -1}),
        (Launch, {"delay_ns": 0.5}),
        (Stream, {**STREAM, "cached": "some"}),
        (Streamed, {**STREAMED, "own_error": 6}),
        (Streamed, {**STREAMED, "peer_error": -1}),
        (Streamed, {**STREAMED, "rank": 2}),
        (Identity, {**IDENTITY, "peer_access": "yes"}),
        (Primed, {**PRIMED, "faults": "none"}),
    ],
    ids=str,
)
def test_numbers_and_words_that_no_rank_can_mean_are_a_bad_frame(model, tree):
    bad(model, tree)


@pytest.mark.parametrize(
    "change",
    [
        {"batch": "1"},
        {"batch": 1.5},
        {"batch": None},
        {"batch": True},
        {"modes": 1},
        {"modes": ["1"]},
        {"modes": [[1]]},
        {"content": "rubbish"},
        {"flaw_rank": 2},
        {"flaw_rank": -1},
        {"poisoned": [0.5]},
        {"batch": float("nan")},
        {"batch": float("inf")},
        {"unknown": 1},
    ],
    ids=str,
)
def test_a_wrong_member_is_a_bad_frame(change):
    bad(Case, {**CASE, **change})


@pytest.mark.parametrize("name", sorted(CASE))
def test_a_missing_member_is_a_bad_frame(name):
    bad(Case, {key: value for key, value in CASE.items() if key != name})


@given(
    st.sampled_from([Block, Case, Exchange, Identity, Library, Shape]),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()) | st.binary(),
)
def test_no_tree_of_another_kind_is_read(model, tree):
    bad(model, tree)


def test_a_tree_without_end_is_a_bad_frame():
    tree = {}
    tree["x"] = tree
    bad(Launch, tree)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    bad(Launch, deep)


@pytest.mark.parametrize("member", ["own_error", "peer_error"])
@pytest.mark.parametrize("word", [-1, 6, 1 << 70])
def test_an_error_word_that_no_rank_can_have_is_a_bad_frame(member, word):
    bad(Block, {**block().model_dump(mode="json"), member: word})


@pytest.mark.parametrize(
    "change",
    [
        {"why": "PEER_TIMEOUT"},
        {"released": False},
        {"released": False, "why": "SOMETHING"},
        {"died": [2]},
        {"order": [-1]},
    ],
    ids=str,
)
def test_an_exchange_tells_one_story(change):
    bad(Exchange, {**exchange().model_dump(mode="json"), **change})


@pytest.mark.parametrize(
    ("path", "reported", "told"),
    [
        ("sampled", True, True),
        ("original", False, True),
        ("sampled", False, False),
        ("original", True, False),
    ],
)
def test_what_was_sampled_reports_its_block_and_nothing_else_does(path, reported, told):
    tree = {
        "rank": 0,
        "path": path,
        "same_objects": False,
        "tokens": [[1]],
        "q_zero": False,
        "block": block().model_dump(mode="json") if reported else None,
    }
    if told:
        assert (read(Selected, tree).block is not None) is reported
    else:
        bad(Selected, tree)


def test_words_have_the_numbers_of_the_kernel():
    assert [fault.code for fault in Fault if fault] == list(FAULTS[1:])
    assert FAULTS[Fault.NONE] is None


@given(st.integers(0, 5), st.integers(0, 5))
def test_the_graver_word_counts(own, peer):
    assert word_of(block(own_error=own, peer_error=peer)) is FAULTS[max(own, peer)]


@pytest.mark.parametrize(
    ("change", "clean"),
    [
        ({}, True),
        ({"own_error": 3}, False),
        ({"peer_error": 1}, False),
        ({"errors": ((0, 0), (0, 2))}, False),
        ({"errors": ((-77, 0), (0, 0))}, False),
    ],
    ids=str,
)
def test_a_block_is_clean_without_any_word(change, clean):
    assert block(**change).clean is clean


def test_a_refusal_crosses_whole():
    refusal = Refusal(
        Code.STICKY, "a", "b", "c", source="d", host="e", left="f", next="pp4 explain X"
    )
    assert refusal_of(refusal.as_dict()) == refusal


@pytest.mark.parametrize("spoilt", [None, {}, {"code": "STICKY"}, {"code": "NO_SUCH_CODE"}])
def test_a_refusal_that_cannot_be_read_is_a_bad_frame(spoilt):
    assert refusal_of(spoilt).code is Code.BAD_FRAME


BLOCK = {"case": CASE}
SHAPE = {"vocab": 67, "split": 35, "tile": 32, "rank_dim": 8}


@pytest.mark.parametrize(
    ("model", "tree"),
    [
        (asks.RunBlock, {}),
        (asks.RunBlock, {**BLOCK, "second": "lanched"}),
        (asks.RunBlock, {**BLOCK, "on_pause": "stop"}),
        (asks.RunBlock, {**BLOCK, "first": 2}),
        (asks.RunBlock, {**BLOCK, "first": -1}),
        (asks.RunBlock, {**BLOCK, "launches": [{}]}),
        (asks.RunBlock, {**BLOCK, "launches": [{}, {}, {}]}),
        (asks.RunBlock, {**BLOCK, "launches": [{}, {"grpah": "x"}]}),
        (asks.RunBlock, {**BLOCK, "limit_s": 0}),
        (asks.RunBlock, {**BLOCK, "limit_s": 601}),
        (asks.RunBlock, {**BLOCK, "rule": "mine"}),
        (asks.Plain, {"x": 1}),
        (asks.Libraries, {"flip": 1}),
        (asks.Expect, {"case": CASE}),
        (asks.Expect, {"case": CASE, "by": []}),
        (asks.Expect, {"case": CASE, "by": ["rumour"]}),
        (asks.Expect, {"case": CASE, "by": ["reference", "solo", "vectorised"]}),
        (asks.Expect, {"case": CASE, "by": ["reference"], "solo": True}),
        (asks.ExpectOfRank, {"case": CASE}),
        (asks.ExpectOfRank, {"case": CASE, "by": "rumour"}),
        (asks.Select, {"case": CASE}),
        (asks.One, {"verb_of_rank": "run"}),
        (asks.One, {"verb_of_rank": "run", "rank": 2}),
        (asks.One, {"verb_of_rank": "run", "rank": 0, "arguments": [{}, {}]}),
        (asks.PrimeOfRank, {"shape": SHAPE, "shards": 3}),
        (asks.PrimeOfRank, {"shape": SHAPE, "controls": ["x"]}),
        (asks.Both, {"verb_of_rank": "run", "arguments": [{}]}),
        (asks.Prime, {"delayed": 1}),
        (asks.Prime, {"shape": SHAPE, "controls": "x"}),
        (asks.MakeLink, {"nonce": "n", "fence": -1, "rows": 1, "waits": [{}, {}]}),
        (asks.MakeLink, {"nonce": "n", "fence": 1, "rows": 0, "waits": [{}, {}]}),
        (asks.MakeLink, {"nonce": "n", "fence": 1, "rows": 1, "waits": [{}]}),
        # a link that primes by the way compares no digests
        (
            asks.MakeLink,
            {"nonce": "n", "fence": 1, "rows": 1, "waits": [{}, {}], "shape": SHAPE},
        ),
    ],
    ids=str,
)
def test_arguments_that_an_owner_does_not_know_are_a_bad_frame(model, tree):
    bad(model, tree)


def test_arguments_that_are_left_out_have_the_ordinary_meaning():
    asked = read(asks.RunBlock, BLOCK)
    assert (asked.first, asked.second, asked.on_pause) == (0, "together", "resume")
    assert asked.launches == (Launch(), Launch())
