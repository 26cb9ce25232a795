"""What both ranks refuse, and whether that ends them: only what was named before does not."""

import asyncio

import pytest

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.wire import Reply
from pp4.worker.serving.conversation import Conversation

HARMLESS = frozenset({Code.CACHE_FULL})


class End:
    """A rank that has its answer ready."""

    alive = settled = True

    def __init__(self, code):
        refusal = None if code is None else Refusal(code, "rank", "more", "less").as_dict()
        facts = {"slot": 3} if code is None else None
        self._reply = Reply(sequence=1, facts=facts, refusal=refusal)

    def ask(self, verb, given):
        """Take it."""

    def answer(self, verb):
        return self._reply


class Pair:
    def __init__(self, *codes):
        self.ends = [End(code) for code in codes]


def asked(*codes):
    ranks = Conversation(Pair(*codes))
    return ranks, lambda: asyncio.run(ranks.both("serve.open", {}, 5.0, HARMLESS))


def test_facts_of_both_are_told():
    ranks, ask = asked(None, None)
    assert ask() == ({"slot": 3}, {"slot": 3})
    assert ranks.failed is None


def test_a_harmless_refusal_of_both_leaves_them_as_they_were():
    ranks, ask = asked(Code.CACHE_FULL, Code.CACHE_FULL)
    with pytest.raises(RefusedError) as caught:
        ask()
    assert caught.value.refusal.code is Code.CACHE_FULL
    assert ranks.failed is None


@pytest.mark.parametrize(
    ("codes", "kept"),
    [
        ((Code.INTERNAL, Code.INTERNAL), Code.INTERNAL),
        ((Code.CACHE_FULL, Code.BAD_INPUT), Code.CACHE_FULL),
        ((Code.CACHE_FULL, None), Code.CACHE_FULL),
        ((None, Code.CACHE_FULL), Code.CACHE_FULL),
    ],
)
def test_any_other_refusal_ends_them_for_good(codes, kept):
    ranks, ask = asked(*codes)
    with pytest.raises(WrongError) as caught:
        ask()
    assert caught.value.refusal.code is kept
    assert ranks.failed is caught.value
    with pytest.raises(WrongError):
        ask()
