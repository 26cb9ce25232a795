"""What the tests hold refusals to: a refusal that helps passes, and each flaw is caught."""

import dataclasses

import pytest

from pp4.clock import parse_span
from pp4.errors import BadInputError, Code, Refusal, UsageError
from tests import refusals

GOOD = Refusal(Code.LEAK, "gate 7", "0 bytes", "8 bytes", next="pp4 explain LEAK")
FLAWS = {
    "expected is empty": {"expected": ""},
    "expected ends with a full stop": {"expected": "a number of bytes."},
    "found holds '<class '": {"found": "<class 'int'>"},
    "found holds 'object at 0x'": {"found": "<A object at 0x7f01>"},
    "found holds 'PosixPath('": {"found": "PosixPath('/x')"},
    'where holds " b\'"': {"where": "the bytes b'x'"},
    "found holds '[Errno '": {"found": "[Errno 2] No such file or directory: '/x'"},
    "found holds 'Traceback'": {"found": "Traceback (most recent call last)"},
    "left has 401 characters, at most 400 fit": {"left": "x" * 401},
    "next cannot be typed: pp4 explian: No such command": {"next": "pp4 explian"},
    "next is neither a command nor says what to do: frobnicate": {"next": "frobnicate"},
}
FINE = [
    {"next": ""},
    {"next": "choose another path"},
    {"next": "sudo pp4 host init"},
    {"next": "nvidia-smi -L"},
    {"expected": "names such as a, b, ..."},
    {"found": "."},
    {"found": "GPU-b'1"},
]


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_caught(flaw):
    (found,) = refusals.flaws(dataclasses.replace(GOOD, **FLAWS[flaw]))
    assert found.startswith(flaw)


@pytest.mark.parametrize("changes", FINE)
def test_what_helps_passes(changes):
    assert refusals.flaws(dataclasses.replace(GOOD, **changes)) == []


def test_what_pp4_refuses_is_looked_at_whoever_makes_it(monkeypatch):
    monkeypatch.setattr(refusals, "flaws", lambda refusal: [refusal.where])
    monkeypatch.setattr(refusals, "_seen", refusals.Counter())
    with pytest.raises(UsageError):
        parse_span("soon", "--max-age")
    # one that a test makes is its own business, and so is one made over of it
    BadInputError.of("here", "a", "b")
    dataclasses.replace(GOOD, found="x")
    (line,) = refusals.malformed()
    place, code, where = line.split(": ")
    assert place.startswith("pp4.clock:")
    assert (code, where) == ("USAGE", "--max-age")
    assert refusals.malformed() == []


def test_one_line_of_code_is_not_looked_at_for_ever(monkeypatch):
    monkeypatch.setattr(refusals, "flaws", lambda refusal: ["seen"])
    monkeypatch.setattr(refusals, "_seen", refusals.Counter())
    for _ in range(refusals.MOST_OF_A_PLACE + 5):
        with pytest.raises(UsageError):
            parse_span("soon", "--max-age")
    assert len(refusals.malformed()) == refusals.MOST_OF_A_PLACE
