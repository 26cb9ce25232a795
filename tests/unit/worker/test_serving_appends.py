"""Features of several requests in one call to two real ranks, and what both have to say alike."""

import pytest

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.worker.serving.agreement import grown_alike
from tests.unit.worker.drafters import write_drafter
from tests.unit.worker.test_serving_owner import said

BAD = Refusal(Code.BAD_INPUT, "features", "finite values", "others", left="the rest").as_dict()
FULL = Refusal(Code.CACHE_FULL, "features", "at most 8", "9").as_dict()


def grown(*parts):
    """What a rank says: lengths and refusals."""
    return {
        "parts": [{"length": one} if isinstance(one, int) else {"refusal": one} for one in parts]
    }


def test_lengths_and_refusals_that_both_say_are_told_in_their_order():
    other = {**BAD, "found": "the same in other words"}
    told = grown_alike([grown(3, BAD, 5, FULL), grown(3, other, 5, FULL)], 4)
    assert told[0::2] == [3, 5]
    assert [type(one) for one in told[1::2]] == [RefusedError] * 2
    assert [one.refusal.as_dict() for one in told[1::2]] == [BAD, FULL]


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (grown(3, 5), grown(3, 6), Code.RANKS_DIFFER),
        (grown(3, 5), grown(3, BAD), Code.RANKS_DIFFER),
        (grown(BAD, 5), grown(3, 5), Code.RANKS_DIFFER),
        (grown(3, BAD), grown(3, FULL), Code.RANKS_DIFFER),
        (grown(3, 5), grown(3), Code.RANKS_DIFFER),
        (grown(3, 5, 5), grown(3, 5, 5), Code.RANKS_DIFFER),
        (grown(3, {**BAD, "code": "INTERNAL"}), grown(3, {**BAD, "code": "INTERNAL"}), "INTERNAL"),
        (grown(3, {}), grown(3, {}), Code.BAD_FRAME),
        (grown(3, None), grown(3, None), Code.BAD_FRAME),
        ({"lengths": [3, 5]}, grown(3, 5), Code.BAD_FRAME),
    ],
)
def test_whatever_else_they_say_is_not_agreed(first, second, code):
    for found in ([first, second], [second, first]):
        with pytest.raises(WrongError) as caught:
            grown_alike(found, 2)
        assert caught.value.refusal.code == code


APPENDING = """
from pp4.worker.drafting import Part
import numpy as np
WIDTH = drafting.config.feature_width
both = drafting._ranks.both

def part(request, tokens, value=1.0, width=WIDTH):
    words = np.full((tokens, width), value, np.float32).view(np.uint32) >> 16
    return Part(request, tokens, memoryview(words.astype(np.uint16).tobytes()))

async def append(*parts):
    try:
        told = await asyncio.wait_for(drafting.append(parts), 60)
    except Pp4Error as error:
        return str(error.refusal.code)
    return ",".join(str(one) if isinstance(one, int) else str(one.refusal.code) for one in told)

async def apart(*given):
    first, second = await both(*given)
    second["parts"][1]["length"] += 1
    return first, second

async def differ(*parts):
    drafting._ranks.both = apart
    try:
        return await append(*parts)
    finally:
        drafting._ranks.both = both

async def failed():
    return "serves" if drafting.failed is None else str(drafting.failed.refusal.code)
"""


def test_each_part_grows_or_is_refused_and_only_ranks_that_differ_are_over(tmp_path):
    """What is no call at all is refused as a whole, and the ranks serve on."""
    write_drafter(tmp_path / "drafter")
    test = (
        APPENDING
        + """
def test():
    yield code(drafting.open(2))
    yield append(part(2, 3), part(1, 2))
    yield append(part(1, 1), part(7, 2), part(2, 62))
    yield append(part(2, 4, float("nan")), part(1, 5))
    yield append(part(1, 56), part(2, 61))
    yield append(part(1, 1), part(2, 1))
    yield append(part(1, 1), part(1, 1))
    yield append(part(1, 1, width=WIDTH + 1))
    yield append(*[part(one, drafting.capacity // (2 * WIDTH) // 2 + 1) for one in (1, 2)])
    yield append()
    yield failed()
    yield code(drafting.draft(4, [Row(1, 7, 65, 0, 3, True)]))
    yield code(drafting.close(1))
    yield code(drafting.open(3))
    yield append(part(3, 1))
    yield code(drafting.close(2))
    yield code(drafting.open(4))
    yield differ(part(3, 1), part(4, 1))
    yield failed()
    yield append(part(3, 1))
    yield code(drafting.draft(4, [Row(3, 7, 2, 0, 3, True)]))
"""
    )
    assert said(tmp_path, test) == [
        "none",
        "3,2",
        "3,BAD_INPUT,CACHE_FULL",
        "BAD_INPUT,8",
        "64,64",
        "CACHE_FULL,CACHE_FULL",
        *["BAD_INPUT"] * 4,
        "serves",
        *["none"] * 3,
        "1",
        *["none"] * 2,
        *["RANKS_DIFFER"] * 4,
    ]
