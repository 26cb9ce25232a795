"""The double of a bad connection: what it does to every frame, against a model of lists."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.errors import Code, WrongError
from pp4.transport.faulty import Action, FaultyHost, Schedule
from pp4.transport.local_host import LocalHost
from pp4.wire import MAX_FRAME, Decoder, Event, encode
from tests.ssh.hosts import LONG, SHORT, after, everything, lost, past, read_exactly, timed_out

PASS, DROP, DUPLICATE, HOLD, CUT = Action


class Script:
    """A stream without a program: it keeps what is written and says what a test gives it."""

    def __init__(self, says=()):
        self.written, self.says, self.closed, self.ended = [], list(says), False, False

    def _require_open(self):
        if self.closed:
            raise WrongError(_gone())

    def write(self, data, deadline):
        self._require_open()
        deadline.require("script: input")
        if data:
            self.written.append(data)

    def read(self, deadline):
        self._require_open()
        deadline.require("script: output")
        return self.says.pop(0) if self.says else b""

    def last_lines(self, count=10):
        return ("last",)

    def finish(self, deadline):
        self._require_open()
        self.ended = True
        return 7

    def close(self):
        self.closed = True


def _gone():
    from pp4.errors import Refusal

    return Refusal(Code.CONNECTION_LOST, "script", "a stream", "closed")


class ScriptHost:
    name, address, fingerprint = "local", "script", None

    def __init__(self, *streams):
        self.streams, self.started, self.put_files, self.closed = list(streams), [], [], False

    def run(self, argv, deadline):
        self.started.append(self.streams.pop(0))
        return self.started[-1]

    def put(self, data, path, deadline):
        self.put_files.append(path)

    def close(self):
        self.closed = True
        for stream in self.started:
            stream.close()


def frame(number):
    return encode(Event(sequence=number, name="x" * (number % 7)))


def behind(*streams, to_program=(), from_program=()):
    inner = ScriptHost(*streams)
    return inner, FaultyHost(inner, Schedule(to_program, from_program))


def numbers(data):
    return [message.sequence for message in Decoder().feed(data)]


@pytest.mark.parametrize(
    ("actions", "arrive"),
    [
        ([], [0, 1, 2, 3]),
        ([PASS, PASS], [0, 1, 2, 3]),
        ([DROP], [1, 2, 3]),
        ([PASS, DROP, DROP], [0, 3]),
        ([DUPLICATE], [0, 0, 1, 2, 3]),
        ([HOLD], [0, 1, 2, 3]),
        ([HOLD, DROP], [0, 2, 3]),
        ([HOLD, HOLD, DUPLICATE], [0, 1, 2, 2, 3]),
        ([PASS, PASS, PASS, HOLD], [0, 1, 2, 3]),
    ],
)
def test_what_arrives(actions, arrive):
    inner = Script()
    _, host = behind(inner, to_program=actions)
    stream = host.run(["x"], after(LONG))
    for number in range(4):
        stream.write(frame(number), after(LONG))
    assert stream.finish(after(LONG)) == 7
    assert numbers(b"".join(inner.written)) == arrive
    inner = Script([frame(number) for number in range(4)])
    _, host = behind(inner, from_program=actions)
    assert numbers(everything(host.run(["x"], after(LONG)))) == arrive


def test_a_held_frame_comes_only_with_the_next_one():
    inner = Script()
    _, host = behind(inner, to_program=[HOLD])
    stream = host.run(["x"], after(LONG))
    stream.write(frame(0), after(LONG))
    assert inner.written == []
    stream.write(frame(1), after(LONG))
    assert inner.written == [frame(0), frame(1)]


def test_a_held_frame_that_is_read_waits_for_the_deadline_and_is_not_lost():
    host = FaultyHost(LocalHost(), Schedule(from_program=[HOLD]))
    stream = host.run(["cat"], after(LONG))
    stream.write(frame(0), after(LONG))
    timed_out(stream.read, after(SHORT))
    stream.write(frame(1), after(LONG))
    assert read_exactly(stream, len(frame(0) + frame(1))) == frame(0) + frame(1)
    assert stream.finish(after(LONG)) == 0
    host.close()


@pytest.mark.parametrize("direction", ["to_program", "from_program"])
def test_a_cut_loses_the_connection_of_all_streams(direction):
    first, second = Script([frame(0) + frame(1)]), Script()
    inner, host = behind(first, second, **{direction: [PASS, CUT]})
    stream, other = host.run(["x"], after(LONG)), host.run(["y"], after(LONG))
    if direction == "to_program":
        stream.write(frame(0), after(LONG))
        assert "cut by the schedule" in lost(stream.write, frame(1), after(LONG)).found
        assert first.written == [frame(0)]
    else:
        assert stream.read(after(LONG)) == frame(0)
        assert "cut by the schedule" in lost(stream.read, after(LONG)).found
    assert host.is_cut
    assert first.closed
    assert second.closed
    assert inner.closed
    for call in (stream.read, stream.finish, other.read, other.finish):
        lost(call, after(LONG))
    lost(other.write, b"x", after(LONG))
    lost(host.run, ["z"], after(LONG))
    lost(host.put, b"x", "path", after(LONG))
    assert inner.put_files == []
    assert stream.last_lines() == ("last",)


def test_the_next_connection_goes_on_in_the_schedule():
    schedule = Schedule(to_program=[DROP, CUT, DROP, PASS])
    lost_one = FaultyHost(ScriptHost(Script()), schedule)
    stream = lost_one.run(["x"], after(LONG))
    stream.write(frame(0), after(LONG))
    lost(stream.write, frame(1), after(LONG))
    inner = Script()
    stream = FaultyHost(ScriptHost(inner), schedule).run(["x"], after(LONG))
    for number in (2, 3, 4):
        stream.write(frame(number), after(LONG))
    assert inner.written == [frame(3), frame(4)]


def test_a_deadline_in_the_past_uses_up_nothing():
    inner = Script([frame(0)])
    _, host = behind(inner, to_program=[DROP], from_program=[DROP])
    stream = host.run(["x"], after(LONG))
    timed_out(stream.write, frame(0), past())
    timed_out(stream.read, past())
    stream.write(frame(1), after(LONG))
    stream.write(frame(2), after(LONG))
    assert inner.written == [frame(2)]


def test_what_is_no_frame_passes_as_it_is():
    noise = (MAX_FRAME + 1).to_bytes(4, "big") + b"noise" * 10
    inner = Script([noise, b"more"])
    _, host = behind(inner, to_program=[DROP] * 9, from_program=[DROP] * 9)
    stream = host.run(["x"], after(LONG))
    stream.write(noise, after(LONG))
    stream.write(b"more", after(LONG))
    assert b"".join(inner.written) == noise + b"more"
    assert everything(stream) == noise + b"more"


def test_a_frame_that_is_never_whole_arrives_as_far_as_it_came():
    inner = Script([frame(5)[:-1]])
    _, host = behind(inner, to_program=[PASS, DROP], from_program=[PASS, DROP])
    stream = host.run(["x"], after(LONG))
    stream.write(frame(5)[:-1], after(LONG))
    assert inner.written == []
    assert everything(stream) == frame(5)[:-1]
    stream.finish(after(LONG))
    assert inner.written == [frame(5)[:-1]]


ACTIONS = st.lists(st.sampled_from([PASS, DROP, DUPLICATE, HOLD, CUT]), max_size=12)


def model(actions, count):
    """What arrives of so many frames, and whether the connection was cut."""
    arrived, held = [], []
    for number in range(count):
        action = actions[number] if number < len(actions) else PASS
        if action is CUT:
            return arrived, True
        arrived += held
        held = [number] if action is HOLD else []
        arrived += [number] * {DUPLICATE: 2, PASS: 1}.get(action, 0)
    return arrived + held, False


@given(ACTIONS, st.integers(0, 12), st.lists(st.integers(1, 40), max_size=60))
def test_the_same_happens_however_the_bytes_are_cut(actions, count, cuts):
    data = b"".join(frame(number) for number in range(count))
    pieces = []
    for size in cuts:
        pieces.append(data[:size])
        data = data[size:]
    pieces = [piece for piece in [*pieces, data] if piece]
    arrive, is_cut = model(actions, count)

    inner = Script()
    _, host = behind(inner, to_program=actions)
    stream = host.run(["x"], after(LONG))
    try:
        for piece in pieces:
            stream.write(piece, after(LONG))
        stream.finish(after(LONG))
    except WrongError as error:
        assert_cut(error)
    assert host.is_cut is is_cut
    assert numbers(b"".join(inner.written)) == arrive

    _, host = behind(Script(pieces), from_program=actions)
    stream, seen = host.run(["x"], after(LONG)), b""
    try:
        while piece := stream.read(after(LONG)):
            seen += piece
    except WrongError as error:
        assert_cut(error)
    assert host.is_cut is is_cut
    assert numbers(seen) == arrive


def assert_cut(error):
    assert error.refusal.code is Code.CONNECTION_LOST
    assert json.loads(json.dumps(error.refusal.as_dict()))["found"] == "cut by the schedule"
