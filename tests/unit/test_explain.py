"""A page for each code, and no two alike."""

import json

import pytest

from pp4.errors import Code, Exit, UsageError
from pp4.explain import PAGES, page
from pp4.explain.page import pages


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
