"""Frames of drafts: any stream gives whole messages, or one BAD_FRAME, within bounds."""

import json
import struct
import tracemalloc
from datetime import UTC
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.drafter import packing
from pp4.errors import Code, WrongError
from pp4.kernels.dyadic24 import WIDTH
from pp4.wire import drafts
from pp4.wire.draft_frames import MAX_BODY, MAX_META, Decoder, encode, head
from pp4.wire.offers import Offer

HEADER = 16
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
SIZE = st.integers(1, 1 << 20)
REFUSAL = st.dictionaries(TEXT, TEXT, max_size=4)
MODES = st.sampled_from(["sampled", "greedy"])
OFFERS = st.builds(
    Offer,
    definition=TEXT,
    definition_sha256=TEXT,
    tau=st.sampled_from(["0", "0.7", "1", "12.00000001", "9999.5"]),
    candidates=SIZE,
    vocab=SIZE,
    draft_vocab=SIZE,
    block=SIZE,
    depths=st.lists(SIZE, max_size=3).map(tuple),
    feature_width=SIZE,
    context=SIZE,
    slots=SIZE,
    batches=st.lists(SIZE, max_size=3).map(tuple),
    sampled=st.booleans(),
    device=TEXT,
)
HEADERS_OF_DRAFTS = {"generation": U64, "slot": U32, "round": U32, "position": U32, "mode": MODES}
QUESTIONS = st.one_of(
    st.builds(drafts.Hello, sequence=U64, version=U16, abi=TEXT, depth=U16),
    st.builds(drafts.Open, sequence=U64, request=U64, key=U64),
    st.builds(
        drafts.Draft,
        sequence=U64,
        request=U64,
        anchor=U32,
        temperature=st.floats(allow_nan=False, allow_infinity=False),
        **HEADERS_OF_DRAFTS,
    ),
    st.builds(drafts.Abort, sequence=U64, request=U64),
    st.builds(drafts.Close, sequence=U64, request=U64),
    st.builds(drafts.Status, sequence=U64),
).map(lambda message: (message, b""))
FEATURES = st.tuples(st.integers(1, 4), st.integers(1, 40), U64, U32).flatmap(
    lambda given: st.tuples(
        st.just(
            drafts.Features(sequence=given[2], request=7, first=given[3], tokens=given[0]),
        ),
        st.binary(min_size=2 * given[0] * given[1], max_size=2 * given[0] * given[1]),
    )
)
ANSWERS = st.one_of(
    st.builds(drafts.Welcome, sequence=U64, offer=OFFERS, depth=U16, largest_body=U32),
    st.builds(drafts.Opened, sequence=U64, request=U64),
    st.builds(drafts.Appended, sequence=U64, request=U64, length=U32),
    st.builds(drafts.Aborted, sequence=U64, request=U64, dropped=st.booleans()),
    st.builds(drafts.Closed, sequence=U64, request=U64),
    st.builds(
        drafts.Standing,
        sequence=U64,
        state=st.sampled_from(["starting", "primed", "serving", "failed", "torn down"]),
        since=st.datetimes(timezones=st.just(UTC)),
        ranks=st.lists(U32, max_size=2).map(tuple),
        offer=st.none() | OFFERS,
        refusal=st.none() | REFUSAL,
        counters=st.dictionaries(TEXT, U64, max_size=3),
    ),
    st.builds(drafts.Refused, sequence=st.none() | U64, refusal=REFUSAL),
).map(lambda message: (message, b""))
DRAFTED = st.integers(1, 7).flatmap(
    lambda block: st.tuples(
        st.builds(
            drafts.Drafted,
            sequence=U64,
            request=U64,
            depth=st.integers(1, block),
            block=st.just(block),
            **HEADERS_OF_DRAFTS,
        ),
        st.integers(0, 255).map(lambda byte: bytes([byte]) * drafts.reply_bytes(block)),
    )
)
SPOKEN = [(drafts.QUESTIONS, QUESTIONS | FEATURES), (drafts.ANSWERS, ANSWERS | DRAFTED)]


def listen(decoder, *pieces):
    """-> messages, and the codes of refusals."""
    found, codes = [], []
    for piece in pieces:
        try:
            found += [(frame.message, bytes(frame.body)) for frame in decoder.feed(piece)]
        except WrongError as error:
            codes.append(error.refusal.code)
    return found, codes


def frame(meta, body=b"", *, magic=b"PP4D", version=1, reserved=0, lengths=None):
    meta_length, body_length = lengths or (len(meta), len(body))
    start = struct.pack("<4sHHII", magic, version, reserved, meta_length, body_length)
    return start + meta + body


def cut(stream, data):
    """The stream in pieces."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    return [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


@pytest.mark.parametrize(("models", "spoken"), SPOKEN, ids=["questions", "answers"])
@given(data=st.data())
def test_every_verb_comes_back_however_the_stream_is_cut(models, spoken, data):
    sent = data.draw(st.lists(spoken, max_size=4))
    decoder = Decoder(models)
    found, codes = listen(decoder, *cut(b"".join(encode(*one) for one in sent), data))
    assert found == sent
    assert codes == []
    assert decoder.pending == 0


@given(sent=st.lists(QUESTIONS | FEATURES, min_size=1, max_size=3), data=st.data())
def test_no_part_of_a_message_comes_out(sent, data):
    frames = [encode(*one) for one in sent]
    stream = b"".join(frames)
    end = data.draw(st.integers(0, len(stream) - 1))
    decoder = Decoder(drafts.QUESTIONS)
    found, codes = listen(decoder, *cut(stream[:end], data))
    whole = sum(end >= sum(map(len, frames[: count + 1])) for count in range(len(frames)))
    assert found == sent[:whole]
    assert codes == []
    assert decoder.pending == end - sum(map(len, frames[:whole]))


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_garbage_is_a_bad_frame_and_nothing_else(pieces):
    decoder = Decoder(drafts.QUESTIONS)
    found, codes = listen(decoder, *pieces)
    assert found == []
    assert set(codes) <= {Code.BAD_FRAME}
    # once broken, every later piece is refused
    assert not codes or len(codes) == len(pieces) - next(
        index for index, _ in enumerate(pieces) if len(b"".join(pieces[: index + 1])) >= HEADER
    )


@pytest.mark.parametrize(("models", "spoken"), SPOKEN, ids=["questions", "answers"])
@given(data=st.data())
def test_changed_bytes_give_whole_messages_or_one_bad_frame(models, spoken, data):
    sent = data.draw(st.lists(spoken, min_size=1, max_size=3))
    stream = bytearray(b"".join(encode(*one) for one in sent))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] ^= data.draw(st.integers(1, 255))
    decoder = Decoder(models)
    found, codes = listen(decoder, bytes(stream))
    assert codes in ([], [Code.BAD_FRAME])
    assert all(message.fits(len(body)) for message, body in found)
    assert decoder.pending <= HEADER + MAX_META + MAX_BODY
    if codes:
        assert decoder.pending == 0
        assert listen(decoder, encode(drafts.Status(sequence=1))) == ([], [Code.BAD_FRAME])


@given(
    lengths=st.tuples(U32, U32).filter(
        lambda pair: not 0 < pair[0] <= MAX_META or pair[1] > MAX_BODY
    )
)
def test_a_length_beyond_its_limit_refuses_with_the_header(lengths):
    decoder = Decoder(drafts.QUESTIONS)
    assert listen(decoder, frame(b"", lengths=lengths)) == ([], [Code.BAD_FRAME])
    assert decoder.pending == 0


def test_nothing_is_kept_for_a_length_that_is_only_claimed():
    meta = drafts.Features(sequence=1, request=1, first=0, tokens=1).model_dump_json().encode()
    decoder = Decoder(drafts.QUESTIONS)
    tracemalloc.start()
    try:
        found, codes = listen(decoder, frame(meta, lengths=(len(meta), MAX_BODY)), b"\0" * 100)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found, codes) == ([], [])
    assert peak < 1 << 20
    assert decoder.pending == HEADER + len(meta) + 100


def test_a_body_that_does_not_fit_is_refused_before_it_comes():
    meta = drafts.Status(sequence=1).model_dump_json().encode()
    decoder = Decoder(drafts.QUESTIONS)
    assert listen(decoder, frame(meta, lengths=(len(meta), 2))) == ([], [Code.BAD_FRAME])


def test_a_body_beyond_what_this_reader_takes_is_refused():
    asked = drafts.Features(sequence=1, request=1, first=0, tokens=1)
    assert listen(Decoder(drafts.QUESTIONS, 8), encode(asked, bytes(8)))[1] == []
    assert listen(Decoder(drafts.QUESTIONS, 8), encode(asked, bytes(10)))[1] == [Code.BAD_FRAME]


STATUS = {"verb": "STATUS", "sequence": 1}
DRAFT = drafts.Draft(
    sequence=1,
    request=1,
    generation=0,
    slot=0,
    round=0,
    position=1,
    anchor=2,
    mode="greedy",
    temperature=0.0,
).model_dump()
GOOD = json.dumps(STATUS).encode()
BAD = {
    "magic": frame(GOOD, magic=b"PP4X"),
    "version": frame(GOOD, version=2),
    "reserved": frame(GOOD, reserved=1),
    "no meta": frame(b""),
    "no JSON": frame(b"\x00\xff"),
    "not UTF-8": frame(b'{"verb":"STATUS\xff","sequence":1}'),
    "a list": frame(b"[]"),
    "two documents": frame(GOOD + GOOD),
    "unknown verb": frame(json.dumps({**STATUS, "verb": "SHOUT"}).encode()),
    "no verb": frame(b'{"sequence":1}'),
    "an answer": frame(b'{"verb":"OPENED","sequence":1,"request":1}'),
    "unknown member": frame(json.dumps({**STATUS, "extra": 1}).encode()),
    "a member twice": frame(b'{"verb":"STATUS","sequence":1,"sequence":2}'),
    "a member twice, the same": frame(b'{"verb":"STATUS","verb":"STATUS","sequence":1}'),
    "a member missing": frame(b'{"verb":"ABORT","sequence":1}'),
    "negative": frame(json.dumps({**STATUS, "sequence": -1}).encode()),
    "too wide": frame(json.dumps({**STATUS, "sequence": 1 << 64}).encode()),
    "text": frame(json.dumps({**STATUS, "sequence": "1"}).encode()),
    "truth": frame(json.dumps({**STATUS, "sequence": True}).encode()),
    "a fraction": frame(json.dumps({**STATUS, "sequence": 1.0}).encode()),
    "a number of many digits": frame(b'{"verb":"STATUS","sequence":' + b"9" * 9000 + b"}"),
    "deep": frame(b'{"verb":"STATUS","sequence":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    "deep, unknown": frame(b'{"verb":"STATUS","x":' + b'{"x":' * 9_000 + b"1" + b"}" * 9_001),
    "NaN": frame(json.dumps({**DRAFT, "temperature": float("nan")}).encode()),
    "infinity": frame(json.dumps({**DRAFT, "temperature": float("inf")}).encode()),
    "past every float": frame(json.dumps(DRAFT).replace("0.0", "1e999").encode()),
    "a round of 33 bits": frame(json.dumps({**DRAFT, "round": 1 << 32}).encode()),
    "unknown mode": frame(json.dumps({**DRAFT, "mode": "hot"}).encode()),
    "a body where there is none": frame(GOOD, b"xx"),
    "features without a body": frame(
        b'{"verb":"FEATURES","sequence":1,"request":1,"first":0,"tokens":1}'
    ),
    "features of half a value": frame(
        b'{"verb":"FEATURES","sequence":1,"request":1,"first":0,"tokens":2}', b"xxxxxx"
    ),
    "features of no token": frame(
        b'{"verb":"FEATURES","sequence":1,"request":1,"first":0,"tokens":0}', b"xx"
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_question_is_a_bad_frame(name):
    assert listen(Decoder(drafts.QUESTIONS), BAD[name]) == ([], [Code.BAD_FRAME])


def test_the_frames_above_are_bad_for_one_reason_only():
    found, codes = listen(
        Decoder(drafts.QUESTIONS), frame(GOOD) + frame(json.dumps(DRAFT).encode())
    )
    assert [message.verb for message, _ in found] == ["STATUS", "DRAFT"]
    assert codes == []


def test_messages_before_a_bad_frame_are_delivered():
    stream = Decoder(drafts.QUESTIONS).feed(frame(GOOD) + b"nonsense of some length")
    assert next(stream).message == drafts.Status(sequence=1)
    with pytest.raises(WrongError):
        next(stream)


DONE = drafts.Drafted(
    sequence=1,
    request=1,
    generation=0,
    slot=0,
    round=0,
    position=1,
    mode="greedy",
    depth=4,
    block=5,
)


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (DONE, drafts.reply_bytes(5) - 4),
        (DONE, drafts.reply_bytes(4)),
        (DONE, 0),
        (DONE.model_copy(update={"depth": 6}), drafts.reply_bytes(5)),
        (DONE.model_copy(update={"depth": 0}), drafts.reply_bytes(5)),
        (drafts.Opened(sequence=1, request=1), 4),
    ],
)
def test_an_answer_with_another_body_is_neither_sent_nor_read(answer, size):
    with pytest.raises(WrongError) as caught:
        encode(answer, bytes(size))
    assert caught.value.refusal.code is Code.BAD_FRAME
    stream = frame(answer.model_dump_json().encode(), bytes(size))
    assert listen(Decoder(drafts.ANSWERS), stream) == ([], [Code.BAD_FRAME])


def test_a_sender_keeps_the_limits():
    features = drafts.Features(sequence=1, request=1, first=0, tokens=1)
    assert len(head(features, MAX_BODY)) < 100
    for message, body in [
        (features, MAX_BODY + 2),
        (drafts.Refused(sequence=1, refusal={"found": "x" * MAX_META}), 0),
    ]:
        with pytest.raises(WrongError) as caught:
            head(message, body)
        assert caught.value.refusal.code is Code.BAD_FRAME


@pytest.mark.parametrize("block", [1, 5, 7, 32])
def test_the_wire_and_the_ranks_mean_the_same_bytes(block):
    assert drafts.CANDIDATES == WIDTH
    assert drafts.reply_bytes(block) == packing.row_type(block).fields["error"][1]


KEY = 987654321
SECRET = {"verb": "OPEN", "sequence": 1, "request": 1, "key": KEY}
KEPT = {
    "a body": frame(json.dumps(SECRET).encode(), b"xx"),
    "as text": frame(json.dumps({**SECRET, "key": str(KEY)}).encode()),
    "cut off": frame(json.dumps(SECRET)[:-1].encode()),
    "unknown verb": frame(json.dumps({**SECRET, "verb": "OPN"}).encode()),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_bad_frame_is_told_without_what_stood_in_it(name):
    """A refusal is logged, and a request's key is in no line of a log."""
    with pytest.raises(WrongError) as caught:
        list(Decoder(drafts.QUESTIONS).feed(KEPT[name]))
    assert str(KEY) not in caught.value.refusal.found


def test_a_bad_frame_is_told_by_member():
    sent = frame(json.dumps({**SECRET, "key": "x"}).encode())
    with pytest.raises(WrongError) as caught:
        list(Decoder(drafts.QUESTIONS).feed(sent))
    assert caught.value.refusal.found == "OPEN.key: Input should be a valid integer"
