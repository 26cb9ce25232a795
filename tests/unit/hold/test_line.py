"""When a line tries again, and when it does not."""

import pytest

from pp4.clock import Deadline, ManualClock, SystemClock
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.hold.line import Line
from pp4.wire import Decoder, Reply, encode_reply


class Program:
    """Answers one request with ``facts`` or ``refusal``."""

    def __init__(self, **answer):
        self.answer, self.closed = answer, False

    def write(self, data, deadline):
        (self.asked,) = Decoder().feed(data)

    def read(self, deadline):
        return encode_reply(Reply(sequence=self.asked.sequence, **self.answer))

    def close(self):
        self.closed = True


class Host:
    """Each connection comes to what a list says, then to the last of it."""

    name, address = "ssh", "somebody@somewhere:22"

    def __init__(self, *ways):
        self.ways, self.tried = list(ways), 0

    def run(self, argv, deadline):
        self.tried += 1
        way = self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]
        if isinstance(way, Exception):
            raise way
        return way


def refused(code):
    return RefusedError(Refusal(code, "somebody@somewhere:22", "one key", "another key"))


def soon():
    return Deadline.after(SystemClock(), 60)


@pytest.mark.parametrize("code", [Code.UNREACHABLE, Code.AUTHENTICATION])
def test_what_may_get_better_is_tried_again(code):
    lost = WrongError(Refusal(Code.CONNECTION_LOST, "supervisor", "an answer", "the end"))
    host = Host(refused(code), lost, Program(facts={"n": 1}))
    assert Line(host, ["relay"]).ask("beat", {}, soon()) == {"n": 1}
    assert host.tried == 3


def test_another_host_key_ends_the_line_for_every_request():
    host = Host(refused(Code.UNREACHABLE), refused(Code.HOST_KEY), Program(facts={}))
    line = Line(host, ["relay"])
    # whoever has the key that was pinned might answer now, and is not asked any more
    for ask in (line.ask, line.ask, line.once):
        with pytest.raises(RefusedError) as raised:
            ask("close", {}, soon())
        assert raised.value.refusal == refused(Code.HOST_KEY).refusal
    assert host.tried == 2
    assert line.ended is raised.value


def test_a_host_that_speaks_of_another_key_has_not_another_one_itself():
    refusal = refused(Code.HOST_KEY).refusal
    line = Line(Host(Program(refusal=refusal.as_dict())), ["relay"])
    with pytest.raises(RefusedError) as raised:
        line.ask("start", {}, soon())
    assert raised.value.refusal.code is Code.HOST_KEY
    assert line.ended is None


def test_nobody_is_called_ten_times_a_second_and_the_last_reason_is_told(monkeypatch):
    clock, pauses = ManualClock(), []

    def sleep(seconds):
        pauses.append(seconds)
        clock.advance(seconds)

    monkeypatch.setattr("pp4.hold.line.time.sleep", sleep)
    host = Host(refused(Code.UNREACHABLE))
    with pytest.raises(RefusedError) as raised:
        Line(host, ["relay"]).ask("beat", {}, Deadline.after(clock, 8))
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 0.9])
    assert host.tried == len(pauses)
    assert raised.value.refusal.code is Code.UNREACHABLE
