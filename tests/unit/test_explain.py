"""A page for each code, and no two alike."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from pp4.cli import app
from pp4.errors import Code, Exit, UsageError
from pp4.explain import PAGES, page
from pp4.explain.page import pages
from tests.lines import wrong_with_mention

PACKAGE = Path(__file__).parents[2] / "pp4"


@pytest.mark.parametrize("code", Code)
def test_each_code_has_its_page(code):
    found = page(code)
    assert found.code is code
    for text in (found.cause, found.left, found.way_out):
        assert len(text) > 10
        assert text[0].isupper() or text.startswith("pp4 ")
        assert text.endswith((".", ")", "`"))


def test_no_page_lacks_its_code():
    assert set(PAGES) == set(Code)
    assert all(code is made.code for code, made in PAGES.items())


@pytest.mark.parametrize("part", ["cause", "way_out"])
def test_pages_differ(part):
    texts = [getattr(made, part) for made in PAGES.values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("typed", ["leak", " LEAK ", "Leak"])
def test_a_code_may_be_typed_in_any_case(typed):
    assert page(typed).code is Code.LEAK


@pytest.mark.parametrize(
    ("typed", "near"), [("LEEK", "LEAK"), ("not_json5", "NOT_JSON"), ("", ""), ("\x1b[2J", "")]
)
def test_an_unknown_code_is_a_usage_error_that_names_the_nearest(typed, near):
    with pytest.raises(UsageError) as caught:
        page(typed)
    refusal = caught.value.refusal
    assert caught.value.exit is Exit.USAGE
    assert refusal.code is Code.USAGE
    assert near in refusal.expected
    assert refusal.found.isprintable()


def test_a_page_is_json():
    told = json.loads(json.dumps(page("LEAK").as_dict()))
    assert set(told) == {"code", "cause", "left", "way_out"}


def test_two_pages_for_one_code_cannot_be_made():
    row = (Code.LEAK, "a", "b", "c")
    with pytest.raises(ValueError, match="two pages"):
        pages(row, row)


# -- what a page tells to type exists


def texts(one):
    return (one.cause, one.left, one.way_out)


@pytest.mark.parametrize("code", Code)
def test_each_command_of_a_page_is_one(code):
    for text in texts(page(code)):
        assert "'pp4 " not in text, "commands stand between backticks"
        for line in re.findall(r"`([^`]+)`", text):
            if re.match(r"(pp4|pip|nvidia-smi|ssh) ", line):
                assert wrong_with_mention(line) == ""


def test_no_command_stands_bare_in_a_page():
    names = [command.name for command in app.registered_commands if command.name]
    names += [group.name for group in app.registered_groups]
    bare = re.compile(
        rf"(?<!`)\bpp4 ({'|'.join([*names, 'doctor', 'explain', 'gate', 'status'])})\b"
    )
    assert not [code for code in Code if bare.search(" ".join(texts(page(code))))]


def test_every_file_that_a_page_sends_to_is_there():
    named = {
        path
        for made in PAGES.values()
        for path in re.findall(r"\b((?:docs|launch|schemas)/[\w./-]*\w)", " ".join(texts(made)))
    }
    assert len(named) > 5
    assert not [path for path in named if not (PACKAGE.parent / path).exists()]


# -- a page speaks of every part that says its code

SPOKEN_OF = {
    "pp4/receipts": ("receipt", "evidence"),
    "pp4/fleet": ("fleet", "plan", "scripts"),
    "pp4/engine/replay": ("held-out",),
    "pp4/engine/target": ("target",),
    "pp4/hold": ("HOLD", "hold", "host", "quarantine"),
    "pp4/transport": ("host", "program", "process", "worker"),
    "pp4/launch": ("tree", "manifest"),
    "pp4/worker/front": ("worker",),
    "pp4/worker/client": ("worker",),
    "pp4/worker/serving": ("worker", "rank"),
    "pp4/drafter/checkpoint": ("checkpoint", "package"),
    "pp4/config/hold_file": ("HOLD file",),
}
"""Parts of pp4, and words of which one stands in the page of each code that the part says."""
EVERYWHERE = {Code.USAGE, Code.INTERNAL, Code.BAD_INPUT, Code.OVER_BUDGET}
"""Whoever meets these reads the message first; their pages are about all parts alike."""


@cache
def said():
    """Every (code, file) in which a refusal, a check or a verdict is made with a code."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE.parent).as_posix()
        if where.startswith(("pp4/explain/", "pp4/errors.py")):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        compared = {id(one) for node in ast.walk(tree) for one in _only_read(node)}
        for node in ast.walk(tree):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if named and node.value.id == "Code" and id(node) not in compared:
                found.add((Code(node.attr), where))
    return found


def _only_read(node):
    """Names of codes that are compared with or collected, and so said by somebody else."""
    if isinstance(node, ast.Compare | ast.Set | ast.Tuple):
        return ast.walk(node)
    if isinstance(node, ast.Dict):
        return (one for key in node.keys if key for one in ast.walk(key))
    return ()


def test_every_code_is_said_somewhere():
    spoken = {code for code, _ in said()}
    # the words of a kernel come out of a table
    words = {Code.EMPTY_ROW, Code.BAD_LOGITS, Code.PEER_TIMEOUT, Code.PROTOCOL}
    assert set(Code) - spoken - words == set()


@pytest.mark.parametrize("part", SPOKEN_OF)
def test_a_page_speaks_of_every_part_that_says_its_code(part):
    codes = {code for code, where in said() if where.startswith(part)}
    assert codes
    silent = {
        code
        for code in codes - EVERYWHERE
        if not any(word in " ".join(texts(page(code))) for word in SPOKEN_OF[part])
    }
    assert silent == set(), f"their pages in pp4/explain say nothing of {part}"
