"""Philox4x32-10 against its published answers, and the counter that a decision owns."""

import json
from pathlib import Path

import pytest

from pp4.errors import BadInputError
from pp4.kernels.philox import draft_ticket, philox4x32_10, stream
from pp4.kernels.purposes import Purpose

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "philox.json").read_text("utf-8"))


def words(texts):
    return tuple(int(text, 16) for text in texts)


@pytest.mark.parametrize("block", VECTORS["blocks"], ids=lambda block: block["counter"][0])
def test_published_answers(block):
    assert philox4x32_10(words(block["counter"]), words(block["key"])) == words(block["words"])


@pytest.mark.parametrize("known", VECTORS["draft_tickets"])
def test_known_draft_tickets(known):
    asked = {name: known[name] for name in ("key", "position", "round")}
    assert draft_ticket(**asked) == known["ticket"]


def test_key_position_round_and_purpose_each_have_their_word():
    block = stream(key=0x299F31D0_A4093822, position=5, round=6, purpose=Purpose.RESIDUAL)
    assert block == philox4x32_10((5, 6, 3, 0), (0xA4093822, 0x299F31D0))


def test_purposes_are_fixed():
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "DRAFT": 1,
        "ACCEPT": 2,
        "RESIDUAL": 3,
        "BONUS": 4,
    }


def test_the_ticket_is_the_top_of_the_first_word():
    first, *_ = stream(key=2**64 - 1, position=2**32 - 1, round=0, purpose=Purpose.DRAFT)
    assert draft_ticket(key=2**64 - 1, position=2**32 - 1, round=0) == first >> 8


@pytest.mark.parametrize(
    ("counter", "key"),
    [
        ((0, 0, 0), (0, 0)),
        ((0, 0, 0, 0), (0,)),
        ((0, 0, 0, 1 << 32), (0, 0)),
        ((0, 0, 0, 0), (0, -1)),
    ],
)
def test_words_that_do_not_fit_refuse(counter, key):
    with pytest.raises(BadInputError, match="words of 32 bits"):
        philox4x32_10(counter, key)


@pytest.mark.parametrize("key", [-1, 1 << 64])
def test_a_key_that_does_not_fit_refuses(key):
    with pytest.raises(BadInputError, match="64 bits"):
        draft_ticket(key=key, position=0, round=0)
