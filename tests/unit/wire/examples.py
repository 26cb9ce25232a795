"""A healthy exchange in every detail, for tests to spoil one detail at a time."""

from pp4.wire.facts import Block, Exchange

STAMPS = ((11, 12), (21, 22))


def block(rank=0, **changes):
    """What a rank reports of a clean block of two rows and two positions."""
    given = {
        "rank": rank,
        "digest": "d" * 64,
        "rows": ("row-0", "row-1"),
        "tokens": ((1, 2), (3, 4)),
        "firsts": ((1, 2), (3, 4)),
        "q_zero": (0, 0),
        "errors": ((0, 0), (0, 0)),
        "stamps": STAMPS,
        "waited": ((7, 8), (9, 10)),
        "own_error": 0,
        "peer_error": 0,
        "epochs": (12, 22),
        "launched_ns": 100,
        "elapsed_ns": 5,
    }
    return Block(**{**given, **changes})


def exchange(*blocks, **changes):
    """A released exchange of two clean blocks, unless it is told otherwise."""
    given = {
        "blocks": blocks or (block(0), block(1)),
        "released": True,
        "why": "",
        "died": (),
        "order": (0, 1),
        "expected_stamps": STAMPS,
    }
    return Exchange(**{**given, **changes})


def kept(why, *blocks, **changes):
    """An exchange whose reply was kept for a code."""
    return exchange(*blocks, released=False, why=str(why), **changes)
