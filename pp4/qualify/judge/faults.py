"""Blocks that had to fail: kept, told, bounded, sticky."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Code
from pp4.wire.facts import FAULTS, Block, Exchange, word_of

_NEAR = 10
"""A wait that runs out ends within this part of its budget from it."""


def bounded(blocks: Sequence[Block], limit_ns: int) -> Code | None:
    """Nobody was held longer than a block with a fault may take."""
    return Code.WAIT_NOT_BOUNDED if any(one.elapsed_ns > limit_ns for one in blocks) else None


def longest(block: Block) -> int:
    """The longest wait of any row and position of a block."""
    return max((wait for row in block.waited for wait in row), default=0)


def _at_fault(block: Block) -> int | None:
    """How long the first position of row 0 that timed out has waited; None where none did."""
    word = FAULTS.index(Code.PEER_TIMEOUT)
    errors, waited = block.errors[0], block.waited[0]
    return next((wait for error, wait in zip(errors, waited, strict=True) if error == word), None)


def ran_out(exchange: Exchange, budget: int) -> Code | None:
    """Some rank waited as long as it was allowed to where it gave up, within a tenth, none longer.

    A little of a budget is gone when the wait for the peer begins: the acknowledgement came first.
    """
    waits = [wait for wait in map(_at_fault, exchange.blocks) if wait is not None]
    inside = waits and abs(max(waits) - budget) <= budget // _NEAR
    return None if inside else Code.WAIT_NOT_BOUNDED


def kept_to_itself(exchange: Exchange, flawed: int, budget: int) -> Code | None:
    """What a fault that was not told looks like: its rank names it, the other waits for nothing."""
    if [block.rank for block in exchange.blocks] != [0, 1]:
        return Code.RANK_DIED
    mine, other = exchange.blocks[flawed], exchange.blocks[1 - flawed]
    words = (FAULTS[mine.own_error], FAULTS[other.own_error])
    first = mine.errors[0][0] or other.errors[0][0]
    if words != (Code.BAD_LOGITS, Code.PEER_TIMEOUT) or first or ran_out(exchange, budget):
        return Code.INCOMPLETE
    return Code.WRONG_ERROR_WORD


def failed_closed(
    exchange: Exchange, fault: Code, limit_ns: int, died: tuple[int, ...] = ()
) -> Code | None:
    """A block with a fault: kept for that fault, in time, and every rank that lives says so.

    Args:
        exchange: what happened.
        fault: what the words have to name.
        limit_ns: how long a rank may have been in the block.
        died: ranks that had to end.
    """
    if exchange.released:
        return Code.RELEASED_AFTER_ERROR
    late = bounded(exchange.blocks, limit_ns)
    if late:
        return late
    words = [word_of(block) for block in exchange.blocks]
    if exchange.why != fault or any(word is not fault for word in words):
        return Code.WRONG_ERROR_WORD
    # a rank that says nothing has not failed closed
    spoke = sorted(block.rank for block in exchange.blocks)
    wanted = sorted(rank for rank in exchange.order if rank not in died)
    return None if exchange.died == died and spoke == wanted else Code.RANK_DIED


def inside(exchange: Exchange, fault: Code) -> Code | None:
    """On both ranks the first position is clean, and every later one carries the fault's word."""
    rows = [block.errors[0] for block in exchange.blocks if block.errors]
    word = FAULTS.index(fault)
    right = [clean == 0 and rest and set(rest) == {word} for clean, *rest in rows]
    return None if len(right) == 2 and all(right) else Code.WRONG_ERROR_WORD


def stuck(blocks: Sequence[Block], ranks: Sequence[int], fault: Code, limit_ns: int) -> Code | None:
    """Ranks that are launched again keep the error, and wait for nobody.

    Args:
        blocks: what each of them reported.
        ranks: which had to report.
        fault: what their words have to name still.
        limit_ns: how long a rank may be in a block at most.
    """
    if [block.rank for block in blocks] != list(ranks):
        return Code.RANK_DIED
    if any(word_of(block) is not fault for block in blocks):
        return Code.WRONG_ERROR_WORD
    if any(block.clean or not all(all(row) for row in block.errors) for block in blocks):
        return Code.STICKY
    if any(longest(block) for block in blocks):
        return Code.STICKY
    return bounded(blocks, limit_ns)


def late_answer(exchange: Exchange, late: int, limit_ns: int) -> Code | None:
    """What kept a reply to which one rank answered well after the other had given up.

    Nothing is found unless the late rank really vouched for a complete block of its own: only then
    did the owner have something to be taken in by.
    """
    by_rank = {block.rank: block for block in exchange.blocks}
    if len(exchange.blocks) != 2 or set(by_rank) != {0, 1}:
        return None
    answer, other = by_rank[late], by_rank[1 - late]
    clean = not answer.own_error and not any(any(row) for row in answer.errors)
    whole = answer.stamps == exchange.expected_stamps
    gave_up = FAULTS[other.own_error] is Code.PEER_TIMEOUT
    if not (clean and whole and gave_up) or bounded(exchange.blocks, limit_ns):
        return None
    return Code.RELEASED_AFTER_ERROR if exchange.released else Code(exchange.why)


def refused(found: Sequence[Code | None], wanted: Code) -> Code | None:
    """Both ranks refused by the name that was asked for."""
    return None if list(found) == [wanted, wanted] else Code.NOT_ORIGINAL
