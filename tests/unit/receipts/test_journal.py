"""The chain of journal lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.receipts.journal import GENESIS, first_break, head, line_digest, next_line


def chain(length):
    lines = []
    for number in range(length):
        before = lines[-1] if lines else None
        lines.append(next_line(before, f"step-{number}", "begin", detail={"n": number}))
    return lines


def test_a_chain_holds_and_its_head_is_the_last_line():
    lines = chain(5)
    assert first_break(lines) is None
    assert lines[0]["previous"] == GENESIS
    assert head(lines) == line_digest(lines[-1])
    assert head([]) == GENESIS
    assert [line["sequence"] for line in lines] == [0, 1, 2, 3, 4]


def test_the_detail_of_a_line_is_its_own_copy():
    detail = {"n": 1}
    line = next_line(None, "s", "note", detail=detail)
    detail["n"] = 2
    assert line["detail"] == {"n": 1}


@given(st.integers(2, 6).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))))
def test_any_other_order_is_a_break(case):
    length, order = case
    lines = chain(length)
    moved = [lines[i] for i in order]
    assert (first_break(moved) is None) == (list(order) == list(range(length)))


@pytest.mark.parametrize("index", range(4))
def test_a_line_taken_out_is_a_break_unless_it_was_the_last(index):
    lines = chain(4)
    before = head(lines)
    del lines[index]
    if index == 3:
        assert first_break(lines) is None
        assert head(lines) != before
    else:
        assert first_break(lines).index == index


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("step", "other"),
        ("event", "end"),
        ("found", "pass"),
        ("detail", {"n": 9}),
        ("previous", "f" * 64),
        ("sequence", 7),
    ],
)
def test_a_changed_member_breaks_the_chain_or_its_head(member, value):
    for index in range(3):
        lines = chain(3)
        before = head(lines)
        lines[index] = {**lines[index], member: value}
        assert first_break(lines) is not None or head(lines) != before
