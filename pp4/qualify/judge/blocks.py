"""Blocks that had to go well: released, complete, equal on both ranks and to the reference."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Code
from pp4.wire.facts import FAULTS, Block, Case, Exchange, Expectation, Selected, Stream, Streamed

GREEDY = 2


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


def agree(expected: Sequence[Expectation], ways: Sequence[str]) -> Code | None:
    """All ways that were asked for gave the same block."""
    by = [one.by for one in expected]
    same = len({one.digest for one in expected}) == 1
    return None if by == list(ways) and same else Code.OUTPUT_MISMATCH


def streamed(ranks: Sequence[Streamed], asked: Stream, *, solo: bool = False) -> Code | None:
    """Every row of a stream equals the reference on all ranks, which saw and gave the same."""
    if [one.rank for one in ranks] != ([0] if solo else [0, 1]):
        return Code.RANK_DIED
    words = [FAULTS[max(one.own_error, one.peer_error)] for one in ranks]
    if any(words):
        return max(filter(None, words), key=FAULTS.index)
    rows = asked.blocks * asked.batch * asked.n_out
    if any(one.blocks != asked.blocks or one.rows != rows for one in ranks):
        return Code.INCOMPLETE
    if any(one.mismatches for one in ranks):
        return Code.OUTPUT_MISMATCH
    same = len({(one.inputs, one.outputs) for one in ranks}) == 1
    return None if same else Code.RANKS_DIFFER


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


def selected(
    ranks: Sequence[Selected], released: bool, why: str, expected: Expectation
) -> Code | None:
    """The sampled side of the branch: released, whole on both ranks, and the reference's bits."""
    if not released:
        return Code(why) if why in set(Code) else Code.INCOMPLETE
    blocks = [one.block for one in ranks if one.block is not None]
    if [block.rank for block in blocks] != [0, 1] or not all(block.clean for block in blocks):
        return Code.RELEASED_ON_ONE_WORD
    if not all(_stamped(block) for block in blocks):
        return Code.INCOMPLETE
    if blocks[0].digest != blocks[1].digest:
        return Code.RANKS_DIFFER
    same = blocks[0].digest == expected.digest
    same = same and all(one.tokens == expected.tokens for one in ranks)
    return None if same else Code.OUTPUT_MISMATCH


def _stamped(block: Block) -> bool:
    """Whether the stamps of every row lead up to the epoch that its device has counted."""
    rows = zip(block.stamps, block.epochs, strict=False)
    counted = all(
        list(row) == list(range(last - len(row) + 1, last + 1)) for row, last in rows if row
    )
    return counted and all(block.stamps) and len(block.stamps) <= len(block.epochs)


def neighbours(before: Block, after: Block, changed: int) -> Code | None:
    """Only the row whose mode changed may change."""
    same = all(
        one == other
        for row, (one, other) in enumerate(zip(before.rows, after.rows, strict=True))
        if row != changed
    )
    return None if same else Code.NEIGHBOUR_CHANGED


def waited_longer(first: Block, second: Block) -> bool:
    """Whether one rank waited longer than another in the first exchange of a block."""
    return first.waited[0][0] > second.waited[0][0]
