"""A wrong question is refused by its member and changes nothing; a bad frame ends."""

import pytest

from pp4.errors import Code
from pp4.wire.draft_frames import encode
from pp4.wire.drafts import Close, Features, Hello, Open, Status
from pp4.worker.client import Ask
from tests.unit.worker.fronts import (
    OFFER,
    WIDTH,
    answers,
    draft,
    features_of,
    raw,
    ready,
    refused,
)

WRONG = {
    "an unknown request": ({"request": 2}, "request"),
    "a round that was used": ({"round": 6}, "round"),
    "a position too low": ({"position": 2}, "position"),
    "a position too high": ({"position": 4}, "position"),
    "an anchor beyond the vocabulary": ({"anchor": OFFER.vocab}, "anchor"),
    "sampled without a temperature": ({"temperature": 0.0}, "temperature"),
    "sampled below 0": ({"temperature": -1.0}, "temperature"),
    "greedy with a temperature": ({"mode": "greedy"}, "temperature"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_draft_is_refused_by_its_member_and_changes_nothing(worker, name):
    changed, member = WRONG[name]
    with raw(worker) as connected:
        connected.sendall(
            encode(Hello(sequence=1, depth=4))
            + encode(Open(sequence=2, request=1, key=9))
            + encode(Features(sequence=3, request=1, first=0, tokens=2), bytes(4 * WIDTH))
            + encode(draft(sequence=4, round=6))
        )
        assert answers(connected, 4)[-1].verb == "DRAFTED"
        connected.sendall(encode(draft(sequence=5, **changed)))
        (told,) = answers(connected, 1)
        assert (told.verb, told.sequence) == ("REFUSED", 5)
        assert told.refusal["code"] == Code.BAD_INPUT
        assert told.refusal["where"] == f"DRAFT, {member}"
        connected.sendall(encode(draft(sequence=6)))
        (told,) = answers(connected, 1)
        assert (told.verb, told.sequence, told.round) == ("DRAFTED", 6, 7)
    assert [call[0] for call in worker.ranks.calls].count("draft") == 2


def test_one_draft_of_a_request_at_a_time(worker, client):
    ready(client, 1)
    worker.do(worker.ranks.block)
    ticket = client.submit(Ask(1, round=0, anchor=1))
    with refused(Code.BAD_INPUT, "DRAFT, request"):
        client.draft(Ask(1, round=1, anchor=1))
    with refused(Code.BAD_INPUT, "FEATURES, request"):
        client.features(1, features_of(1, 1))
    worker.do(worker.ranks.release)
    assert client.collect(ticket).round == 0


@pytest.mark.parametrize(
    ("question", "body", "where"),
    [
        (Features(sequence=9, request=2, first=0, tokens=1), 2 * WIDTH, "FEATURES, request"),
        (Features(sequence=9, request=1, first=1, tokens=1), 2 * WIDTH, "FEATURES, first"),
        (Features(sequence=9, request=1, first=3, tokens=1), 2 * WIDTH, "FEATURES, first"),
        (Features(sequence=9, request=1, first=2, tokens=1), 2 * WIDTH + 2, "FEATURES, body"),
        (Open(sequence=9, request=1, key=0), 0, "OPEN, request"),
        (Close(sequence=9, request=2), 0, "CLOSE, request"),
        (Hello(sequence=9, depth=4), 0, "HELLO, connection"),
    ],
)
def test_a_wrong_question_is_refused_by_its_member(worker, question, body, where):
    with raw(worker) as connected:
        connected.sendall(
            encode(Hello(sequence=1, depth=4))
            + encode(Open(sequence=2, request=1, key=9))
            + encode(Features(sequence=3, request=1, first=0, tokens=2), bytes(4 * WIDTH))
            + encode(question, bytes(body))
            + encode(draft(sequence=10))
        )
        told = answers(connected, 5)
    assert [one.verb for one in told[-2:]] == ["REFUSED", "DRAFTED"]
    assert told[-2].refusal["where"] == where
    assert told[-2].sequence == 9


@pytest.mark.parametrize(
    ("hello", "where"),
    [
        (Hello(sequence=1, depth=3), "HELLO, depth"),
        (Hello(sequence=1, depth=4, version=2), "HELLO, version"),
        (Hello(sequence=1, depth=4, abi="pp4-draft-v2"), "HELLO, abi"),
        (Open(sequence=1, request=1, key=1), "OPEN, connection"),
        (draft(sequence=1), "DRAFT, connection"),
    ],
)
def test_nothing_goes_before_a_hello_that_fits(worker, hello, where):
    with raw(worker) as connected:
        connected.sendall(
            encode(hello) + encode(Status(sequence=2)) + encode(Hello(sequence=3, depth=5))
        )
        told = answers(connected, 3)
    assert [one.verb for one in told] == ["REFUSED", "STANDING", "WELCOME"]
    assert told[0].refusal["where"] == where


def test_a_bad_frame_is_refused_once_and_ends_its_connection_alone(worker, client):
    ready(client, 1)
    with raw(worker) as connected:
        connected.sendall(encode(Status(sequence=1)) + b"nonsense, and more of it" * 9000)
        told = answers(connected, None)
    assert [one.verb for one in told] == ["STANDING", "REFUSED"]
    assert told[1].sequence is None
    assert told[1].refusal["code"] == Code.BAD_FRAME
    assert client.draft(Ask(1, round=0, anchor=1)).round == 0
