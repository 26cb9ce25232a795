"""One line for each event, whatever it holds, and nobody waits for whoever reads it."""

import asyncio
import json
import logging
import os
import warnings
from datetime import UTC, datetime

import pytest

from pp4.worker.logs import LONGEST, start_logging


@pytest.fixture
def log():
    """Starts a log of a form into a pipe; -> the log, and what reads its lines."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    source, sink = os.pipe()
    os.set_blocking(source, False)

    def read():
        try:
            return os.read(source, 1 << 20).decode("ascii").splitlines()
        except BlockingIOError:
            return []

    yield lambda form="json", **more: (start_logging(form, sink, **more), read)
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    os.close(source)
    os.close(sink)


def test_an_event_is_one_object_with_its_time(log):
    tell, read = log()
    before = datetime.now(UTC)
    tell("primed", seconds=1.5, kernels=["a", "b"], gpus=None)
    (line,) = read()
    told = json.loads(line)
    assert told["time"].endswith("Z")
    at = datetime.fromisoformat(told.pop("time"))
    assert at.utcoffset().total_seconds() == 0
    assert abs((at - before).total_seconds()) < 60
    assert told == {
        "level": "info",
        "event": "primed",
        "seconds": 1.5,
        "kernels": ["a", "b"],
        "gpus": None,
    }


def test_levels(log):
    tell, read = log()
    tell("a")
    tell.warn("b")
    tell.fail("c")
    assert [json.loads(line)["level"] for line in read()] == ["info", "warning", "error"]


def test_a_server_hands_fields_over_as_one_mapping(log):
    tell, read = log()
    tell("connected", {"connection": 3}, more=1)
    told = json.loads(read()[0])
    assert (told["connection"], told["more"]) == (3, 1)


def test_text_for_a_terminal(log):
    tell, read = log("text")
    tell("serving", socket="/run/a b", slots=3)
    (line,) = read()
    at, rest = line.split(" ", 1)
    assert datetime.fromisoformat(at)
    assert rest == 'info    serving socket="/run/a b" slots=3'


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    ("fields", "secret"),
    [
        ({"key": 123456789}, "123456789"),
        ({"features": [123456789]}, "123456789"),
        ({"nonce": "hush"}, "hush"),
        ({"body": b"hush"}, "hush"),
        ({"body": memoryview(b"hush")}, "hush"),
        ({"request": {"key": 123456789, "round": 1}}, "123456789"),
        ({"rows": [{"key": 123456789}]}, "123456789"),
        ({"granted": {"nonce": "hush"}}, "hush"),
    ],
)
def test_what_is_a_requests_own_is_in_no_line(log, form, fields, secret):
    tell, read = log(form)
    tell("drafted", **fields)
    (line,) = read()
    assert secret not in line
    assert "not logged" in line


@pytest.mark.parametrize("form", ["json", "text"])
def test_whatever_a_field_holds_it_stays_one_printable_line(log, form):
    tell, read = log(form)
    tell("refused", found="a\nb\x1b[2J\u202eö\ud800", nested={"x": "\n"})
    (line,) = read()
    assert line.isascii()
    assert line.isprintable()


def test_no_field_takes_the_place_of_the_head(log):
    tell, read = log()
    tell("real", level="none", time="never")
    told = json.loads(read()[0])
    assert (told["event"], told["level"]) == ("real", "info")
    assert told["time"] != "never"


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_line_is_never_longer_than_a_pipe_takes_at_once(log, form):
    tell, read = log(form)
    tell("big", **{f"f{number}": "x" * 1000 for number in range(100)})
    (line,) = read()
    assert len(line) <= LONGEST
    if form == "json":
        told = json.loads(line)
        assert told["event"] == "big"
        assert told["cut"] > LONGEST


def test_nobody_waits_for_a_reader_and_what_was_dropped_is_counted(log):
    tell, read = log()
    # more than any pipe holds; a handler that waits would never come back
    for number in range(3000):
        tell("many", number=number, pad="x" * 100)
    seen = [json.loads(line) for line in read()]
    assert [one["number"] for one in seen] == list(range(len(seen)))
    assert len(seen) < 3000
    tell("after")
    (line,) = read()
    assert json.loads(line)["dropped_before"] == 3000 - len(seen)
    tell("again")
    assert "dropped_before" not in json.loads(read()[0])


def test_a_reader_that_left_ends_nothing():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    source, sink = os.pipe()
    tell = start_logging("json", sink)
    os.close(source)
    tell("alone")
    os.close(sink)
    tell("still")
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_what_libraries_say_is_in_the_log_too(log):
    _, read = log()
    logging.getLogger("asyncio").error("a task %s", "died", exc_info=ValueError("why"))
    logging.getLogger("asyncio").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("look out", stacklevel=1)
    first, second = (json.loads(line) for line in read())
    assert (first["event"], first["logger"], first["level"]) == ("library", "asyncio", "error")
    assert first["message"] == "a task died"
    assert first["error"] == "ValueError('why')"
    assert "look out" in second["message"]


def test_a_mistake_of_a_library_is_no_error_of_ours(log):
    _, read = log()
    logging.getLogger("lib").warning("%d of %d", "one")
    assert json.loads(read()[0])["message"] == "%d of %d"


def test_every_number_stays_json(log):
    tell, read = log()
    tell("odd", nan=float("nan"), inf=[float("-inf")], big=2**70)

    def refuse(name):
        raise ValueError(name)

    told = json.loads(read()[0], parse_constant=refuse)
    assert (told["nan"], told["inf"], told["big"]) == ("nan", ["-inf"], 2**70)


def test_an_unhandled_error_of_a_loop_is_one_line(log):
    _, read = log()

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "gone", "exception": KeyError("x")})

    asyncio.run(main())
    (line,) = read()
    assert json.loads(line)["error"] == "KeyError('x')"


def test_blocks_have_a_line_only_where_that_is_wanted(log):
    tell, read = log()
    tell("block", {"rows": 1})
    assert read() == []
    tell, read = log(blocks=True)
    tell("block", {"rows": 1})
    assert json.loads(read()[0])["rows"] == 1
