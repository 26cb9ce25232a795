"""Frames: any stream gives its messages, or one BAD_FRAME, and never grows without bound."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, WrongError
from pp4.wire import MAX_FRAME, Decoder, Event, Reply, Request, encode, encode_reply

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaf = st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 64) | text
trees = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
sequences = st.integers(0, 1 << 62)
messages = st.one_of(
    st.builds(
        Request, sequence=sequences, verb=text, arguments=st.dictionaries(text, trees, max_size=3)
    ),
    st.builds(Event, sequence=sequences, name=text),
    st.builds(Reply, sequence=sequences, facts=st.none() | st.dictionaries(text, trees)),
    st.builds(Reply, sequence=sequences, refusal=st.dictionaries(text, text, max_size=8)),
)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def refused(data: bytes, decoder: Decoder | None = None) -> WrongError:
    with pytest.raises(WrongError) as caught:
        list((decoder or Decoder()).feed(data))
    assert caught.value.refusal.code is Code.BAD_FRAME
    return caught.value


@given(st.lists(messages, max_size=4), st.data())
def test_a_stream_gives_its_messages_however_it_is_cut(sent, data):
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    edges = [0, *cuts, len(stream)]
    decoder, got = Decoder(), []
    for start, end in pairwise(edges):
        got += decoder.feed(stream[start:end])
    assert got == sent
    assert decoder.pending == 0


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_a_cut_off_stream_keeps_the_rest_pending(sent, data):
    stream = b"".join(encode(message) for message in sent)
    end = data.draw(st.integers(0, len(stream) - 1))
    decoder = Decoder()
    got = list(decoder.feed(stream[:end]))
    assert got == sent[: len(got)]
    assert len(got) < len(sent)
    assert decoder.pending == end - sum(len(encode(message)) for message in got)


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_garbage_is_a_bad_frame_and_nothing_else(pieces):
    decoder, found, ends = Decoder(), [], []
    for piece in pieces:
        try:
            found += decoder.feed(piece)
        except WrongError as error:
            ends.append(error.refusal)
    assert found == []
    assert all(end.code is Code.BAD_FRAME and end == ends[0] for end in ends)
    assert not ends or decoder.pending == 0


@given(messages, st.data())
def test_a_changed_byte_gives_a_message_or_a_bad_frame(message, data):
    stream = bytearray(encode(message))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    ends = []
    try:
        found = list(Decoder().feed(bytes(stream)))
    except WrongError as error:
        found, ends = [], [error.refusal.code]
    assert all(isinstance(one, Request | Event | Reply) for one in found)
    assert ends in ([], [Code.BAD_FRAME])


REPLY = {"kind": "reply", "version": 1, "sequence": 1}
BODIES = {
    "empty": b"",
    "no JSON": b"\x00\xff",
    "not UTF-8": b'{"kind":"event","sequence":1,"name":"\xff"}',
    "a lone surrogate": b'{"kind":"event","sequence":1,"name":"\\ud800"}',
    "a list": b"[]",
    "unknown kind": json.dumps({**REPLY, "kind": "shout"}).encode(),
    "no kind": b'{"sequence":1,"name":"x"}',
    "unknown version": json.dumps({**REPLY, "version": 2}).encode(),
    "version as text": json.dumps({**REPLY, "version": "1"}).encode(),
    "version as truth": json.dumps({**REPLY, "version": True}).encode(),
    "unknown member": json.dumps({**REPLY, "extra": 1}).encode(),
    "negative sequence": json.dumps({**REPLY, "sequence": -1}).encode(),
    "sequence as text": json.dumps({**REPLY, "sequence": "1"}).encode(),
    "sequence with a fraction": json.dumps({**REPLY, "sequence": 1.5}).encode(),
    "facts as a list": json.dumps({**REPLY, "facts": []}).encode(),
    "refusal with a number": json.dumps({**REPLY, "refusal": {"code": 1}}).encode(),
    "NaN": b'{"kind":"reply","sequence":1,"facts":{"x":NaN}}',
    "infinity": b'{"kind":"reply","sequence":1,"facts":{"x":[-Infinity]}}',
    "a number past every float": b'{"kind":"reply","sequence":1,"facts":{"x":1e999}}',
    "deep": b'{"kind":"reply","sequence":1,"facts":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    "a number of many digits": b'{"kind":"event","sequence":' + b"9" * 9000 + b',"name":"x"}',
    "two documents": b'{"kind":"event","sequence":1,"name":"x"} {}',
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_no_message_is_a_bad_frame(name):
    refused(frame(BODIES[name]))


@given(st.integers(MAX_FRAME + 1, (1 << 32) - 1))
def test_a_length_over_the_limit_refuses_before_the_body_comes(length):
    decoder = Decoder()
    refused(length.to_bytes(4, "big"), decoder)
    assert decoder.pending == 0


def test_after_a_bad_frame_nothing_is_kept_or_believed():
    decoder = Decoder()
    first = refused(frame(b"{}"), decoder)
    for _ in range(5):
        again = refused(bytes(1 << 20) + encode(Event(sequence=1, name="late")), decoder)
        assert again.refusal == first.refusal
    assert decoder.pending == 0


def test_messages_before_a_bad_frame_are_delivered():
    good = Event(sequence=3, name="launching")
    stream = Decoder().feed(encode(good) + frame(b"nonsense") + encode(good))
    assert next(stream) == good
    with pytest.raises(WrongError):
        next(stream)


def test_the_limit_itself_passes_and_one_byte_more_does_not():
    empty = len(encode(Event(sequence=0, name=""))) - 4
    largest = Event(sequence=0, name="x" * (MAX_FRAME - empty))
    (found,) = Decoder().feed(encode(largest))
    assert found == largest
    with pytest.raises(WrongError) as caught:
        encode(Event(sequence=0, name="x" * (MAX_FRAME - empty + 1)))
    assert caught.value.refusal.code is Code.BAD_FRAME


@pytest.mark.parametrize("fact", [object(), "\ud800", b"\xff"], ids=["object", "surrogate", "raw"])
def test_what_json_cannot_hold_is_refused_by_the_sender(fact):
    reply = Reply(sequence=7, facts={"x": fact})
    with pytest.raises(WrongError) as caught:
        encode(reply)
    assert caught.value.refusal.code is Code.BAD_FRAME
    (found,) = Decoder().feed(encode_reply(reply))
    assert found.sequence == 7
    assert found.facts is None
    assert found.refusal["code"] == "BAD_FRAME"


def test_a_reply_that_can_be_sent_is_sent_as_it_is():
    reply = Reply(sequence=7, facts={"x": [1, "y", None]})
    assert encode_reply(reply) == encode(reply)
