"""Orders of a HOLD's step over standard input: the grant first, then until the input ends."""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pp4.errors import Code, Exit, Refusal, RefusedError
from pp4.wire import Decoder, Request, encode
from pp4.wire.holds import Granted
from pp4.worker.orders import Orders

GRANTED = Granted(
    hold="00112233aabbccdd",
    fence=7,
    nonce="secret-nonce",
    exclusion="host",
    boot_id="boot-1",
    gpus=("GPU-a", "GPU-b"),
    opened_at="2026-03-01T12:00:00Z",
    bound_s=60.0,
    ttl_s=30.0,
    deadline_boottime_ns=1,
    transport="local",
    rehearsal=False,
    directory="/h",
    public="/p",
    work="/w",
    compiled="/k",
)
SERVE = Request(sequence=3, verb="serve", arguments={"granted": GRANTED.model_dump(mode="json")})


class Step:
    """The other end of both pipes."""

    def __init__(self):
        source, self.write = os.pipe()
        self.read, sink = os.pipe()
        self.orders = Orders(source, sink)

    def say(self, *data):
        for one in data:
            os.write(self.write, one if isinstance(one, bytes) else encode(one))

    def end(self):
        os.close(self.write)
        self.write = -1

    def answers(self):
        return list(Decoder().feed(os.read(self.read, 1 << 16)))

    def close(self):
        self.orders.close()
        for one in (self.write, self.read):
            with contextlib.suppress(OSError):
                os.close(one)


@pytest.fixture
def step():
    made = Step()
    yield made
    made.close()


def refused(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    assert caught.value.exit is Exit.REFUSED
    return caught.value.refusal


def test_the_first_order_hands_over_a_grant(step):
    step.say(SERVE)
    order, granted = step.orders.first(20)
    assert granted == GRANTED
    step.orders.answer(order, {"pids": [1, 2]})
    step.orders.answer(order, Refusal(Code.DEADLINE, "worker", "time", "none"))
    served, late = step.answers()
    assert (served.sequence, served.facts) == (3, {"pids": [1, 2]})
    assert (late.sequence, late.refusal["code"]) == (3, "DEADLINE")


def test_whoever_does_not_read_keeps_a_worker_for_a_moment_and_no_longer(step, monkeypatch):
    monkeypatch.setattr("pp4.worker.orders._ANSWER_S", 0.05)
    step.say(SERVE)
    order, _ = step.orders.first(20)
    step.orders.answer(order, {"long": "x" * (1 << 20)})
    step.orders.answer(order, {"another": 1})
    step.say(SERVE)
    assert step.orders.arrived()[1] is False
    # a part of the first, and nothing behind it
    assert b"another" not in os.read(step.read, 1 << 20)


def test_a_long_answer_comes_whole(step):
    step.say(SERVE)
    order, _ = step.orders.first(20)
    with ThreadPoolExecutor(1) as reading:
        whole = reading.submit(read_frame, step.read)
        step.orders.answer(order, {"long": "x" * (1 << 20)})
        assert whole.result(20).facts == {"long": "x" * (1 << 20)}


def read_frame(source):
    decoder, found = Decoder(), []
    while not found:
        found = list(decoder.feed(os.read(source, 1 << 16)))
    return found[0]


def test_however_the_bytes_are_cut(step):
    data = encode(SERVE)
    step.say(data[:5], data[5:100], data[100:])
    assert step.orders.first(20)[1] == GRANTED


def without(name):
    tree = GRANTED.model_dump(mode="json")
    del tree[name]
    return Request(sequence=0, verb="serve", arguments={"granted": tree})


def changed(**changes):
    tree = {**GRANTED.model_dump(mode="json"), **changes}
    return Request(sequence=0, verb="serve", arguments={"granted": tree})


@pytest.mark.parametrize(
    "order",
    [
        Request(sequence=0, verb="teardown"),
        Request(sequence=0, verb="serve"),
        Request(sequence=0, verb="serve", arguments={"granted": "yes"}),
        Request(sequence=0, verb="serve", arguments={**SERVE.arguments, "switch": 1}),
        *(without(name) for name in ("hold", "fence", "nonce", "deadline_boottime_ns", "boot_id")),
        changed(fence=0),
        changed(fence="7"),
        changed(fence=True),
        changed(deadline_boottime_ns="never"),
        changed(more=1),
        b"\x00\x00\x00\x02{}",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01[",
    ],
    ids=lambda order: str(order)[:40],
)
def test_what_is_no_grant_is_refused_and_not_repeated(step, order):
    step.say(order)
    refusal = refused(step.orders.first, 20)
    assert refusal.code is Code.BAD_FRAME
    assert "secret-nonce" not in str(refusal)


def test_an_input_that_ends_hands_over_nothing(step):
    step.end()
    refusal = refused(step.orders.first, 20)
    assert (refusal.code, refusal.found) == (Code.EVIDENCE_MISSING, "the end of it")


def test_half_a_grant_is_none(step):
    step.say(encode(SERVE)[:-1])
    step.end()
    assert refused(step.orders.first, 20).code is Code.EVIDENCE_MISSING


def test_whoever_says_nothing_is_not_waited_for(step):
    assert refused(step.orders.first, 0.05).found == "none within 0.05 s"


def test_orders_arrive_until_the_input_ends(step):
    settle = Request(sequence=4, verb="settle")
    assert step.orders.arrived() == ([], True)
    step.say(SERVE, settle)
    step.orders.first(20)
    assert step.orders.arrived() == ([settle], True)
    step.say(settle, Request(sequence=5, verb="teardown"))
    step.end()
    orders, goes_on = step.orders.arrived()
    assert [one.verb for one in orders] == ["settle", "teardown"]
    assert not goes_on
    assert step.orders.arrived() == ([], False)


def test_bytes_that_are_no_frames_end_it(step):
    step.say(b"\xff\xff\xff\xff")
    assert refused(step.orders.arrived).code is Code.BAD_FRAME
    assert step.orders.arrived() == ([], False)


def test_whoever_does_not_listen_any_more_is_not_told(step):
    os.close(step.read)
    step.orders.answer(SERVE, {})
    assert step.orders.arrived() == ([], False)


def test_the_standard_streams_of_a_worker():
    script = (
        "from pp4.worker.orders import Orders\n"
        "orders = Orders.take_over()\n"
        "print('a word for the log')\n"
        "order, granted = orders.first(20)\n"
        "orders.answer(order, {'hold': granted.hold})\n"
        "import select, sys\n"
        "while select.select([orders], [], [], 20)[0] and orders.arrived()[1]: pass\n"
        "assert sys.stdin.read() == ''\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(encode(SERVE), timeout=60)
    (reply,) = Decoder().feed(out)
    assert reply.facts == {"hold": GRANTED.hold}
    assert err.decode().splitlines() == ["a word for the log"]
    assert process.returncode == 0
