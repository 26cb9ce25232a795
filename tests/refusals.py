"""The form of refusals: whatever pp4 refuses while a test runs has to read like help.

Only those are looked at that pp4 itself makes; what a test makes up, or what came over a wire, is
its own business.
"""

import re
import sys
from collections import Counter
from functools import wraps

from pp4.errors import Refusal
from tests.lines import OTHERS, wrong_with

LONGEST = 400
"""Characters of what was expected, found or left, so that it fits on a screen."""
MOST_OF_A_PLACE = 5
"""So many refusals of one line of code are looked at in a run: the next differ in values alone."""
_NOISE = re.compile(
    r"<class |<function |\bobject at 0x|\b0x[0-9a-f]{9,}|Traceback|PosixPath\("
    r"|(?:^|[\s(,=])b['\"]|\[Errno "
)
_VERBS = {
    *("ask", "choose", "close", "compare", "convert", "look", "put", "restart", "run", "start"),
    *("stop", "switch", "wait"),
}
"""How a sentence begins that says what to do where no command does it."""
_BETWEEN = {"dataclasses", "pp4.errors"}
"""Modules that make a refusal for whoever calls them."""
_PASSED_ON = {"pp4.wire.facts"}
"""Modules that make one of what they were told."""

_kept = []
_seen = Counter()


def flaws(refusal):
    """What is wrong with the form of a refusal, as short texts."""
    found = []
    for name in ("where", "expected", "found", "left"):
        text = str(getattr(refusal, name))
        noise = _NOISE.search(text)
        if not text.strip():
            found.append(f"{name} is empty")
        if " " in text.strip() and re.search(r"[A-Za-z0-9)'\"]\.\s*$", text):
            # one word may be a value that ends so, and a list may end with dots
            found.append(f"{name} ends with a full stop")
        if noise:
            found.append(f"{name} holds {noise.group()!r}")
        if len(text) > LONGEST:
            found.append(f"{name} has {len(text)} characters, at most {LONGEST} fit")
    return [*found, *_flaws_of_next(refusal.next)]


def _flaws_of_next(text):
    first = text.partition(" ")[0]
    if not text or (first in _VERBS and len(text) <= LONGEST // 2 and not text.endswith(".")):
        return []
    if first not in OTHERS | {"pp4", "sudo"}:
        return [f"next is neither a command nor says what to do: {text}"]
    wrong = wrong_with(text)
    return [f"next cannot be typed: {wrong}"] if wrong else []


def watch():
    """Look at every refusal that is made from now on."""
    make = Refusal.__init__

    @wraps(make)
    def made(self, *given, **named):
        make(self, *given, **named)
        place = _place(sys._getframe(1))
        if place and _seen[place] < MOST_OF_A_PLACE:
            _seen[place] += 1
            _kept.append((place, self))

    Refusal.__init__ = made


def _place(frame):
    """The line of pp4 that makes a refusal, None where it is not pp4's."""
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    if frame is None:
        return None
    module = frame.f_globals.get("__name__", "")
    ours = module.partition(".")[0] == "pp4" and module not in _PASSED_ON
    return f"{module}:{frame.f_lineno}" if ours else None


def malformed():
    """Lines about refusals since the last call whose form is not right."""
    kept, _kept[:] = list(_kept), []
    return [f"{place}: {one.code}: {flaw}" for place, one in kept for flaw in flaws(one)]
