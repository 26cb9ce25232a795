"""One family of errors, one shape of refusal, fixed exit codes."""

import dataclasses
import json

import pytest

from pp4 import errors
from pp4.errors import Code, Exit, Pp4Error, Refusal, UncleanError, reason_of

FAMILY = {
    errors.WrongError: 1,
    errors.UsageError: 2,
    errors.RefusedError: 3,
    errors.InconclusiveError: 4,
    errors.TimedOutError: 5,
    errors.UncleanError: 6,
}


def refusal(**changes):
    return Refusal(Code.LEAK, "gate 7", "0 bytes", "8 bytes", **changes)


@pytest.mark.parametrize(("family", "exit_code"), FAMILY.items())
def test_each_class_has_its_exit_code(family, exit_code):
    error = family(refusal())
    assert isinstance(error, Pp4Error)
    assert error.exit == exit_code
    assert error.refusal == refusal()


def test_no_class_of_the_family_is_left_out_above():
    assert set(Pp4Error.__subclasses__()) == set(FAMILY)


def test_exit_codes_are_those_that_are_promised():
    assert {code.name: int(code) for code in Exit} == {
        "DONE": 0,
        "WRONG": 1,
        "USAGE": 2,
        "REFUSED": 3,
        "INCONCLUSIVE": 4,
        "TIMEOUT": 5,
        "UNCLEAN": 6,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


@pytest.mark.parametrize("code", Code)
def test_a_code_is_spelled_as_it_is_named(code):
    assert code.value == code.name
    assert code.name.isascii()
    assert code.name.isupper()


def test_a_refusal_is_plain_text_and_names_a_next_command():
    told = refusal().as_dict()
    assert json.loads(json.dumps(told)) == told
    assert set(told) == {field.name for field in dataclasses.fields(Refusal)}
    assert told["code"] == "LEAK"
    assert type(told["code"]) is str
    assert told["next"] == "pp4 explain LEAK"
    assert refusal(next="pp4 doctor").as_dict()["next"] == "pp4 doctor"


def test_a_refusal_promises_that_nothing_is_left_unless_it_says_so():
    assert refusal().left == "nothing"
    assert refusal().host == "local"


def test_a_refusal_does_not_change():
    with pytest.raises(AttributeError):
        refusal().found = "x"


def test_the_message_holds_what_a_log_needs():
    text = str(UncleanError(refusal()))
    for part in ("LEAK", "gate 7", "0 bytes", "8 bytes"):
        assert part in text


def test_an_empty_text_that_was_found_is_said_to_be_nothing():
    assert Refusal(Code.LEAK, "gate 7", "0 bytes", "").found == "nothing"
    assert Refusal(Code.LEAK, "gate 7", "0 bytes", " \n").found == "nothing"


def test_the_reason_of_an_error_has_neither_number_nor_path():
    assert reason_of(FileNotFoundError(2, "No such file or directory", "/x")) == (
        "No such file or directory"
    )
    assert reason_of(OSError("AF_UNIX path too long")) == "AF_UNIX path too long"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"
