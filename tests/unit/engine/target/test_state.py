"""What a target keeps, and that a refusal changes nothing of it."""

import pytest
import torch

from pp4.engine.interface import Row, Target
from pp4.engine.target.causal import CausalTarget
from pp4.errors import BadInputError, Code
from tests.unit.engine.target.checkpoints import SMALL, target_of, weights_of
from tests.unit.engine.target.stepping import tokens_of

CONTEXT = 20


def started():
    """Slot 0 keeps five tokens and has stepped four, slot 1 has one place left, slot 2 is empty."""
    target = target_of(SMALL, context=CONTEXT)
    target.prefill(0, tokens_of(5, SMALL.vocab))
    target.prefill(1, tokens_of(CONTEXT - 1, SMALL.vocab))
    target.step([Row(0, [1, 2, 3, 4])])
    return target


def seen_of(target):
    """Lengths, and the bits of what comes after three of the four tokens and in the other slots."""
    lengths = [target.length(slot) for slot in range(3)]
    target.keep(0, 3)
    found = target.step([Row(0, [7, 8]), Row(1, [9]), Row(2, [5, 5])])
    return lengths, found.logits, found.features


REFUSED = {
    "prefill of no such slot": (lambda t: t.prefill(3, [1]), "0 to 2", "3"),
    "prefill of a slot below": (lambda t: t.prefill(-1, [1]), "0 to 2", "-1"),
    "prefill of a token beyond": (lambda t: t.prefill(0, [1, 37]), "0 to 36", "37"),
    "prefill of a token below": (lambda t: t.prefill(0, [1, -1]), "0 to 36", "-1"),
    "prefill of too many": (lambda t: t.prefill(0, [1] * 21), "0 to 20", "21"),
    "step of no row": (lambda t: t.step([]), "at least 1", "0"),
    "step of no such slot": (lambda t: t.step([Row(0, [1]), Row(3, [1])]), "0 to 2", "3"),
    "step of a slot twice": (
        lambda t: t.step([Row(0, [1]), Row(2, [1]), Row(0, [2])]),
        "a slot once",
        "slots [0, 2, 0]",
    ),
    "step of no token": (lambda t: t.step([Row(0, [1]), Row(2, [])]), "1 to 6", "0"),
    "step beyond the window": (lambda t: t.step([Row(0, [1] * 7)]), "1 to 6", "7"),
    "step beyond the context": (
        lambda t: t.step([Row(0, [1]), Row(1, [1, 2])]),
        "0 to 20",
        "21",
    ),
    "step of a token beyond": (lambda t: t.step([Row(0, [1, 37])]), "0 to 36", "37"),
    "step of a token below": (lambda t: t.step([Row(0, [-1])]), "0 to 36", "-1"),
    "keep of no such slot": (lambda t: t.keep(3, 1), "0 to 2", "3"),
    "keep of more than was stepped": (lambda t: t.keep(0, 5), "0 to 4", "5"),
    "keep of less than none": (lambda t: t.keep(0, -1), "0 to 4", "-1"),
    "keep without a step": (lambda t: t.keep(1, 0), "one with a step that was not kept from", "1"),
    "length of no such slot": (lambda t: t.length(3), "0 to 2", "3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_leaves_everything_as_it_was(name):
    asked, expected, found = REFUSED[name]
    target = started()
    with pytest.raises(BadInputError) as caught:
        asked(target)
    refusal = caught.value.refusal
    assert (refusal.code, refusal.expected, refusal.found) == (Code.BAD_INPUT, expected, found)
    lengths, logits, features = seen_of(target)
    others, expected_logits, expected_features = seen_of(started())
    assert lengths == others == [5, CONTEXT - 1, 0]
    # behind the tokens of a row they mean nothing
    for row, count in enumerate((2, 1, 2)):
        assert torch.equal(logits[row, :count], expected_logits[row, :count])
        assert torch.equal(features[row, :count], expected_features[row, :count])


def test_a_full_slot_takes_no_step():
    target = target_of(SMALL, context=6)
    target.prefill(0, [1] * 6)
    with pytest.raises(BadInputError, match="tokens of a sequence: expected 0 to 6, found 7"):
        target.step([Row(0, [1])])
    assert target.length(0) == 6


def test_a_step_is_kept_from_once():
    target = target_of(SMALL)
    target.step([Row(1, [1, 2, 3])])
    assert target.length(1) == 0
    target.keep(1, 2)
    assert target.length(1) == 2
    with pytest.raises(BadInputError, match="not kept from"):
        target.keep(1, 1)
    assert target.length(1) == 2


def test_keeping_none_is_keeping():
    target = target_of(SMALL)
    target.step([Row(1, [1, 2, 3])])
    target.keep(1, 0)
    assert target.length(1) == 0
    with pytest.raises(BadInputError, match="not kept from"):
        target.keep(1, 1)


def test_a_step_that_was_not_kept_from_gives_way_to_the_next():
    target, other = target_of(SMALL), target_of(SMALL)
    target.step([Row(1, [1, 2, 3])])
    target.step([Row(1, [4])])
    with pytest.raises(BadInputError, match="0 to 1"):
        target.keep(1, 2)
    target.keep(1, 1)
    other.prefill(1, [])
    other.step([Row(1, [4, 9])])
    other.keep(1, 1)
    found, expected = (one.step([Row(1, [6])]) for one in (target, other))
    assert torch.equal(found.logits[0, 0], expected.logits[0, 0])


def test_a_step_that_fails_half_way_cannot_be_kept_from(monkeypatch):
    """Nor the one before it, whose place in the cache the failed one may have taken."""
    target = target_of(SMALL)
    target.step([Row(1, [1, 2, 3])])

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(target._decoder, "_feed_forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        target.step([Row(1, [4, 5])])
    with pytest.raises(BadInputError, match="not kept from"):
        target.keep(1, 2)
    assert target.length(1) == 0


def test_a_prompt_empties_its_slot_and_forgets_its_step():
    target, fresh = started(), target_of(SMALL, context=CONTEXT)
    for one in (target, fresh):
        one.prefill(0, [6, 5])
    assert target.length(0) == 2
    with pytest.raises(BadInputError, match="not kept from"):
        target.keep(0, 1)
    found, expected = (one.step([Row(0, [1])]) for one in (target, fresh))
    assert torch.equal(found.logits[0, 0], expected.logits[0, 0])
    target.prefill(0, [])
    assert target.length(0) == 0


def test_rows_come_back_in_the_order_in_which_they_were_given():
    target = target_of(SMALL)
    there = target.step([Row(2, [1, 2]), Row(0, [3])])
    back = target.step([Row(0, [3]), Row(2, [1, 2])])
    assert there.logits.shape == (2, 6, SMALL.vocab)
    assert there.features.shape == (2, 6, target.width)
    assert torch.equal(there.logits[0, :2], back.logits[1, :2])
    assert torch.equal(there.features[1, :1], back.features[0, :1])
    assert not torch.equal(there.logits[0, 0], there.logits[1, 0])


def test_it_tells_what_the_interface_asks_for():
    target: Target = target_of(SMALL, taps=(-1, 3), slots=2, window=4, context=9)
    assert (target.vocab, target.width) == (37, 32)
    assert (target.slots, target.window, target.context) == (2, 4, 9)


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"taps": ()}, "taps"),
        ({"taps": (-2, 1)}, "taps"),
        ({"taps": (0, 4)}, "taps"),
        ({"taps": (1, 0)}, "taps"),
        ({"taps": (1, 1)}, "taps"),
        ({"slots": 0}, "slots"),
        ({"window": 0}, "window"),
        ({"window": 41}, "window"),
        ({"context": 0}, "context"),
        ({"context": SMALL.max_positions + 1}, "context"),
    ],
)
def test_a_target_without_sense_is_refused(changed, where):
    with pytest.raises(BadInputError) as caught:
        CausalTarget(
            weights_of(), **{"taps": (0,), "slots": 1, "window": 6, "context": 40, **changed}
        )
    assert caught.value.refusal.where == where


def test_all_positions_can_be_used():
    target = target_of(SMALL, context=SMALL.max_positions)
    features = target.prefill(0, [1] * (SMALL.max_positions - 1))
    found = target.step([Row(0, [2])])
    target.keep(0, 1)
    assert target.length(0) == SMALL.max_positions
    assert bool(features.isfinite().all() & found.logits[:, 0].isfinite().all())
