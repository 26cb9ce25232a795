"""Facts in, a code or nothing out: pure functions, so that every branch can be tested."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Code
from pp4.wire.facts import (
    Block,
    Case,
    Exchange,
    Expectation,
    Identity,
    Library,
    Primed,
    Selected,
    word_of,
)

GREEDY = 2


def devices(identities: Sequence[Identity], expected: Sequence[str]) -> Code | None:
    """Two ranks, two processes, the devices that the HOLD names, the same libraries mapped."""
    found = [identity.device for identity in identities]
    apart = len({identity.pid for identity in identities}) == len(identities) == len(set(found))
    if found != list(expected) or not apart:
        return Code.DEVICE_MISMATCH
    if len({identity.mapped for identity in identities}) != 1:
        return Code.LIBRARY_CHANGED
    return None


def libraries(found: Sequence[Library], expected: Sequence[Library]) -> Code | None:
    """The mapped libraries, byte for byte, and not none."""
    return None if found and list(found) == list(expected) else Code.LIBRARY_CHANGED


def primed(ones: Sequence[Primed], first_launch_ns: int, meanwhile: str) -> Code | None:
    """Equal binaries on both ranks, launches refused before and only after both were loaded."""
    if len({(one.key, one.ptx_sha256, one.cubin_sha256) for one in ones}) != 1 or len(ones) != 2:
        return Code.KERNELS_DIFFER
    late = max(one.primed_ns for one in ones) > first_launch_ns
    if late or meanwhile != Code.UNPRIMED:
        return Code.LAUNCHED_BEFORE_PRIMED
    return None


def release(exchange: Exchange) -> Code | None:
    """A reply left only if both ranks vouch for it; judged from the facts, not by the owner."""
    if not exchange.released:
        return None
    both = sorted(block.rank for block in exchange.blocks) == [0, 1]
    complete = both and all(block.clean for block in exchange.blocks)
    return None if complete else Code.RELEASED_ON_ONE_WORD


def healthy(exchange: Exchange) -> Code | None:
    """A block that had to go well: released, complete, both ranks equal."""
    wrong = release(exchange)
    if wrong:
        return wrong
    if not exchange.released:
        return Code(exchange.why)
    if any(block.stamps != exchange.expected_stamps for block in exchange.blocks):
        return Code.INCOMPLETE
    if exchange.blocks[0].digest != exchange.blocks[1].digest:
        return Code.RANKS_DIFFER
    return None


def equal(exchange: Exchange, expected: Sequence[Expectation]) -> Code | None:
    """A healthy block that equals every expectation bit for bit, and not none of them."""
    wrong = healthy(exchange)
    if wrong:
        return wrong
    found = exchange.blocks[0].digest
    same = expected and all(one.digest == found for one in expected)
    return None if same else Code.OUTPUT_MISMATCH


def mixed(exchange: Exchange, expected: Expectation, greedy: Selected, case: Case) -> Code | None:
    """Sampled rows as expected; T = 0 rows without q and with the original selector's tokens."""
    wrong = healthy(exchange)
    if wrong:
        return wrong
    block = exchange.blocks[0]
    rows = range(case.batch)
    sampled = [row for row in rows if case.modes[row] != GREEDY]
    if any(block.rows[row] != expected.rows[row] for row in sampled):
        return Code.OUTPUT_MISMATCH
    still = [row for row in rows if case.modes[row] == GREEDY]
    if not all(block.q_zero[row] for row in still):
        return Code.T0_DREW
    if any(block.tokens[row] != greedy.tokens[row] for row in still):
        return Code.T0_NOT_ARGMAX
    return None if block.digest == expected.digest else Code.OUTPUT_MISMATCH


def neighbours(before: Block, after: Block, changed: int) -> Code | None:
    """Only the row whose mode changed may change."""
    same = all(
        one == other
        for row, (one, other) in enumerate(zip(before.rows, after.rows, strict=True))
        if row != changed
    )
    return None if same else Code.NEIGHBOUR_CHANGED


def failed_closed(exchange: Exchange, fault: Code, died: tuple[int, ...] = ()) -> Code | None:
    """A block with a fault: kept for that fault, and the words of every rank that lives say so.

    Args:
        exchange: what happened.
        fault: what the words have to name.
        died: ranks that had to end.
    """
    if exchange.released:
        return Code.RELEASED_AFTER_ERROR
    words = [word_of(block) for block in exchange.blocks]
    if exchange.why != fault or any(word is not fault for word in words):
        return Code.WRONG_ERROR_WORD
    # a rank that says nothing has not failed closed
    spoke = sorted(block.rank for block in exchange.blocks)
    wanted = sorted(rank for rank in exchange.order if rank not in died)
    return None if exchange.died == died and spoke == wanted else Code.RANK_DIED
