"""A page of a code: whole lines for a program, and for a terminal lines that fit."""

import re

import pytest

from pp4.console.pages import WIDEST, lines
from pp4.errors import Code
from pp4.explain import PAGES


@pytest.mark.parametrize("code", Code)
def test_a_program_gets_a_line_for_each_part(code):
    page = PAGES[code]
    assert lines(page, None) == [
        code,
        f"  cause    {page.cause}",
        f"  left     {page.left}",
        f"  way out  {page.way_out}",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("code", Code)
def test_a_terminal_gets_lines_that_fit_with_commands_in_one_piece(code, width):
    page = PAGES[code]
    found = lines(page, width)
    text = " ".join(found)
    for command in re.findall(r"`[^`]*`", page.cause + page.left + page.way_out):
        assert [line for line in found if command in line]
    longest = max(len(line) for line in found if "`" not in line and "/" not in line)
    assert longest <= min(width, WIDEST)
    assert re.sub(r"\s+", " ", text) == " ".join(" ".join(lines(page, None)).split())
