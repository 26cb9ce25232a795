"""A client against a worker that answers what the test says: nothing is believed too early."""

import socket
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from pp4.errors import BadInputError, Code, Pp4Error, RefusedError, TimedOutError, WrongError
from pp4.wire.draft_frames import Decoder, encode
from pp4.wire.drafts import (
    QUESTIONS,
    Aborted,
    Appended,
    Drafted,
    Opened,
    Refused,
    Welcome,
    reply_bytes,
)
from pp4.worker.client import Ask, Client
from pp4.worker.proposals import error_of
from tests.unit.worker.fronts import BLOCK, LOST, OFFER, PATIENT_S, WIDTH, features_of

BODY = reply_bytes(BLOCK)


class Script:
    """The worker's end of a pair of sockets; ``answer`` says what a question gets."""

    def __init__(self, largest_body=1 << 20):
        self.near, self.far = socket.socketpair()
        self.near.settimeout(PATIENT_S)
        self.seen, self.largest_body = [], largest_body
        self.say = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        decoder = Decoder(QUESTIONS)
        try:
            while data := self.near.recv(1 << 16):
                for frame in decoder.feed(data):
                    self.seen.append((frame.message, bytes(frame.body)))
                    told = self.say.get(frame.message.verb, self.usual)(frame.message)
                    if told is None:
                        self.near.shutdown(socket.SHUT_RDWR)
                        return
                    self.near.sendall(told)
        except OSError:
            pass

    def usual(self, question):
        """What a worker answers where all is well."""
        name = {"sequence": question.sequence, "request": getattr(question, "request", 0)}
        if question.verb == "HELLO":
            return encode(
                Welcome(
                    sequence=question.sequence,
                    offer=OFFER,
                    depth=question.depth,
                    largest_body=self.largest_body,
                )
            )
        if question.verb == "FEATURES":
            return encode(Appended(**name, length=question.first + question.tokens))
        if question.verb == "DRAFT":
            return encode(drafted(question), bytes(BODY))
        return encode(Opened(**name))

    def close(self):
        self.near.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENT_S)
        self.near.close()


def drafted(question, **changed):
    members = {
        name: getattr(question, name)
        for name in ("sequence", "request", "generation", "slot", "round", "position", "mode")
    }
    return Drafted(**{**members, "depth": 4, "block": BLOCK, **changed})


@pytest.fixture
def script():
    made = Script()
    yield made
    made.close()


@pytest.fixture
def client(script):
    with Client(script.far, PATIENT_S) as made:
        made.hello(4)
        made.open(1, key=7)
        yield made


def refused(call, code, kind=Pp4Error):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.refusal.code is code
    return caught.value.refusal


ASK = Ask(1, round=3, anchor=5, temperature=0.5, generation=8, slot=6)


def test_a_proposal_is_a_view_of_what_came(script, client):
    words = np.arange(66 * BLOCK, dtype="<i4")
    script.say["DRAFT"] = lambda asked: encode(drafted(asked), words.tobytes())
    proposal = client.draft(ASK)
    assert np.array_equal(proposal.ids, words[: 32 * BLOCK].reshape(BLOCK, 32)[:4])
    assert np.array_equal(
        proposal.q.view("<i4"), words[32 * BLOCK : 64 * BLOCK].reshape(BLOCK, 32)[:4]
    )
    assert np.array_equal(proposal.tokens, words[64 * BLOCK : 65 * BLOCK][:4])
    assert np.array_equal(proposal.confidence.view("<i4"), words[65 * BLOCK :][:4])
    assert (proposal.ids.dtype, proposal.q.dtype) == (np.int32, np.float32)
    assert (proposal.tokens.dtype, proposal.confidence.dtype) == (np.int32, np.float32)
    for array in (proposal.ids, proposal.q, proposal.tokens, proposal.confidence):
        assert array.base is not None
        assert not array.flags.writeable
    asked = script.seen[-1][0]
    assert (asked.position, asked.anchor, asked.mode, asked.temperature) == (1, 5, "sampled", 0.5)


STRANGERS = {
    "sequence": lambda asked: encode(drafted(asked, sequence=asked.sequence + 1), bytes(BODY)),
    "sequence again": lambda asked: encode(drafted(asked, sequence=1), bytes(BODY)),
    "request": lambda asked: encode(drafted(asked, request=2), bytes(BODY)),
    "generation": lambda asked: encode(drafted(asked, generation=9), bytes(BODY)),
    "slot": lambda asked: encode(drafted(asked, slot=7), bytes(BODY)),
    "round": lambda asked: encode(drafted(asked, round=4), bytes(BODY)),
    "position": lambda asked: encode(drafted(asked, position=2), bytes(BODY)),
    "mode": lambda asked: encode(drafted(asked, mode="greedy"), bytes(BODY)),
    "depth": lambda asked: encode(drafted(asked, depth=5), bytes(BODY)),
    "block": lambda asked: encode(drafted(asked, block=7), bytes(reply_bytes(7))),
    "verb": lambda asked: encode(Opened(sequence=asked.sequence, request=1)),
    "garbage": lambda asked: b"this is no frame of this protocol",
}


@pytest.mark.parametrize("name", STRANGERS)
def test_an_answer_to_something_else_ends_the_connection(script, client, name):
    script.say["DRAFT"] = STRANGERS[name]
    refused(lambda: client.draft(ASK), Code.BAD_FRAME, WrongError)
    refused(lambda: client.open(2, key=1), Code.BAD_FRAME)
    assert script.far.fileno() == -1


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ("OPEN", lambda asked: Opened(sequence=asked.sequence, request=99)),
        ("ABORT", lambda asked: Aborted(sequence=asked.sequence, request=99, dropped=True)),
        ("FEATURES", lambda asked: Appended(sequence=asked.sequence, request=99, length=2)),
        ("FEATURES", lambda asked: Appended(sequence=asked.sequence, request=1, length=3)),
    ],
)
def test_so_does_any_other_answer_about_something_else(script, client, verb, told):
    script.say[verb] = lambda asked: encode(told(asked))
    calls = {
        "OPEN": lambda: client.open(2, key=1),
        "ABORT": lambda: client.abort(1),
        "FEATURES": lambda: client.features(1, features_of(0, 2)),
    }
    refused(calls[verb], Code.BAD_FRAME, WrongError)
    assert script.far.fileno() == -1


def test_a_block_that_is_cut_off_is_no_proposal(script, client):
    def cut(asked):
        script.near.sendall(encode(drafted(asked), bytes(BODY))[:-1])

    script.say["DRAFT"] = cut
    refused(lambda: client.draft(ASK), Code.CONNECTION_LOST, RefusedError)
    refused(lambda: client.draft(ASK), Code.CONNECTION_LOST, RefusedError)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadInputError.of("DRAFT, round", "above 3", "3"), BadInputError),
        (LOST, WrongError),
        (RefusedError(LOST.refusal.__class__(Code.CACHE_FULL, "a", "b", "c")), RefusedError),
        (TimedOutError(LOST.refusal.__class__(Code.STEP_TIMEOUT, "a", "b", "c")), TimedOutError),
    ],
)
def test_a_refusal_is_raised_as_the_error_that_it_is(script, client, error, kind):
    script.say["DRAFT"] = lambda asked: encode(
        Refused(sequence=asked.sequence, refusal=error.refusal.as_dict())
    )
    for call in (lambda: client.draft(ASK), lambda: client.collect(client.submit(ASK))):
        with pytest.raises(kind) as caught:
            call()
        assert type(caught.value) is kind
        assert caught.value.refusal.as_dict() == error.refusal.as_dict()
    (found,) = client.draft_many([ASK])
    assert type(found) is kind
    client.open(2, key=1)


@pytest.mark.parametrize("code", Code)
def test_every_code_is_an_error(code):
    assert error_of(LOST.refusal.__class__(code, "a", "b", "c")).refusal.code is code


def test_a_last_word_is_heard_also_where_the_worker_has_closed(script, client):
    script.near.sendall(encode(Refused(sequence=None, refusal=LOST.refusal.as_dict())))
    script.near.shutdown(socket.SHUT_RDWR)
    assert refused(lambda: client.open(2, key=1), Code.RANK_DIED).found == "one"


def test_a_late_answer_is_thrown_away_or_can_still_be_collected(script, client):
    kept = []
    script.say["DRAFT"] = lambda asked: kept.append(asked) or b""
    refused(lambda: client.draft(ASK, 0.02), Code.STEP_TIMEOUT, TimedOutError)
    ticket = client.submit(Ask(1, round=4, anchor=5))
    refused(lambda: client.collect(ticket, 0.0), Code.STEP_TIMEOUT, TimedOutError)
    refused(lambda: client.draft_many([ASK, ASK], 0.02), Code.STEP_TIMEOUT, TimedOutError)
    for asked in kept:
        script.near.sendall(encode(drafted(asked), bytes(BODY)))
    client.open(2, key=1)
    assert client.collect(ticket).round == 4
    refused(lambda: client.collect(ticket), Code.BAD_INPUT, BadInputError)


def test_a_worker_that_does_not_read_is_not_waited_for(client, script):
    ended = threading.Event()
    script.say["CLOSE"] = lambda _: ended.wait(PATIENT_S) and None
    with pytest.raises(TimedOutError):
        client.close(1, 0.01)
    big = np.zeros((200_000, WIDTH), np.uint16)
    refused(lambda: client.features(1, big, limit_s=0.1), Code.STEP_TIMEOUT, TimedOutError)
    # half of it is on its way, so nothing can follow
    refused(lambda: client.open(2, key=1), Code.STEP_TIMEOUT)
    ended.set()


# -- features ----------------------------------------------------------------------------------


def as_torch(bits):
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


FORMS = {
    "bits": lambda bits: bits,
    "a slice": lambda bits: np.repeat(bits, 2, axis=1)[:, ::2],
    "bytes": lambda bits: bits.tobytes(),
    "a view": lambda bits: memoryview(bits.tobytes()),
    "torch": as_torch,
    "torch, a slice": lambda bits: as_torch(np.repeat(bits, 2, axis=1))[:, ::2],
}


@pytest.mark.parametrize("form", FORMS)
def test_features_travel_as_they_are_in_frames_that_the_worker_takes(form):
    script = Script(largest_body=WIDTH * 2 * 3 + 1)
    try:
        with Client(script.far, PATIENT_S) as client:
            client.hello(4)
            client.open(1, key=7)
            bits = features_of(1, 8)
            assert client.features(1, FORMS[form](bits[:7])) == 7
            assert client.features(1, FORMS[form](bits[7:])) == 8
        sent = [(one, body) for one, body in script.seen if one.verb == "FEATURES"]
        assert [(one.first, one.tokens) for one, _ in sent] == [(0, 3), (3, 3), (6, 1), (7, 1)]
        assert b"".join(body for _, body in sent) == bits.tobytes()
    finally:
        script.close()


@pytest.mark.parametrize(
    "features",
    [
        np.zeros((2, WIDTH), np.float16),
        np.zeros((2, WIDTH), np.float32),
        np.zeros((2, WIDTH + 1), np.uint16),
        np.zeros((WIDTH,), np.uint16),
        np.zeros((0, WIDTH), np.uint16),
        torch.zeros(2, WIDTH),
        bytes(WIDTH * 2 + 1),
        b"",
        [[0] * WIDTH],
    ],
    ids=["float16", "float32", "wide", "flat", "none", "torch", "bytes", "empty", "list"],
)
def test_other_features_are_refused_before_they_are_sent(script, client, features):
    count = len(script.seen)
    refused(lambda: client.features(1, features), Code.BAD_INPUT, BadInputError)
    assert len(script.seen) == count


@pytest.mark.parametrize(
    ("call", "member"),
    [
        (lambda client: client.open(-1, key=0), "Open, request"),
        (lambda client: client.open(2, key=1 << 64), "Open, key"),
        (lambda client: client.draft(Ask(1, round=1 << 32, anchor=0)), "Draft, round"),
        (lambda client: client.draft(Ask(1, round=0, anchor=-1)), "Draft, anchor"),
        (
            lambda client: client.draft(Ask(1, round=0, anchor=0, temperature=float("nan"))),
            "Draft, temperature",
        ),
    ],
)
def test_a_number_that_no_question_can_hold_is_refused_here(client, call, member):
    assert refused(lambda: call(client), Code.BAD_INPUT, BadInputError).where == member
    client.open(2, key=(1 << 64) - 1)


def test_numbers_of_numpy_are_numbers(script, client):
    client.draft(
        Ask(np.int64(1), round=np.uint32(2), anchor=np.int32(3), temperature=np.float32(0))
    )
    assert script.seen[-1][0].anchor == 3


def test_nothing_is_drafted_before_a_hello():
    near, far = socket.socketpair()
    with near, Client(far, PATIENT_S) as client:
        refused(lambda: client.draft(ASK), Code.BAD_INPUT, BadInputError)
        refused(lambda: client.features(1, features_of(1, 1)), Code.BAD_INPUT, BadInputError)


def test_where_nobody_listens_is_told(tmp_path):
    refused(lambda: Client.unix(tmp_path / "none.sock"), Code.UNREACHABLE, RefusedError)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # to drop the connection at once needs nobody to listen there
        free.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        address = free.getsockname()
        refused(lambda: Client.tcp(*address), Code.UNREACHABLE, RefusedError)


def test_a_client_needs_neither_torch_nor_triton():
    program = (
        "import sys\n"
        "import pp4.worker.client, pp4.worker.front.server\n"
        "assert not {'torch', 'triton', 'safetensors'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENT_S)
