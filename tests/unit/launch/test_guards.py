"""A guard is one form at one place; whatever else it becomes is refused."""

import ast
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.errors import Code, RefusedError
from pp4.launch.guards import find_guards
from pp4.launch.manifest import GuardRule
from tests.unit.launch.subjects import ROOT, RUNNER

SOURCE = (ROOT / "launch" / "runner" / RUNNER).read_text()
LINES = SOURCE.splitlines(keepends=True)
GUARD = "        if mtp is None:\n"
RULES = [
    GuardRule(name=name, path=RUNNER, function=f"Runner.{name}", subject="mtp")
    for name in ("load", "step")
]
PLACES = [number for number, line in enumerate(LINES) if line == GUARD]


def found(text, rules=RULES):
    return find_guards(rules, text.encode(), "runner.py")


def refused(text, rules=RULES):
    """The refusal of a text; it still has to be Python, or the test shows nothing."""
    ast.parse(text)
    with pytest.raises(RefusedError) as raised:
        found(text, rules)
    assert raised.value.refusal.code is Code.GUARD_CHANGED
    return raised.value.refusal


def one(body, subject="mtp", function="f", head="def f(mtp, other=None):"):
    """A file with one function, and its rule."""
    text = f"{head}\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return text, [GuardRule(name="g", path="f.py", function=function, subject=subject)]


def test_both_guards_of_the_runner_are_found():
    assert [guard.line for guard in found(SOURCE)] == [place + 1 for place in PLACES]
    assert len(PLACES) == 2


# -- properties: whatever is done to one of both ------------------------------------------------

TESTS = [
    "mtp is None or other", "mtp is None and other", "not mtp", "mtp == None", "mtp is not None",
    "not mtp is None", "None is mtp", "mtp is None is None", "mtp is False", "mtp in (None,)",
    "(mtp := None) is None", "isinstance(mtp, type(None))", "bool(mtp is None)", "self.mtp is None",
    "mtp.head is None", "mtp is ...", "True", "mtp is None if other else True",
    "not (mtp is not None)", "any([mtp is None])",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_another_condition_is_refused(place):
    lines = list(LINES)
    for test in TESTS:
        lines[place] = f"        if {test}:\n"
        refusal = refused("".join(lines))
        names_it = f"line {place + 1}: " in refusal.found
        assert names_it or not {"mtp"} & {getattr(n, "id", "") for n in ast.walk(ast.parse(test))}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("body", ["pass", "mtp = 1", "print(mtp)", "..."])
def test_a_body_that_does_not_leave_is_refused(place, body):
    lines = list(LINES)
    lines[place + 1] = f"            {body}\n"
    assert "none" in refused("".join(lines)).found


@pytest.mark.parametrize("place", PLACES)
def test_a_guard_that_is_gone_is_refused(place):
    refused("".join([*LINES[:place], *LINES[place + 2 :]]))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("more", [1, 2])
def test_a_guard_that_is_doubled_is_refused(place, more):
    guard = LINES[place : place + 2]
    refused("".join([*LINES[:place], *guard * more, *LINES[place:]]))


BODY = [number for number, line in enumerate(LINES) if line.startswith("        ")]


@pytest.mark.parametrize("place", PLACES)
def test_a_guard_that_is_moved_is_refused(place):
    rest, passed = [*LINES[:place], *LINES[place + 2 :]], []
    for to in BODY:
        text = "".join([*rest[:to], *LINES[place : place + 2], *rest[to:]])
        try:
            tree = ast.parse(text)
            guards = found(text)
        except (SyntaxError, RefusedError):
            continue
        passed.append(to)
        assert [guard.line for guard in guards] == _first_lines(tree)
    # at its own place, and within the docstring or in front of it there is no other beginning
    assert place in passed
    assert len(passed) < len(BODY) / 4


def _first_lines(tree):
    """The lines at which both functions begin, their docstrings left out."""
    lines = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in ("load", "step"):
            lines[node.name] = next(s.lineno for s in node.body if not isinstance(s, ast.Expr))
    return [lines["load"], lines["step"]]


WRAPS = [
    "if False:", "if other:", "while True:", "for _ in other:", "with suppress(Exception):",
    "def inner(mtp):", "class Inner:", "try:", "if True:",
]  # fmt: skip


@settings(max_examples=30)
@given(
    place=st.sampled_from(PLACES), wraps=st.lists(st.sampled_from(WRAPS), min_size=1, max_size=3)
)
def test_a_guard_within_anything_is_refused(place, wraps):
    lines, ends = [], []
    for depth, wrap in enumerate(wraps):
        blank = "    " * depth + " " * 8
        lines.append(f"{blank}{wrap}\n")
        if wrap == "try:":
            ends.insert(0, f"{blank}except Exception:\n{blank}    pass\n")
    inner = ["    " * len(wraps) + line for line in LINES[place : place + 2]]
    refused("".join([*LINES[:place], *lines, *inner, *ends, *LINES[place + 2 :]]))


BEFORE = [
    "mtp = None", "mtp: object = None", "mtp += 1", "del mtp", "print(mtp)", "(mtp := None)",
    "for mtp in (): pass", "import mtp", "from a import b as mtp", "with a as mtp: pass",
    "try: pass\nexcept E as mtp: pass", "def mtp(): pass", "class mtp: pass", "x = mtp.head",
    "match other:\n    case mtp: pass", "match other:\n    case [*mtp]: pass",
    "match other:\n    case {**mtp}: pass", "return 1", "if other: return 1", "yield 1",
    "yield from other", "raise E", "exec('mtp = None')", "eval('mtp')", "locals()['mtp'] = None",
    "for _ in other:\n    return 2", "try:\n    pass\nfinally:\n    return 3",
    "[mtp := 1 for _ in other]", "x = lambda: mtp", "a, mtp = 1, None",
]  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
def test_what_gets_past_a_guard_may_not_stand_before_it(before):
    text, rules = one(f"{before}\nif mtp is None:\n    return 0\n")
    assert "behind line" in refused(text, rules).found


@pytest.mark.parametrize(
    "before",
    [
        '"""Says what it does."""',
        "x = other",
        "if other: raise ValueError",
        "def inner():\n    return 1",
        "x = lambda: (yield)",
        "log(other)",
        "with lock: x = 1",
    ],
)
def test_what_does_not_get_past_it_may(before):
    text, rules = one(f"{before}\nif mtp is None:\n    raise E\n")
    assert len(found(text, rules)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "if mtp is None:\n    return 0\nelse:\n    return 1",
        "if mtp is None:\n    return 0\nelif other:\n    return 1",
        "if mtp is None:\n    try:\n        raise E\n    except E:\n        pass",
        "if mtp is None:\n    if other:\n        return 0",
        "x = 0 if mtp is None else 1",
        "assert mtp is None",
        "while mtp is None:\n    return 0",
        "match mtp:\n    case None:\n        return 0",
        "pass",
    ],
)
def test_another_form_is_none(body):
    refused(*one(body))


@pytest.mark.parametrize(
    ("more", "head"),
    [
        ("def f(mtp): pass", "def f(mtp):"),
        ("f = other", "def f(mtp):"),
        ("from other import f", "def f(mtp):"),
        ("if other:\n    def f(mtp): pass", "def f(mtp):"),
        ("def g():\n    global f\n    f = other", "def f(mtp):"),
        ("del f", "def f(mtp):"),
        ("", "def f():"),
        ("", "def f(*mtp):"),
        ("", "def f(**mtp):"),
        ("", "def g(mtp):"),
    ],
)
def test_a_function_that_is_another_one_is_refused(more, head):
    text, rules = one("if mtp is None:\n    return 0\n", head=head)
    refused(f"{text}{more}\n", rules)


@pytest.mark.parametrize(
    "more",
    [
        "C.f = other",
        "setattr(C, 'f', other)",
        "del C.f",
        "C = other",
        "class C: pass",
        "def g():\n    C.f = other",
    ],
)
def test_a_method_that_is_replaced_is_refused(more):
    body = "class C:\n    def f(self, mtp):\n        if mtp is None:\n            return 0\n"
    rule = [GuardRule(name="g", path="f.py", function="C.f", subject="mtp")]
    assert len(found(body, rule)) == 1
    refused(f"{body}{more}\n", rule)
    refused(body.replace("def f", "f = 1\n    def f"), rule)
    refused(f"if other:\n{textwrap.indent(body, '    ')}", rule)


def test_an_attribute_can_be_the_subject():
    rest = "if self.mtp is None:\n    raise E\n"
    head = "def f(self):"
    text, rules = one(rest, "self.mtp", head=head)
    assert found(text, rules)[0].line == 2
    past = ["self.mtp = None", "x = self.mtp", "self = other", "setattr(self, 'mtp', None)"]
    past += ["setattr(self, name, None)", "del self.mtp", "vars(self)['mtp'] = None"]
    for before in past:
        refused(*one(f"{before}\n{rest}", "self.mtp", head=head))
    for before in ("self.other = None", "setattr(self, 'other', 1)", "x = self.mtp_size"):
        assert found(*one(f"{before}\n{rest}", "self.mtp", head=head))


def test_a_second_guard_of_the_subject_elsewhere_has_to_be_listed():
    text = SOURCE + "\n\ndef more(mtp):\n    if mtp is None:\n        raise Refused('x')\n"
    assert "3, in lines" in refused(text).found
    more = GuardRule(name="more", path=RUNNER, function="more", subject="mtp")
    assert len(found(text, [*RULES, more])) == 3


def test_what_is_no_python_is_refused():
    for text in ("if mtp is None", "x = '\0'", "(" * 500 + ")" * 500):
        with pytest.raises(RefusedError) as raised:
            found(text)
        assert raised.value.refusal.code is Code.GUARD_CHANGED


def test_text_that_nests_without_end_is_refused():
    text, rules = one("x = " + "+".join(["1"] * 20_000) + "\nif mtp is None:\n    return 0\n")
    with pytest.raises(RefusedError) as raised:
        found(text, rules)
    assert raised.value.refusal.code is Code.GUARD_CHANGED
