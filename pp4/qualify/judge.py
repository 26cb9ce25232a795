"""Facts in, a code or nothing out: pure functions, so that every branch can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pp4.errors import Code
from pp4.wire.facts import (
    FAULTS,
    Block,
    Case,
    Exchange,
    Expectation,
    Identity,
    Library,
    Pattern,
    Primed,
    Selected,
    Stream,
    Streamed,
    word_of,
)
from pp4.wire.gpus import Gpu

GREEDY = 2
IDLE_BYTES = 1 << 30
"""What an idle GPU may have in use: the driver's own, and that of a display or a monitor."""
LEFT_BYTES = 64 << 20
"""What may still be in use beyond the baseline when everything of ours has ended."""
_NEAR = 10
"""A wait that runs out ends within this part of its budget from it."""


def devices(identities: Sequence[Identity], expected: Sequence[str]) -> Code | None:
    """Two ranks, two processes, the devices that the HOLD names, each open to the other."""
    found = [identity.device for identity in identities]
    apart = len({identity.pid for identity in identities}) == len(identities) == len(set(found))
    if found != list(expected) or not apart:
        return Code.DEVICE_MISMATCH
    if not all(identity.peer_access for identity in identities):
        return Code.NO_GPU_PAIR
    if len({identity.mapped for identity in identities}) != 1:
        return Code.LIBRARY_CHANGED
    return None


def device(identities: Sequence[Identity], expected: str) -> Code | None:
    """Solo: two processes on the one device that the HOLD names."""
    found = [identity.device for identity in identities]
    apart = len({identity.pid for identity in identities}) == len(identities)
    return None if found == [expected, expected] and apart else Code.DEVICE_MISMATCH


def mapped(ranks: Sequence[str]) -> Code | None:
    """Both ranks map the same files; none may have nothing mapped."""
    same = len(ranks) == 2 and ranks[0] and ranks[0] == ranks[1]
    return None if same else Code.LIBRARY_CHANGED


def idle(gpus: Sequence[Gpu]) -> Code | None:
    """No compute process, and no memory in use beyond what a driver takes for itself.

    What the driver does not tell counts as in use.  Processes of other containers may not be
    listed; what they hold in memory is.
    """
    free = all(
        one.memory_used_bytes is not None
        and one.memory_used_bytes <= IDLE_BYTES
        and one.processes == ()
        and not one.mps_processes
        for one in gpus
    )
    return None if gpus and free else Code.NOT_IDLE


def above(gpus: Sequence[Gpu], baseline: Sequence[Gpu]) -> tuple[bool, ...]:
    """Whether each GPU has more memory in use than before anything of ours ran."""
    before = {one.uuid: one.memory_used_bytes or 0 for one in baseline}
    return tuple(
        one.memory_used_bytes is None
        or one.memory_used_bytes > before.get(one.uuid, 0) + LEFT_BYTES
        for one in gpus
    )


def pattern(ranks: Sequence[Pattern], epochs: int) -> Code | None:
    """Writer and reader both went through all epochs, and every message arrived as written."""
    both = [one.rank for one in ranks] == [0, 1] and epochs > 0
    whole = all(one.epochs == epochs and not one.mismatches for one in ranks)
    return None if both and whole else Code.PATTERN_MISMATCH


def flipped(ways: Sequence[Sequence[Pattern]], epochs: int) -> Code | None:
    """Both ways went through all epochs, and each reader found the one message that was spoiled."""
    for writer, both in enumerate(ways):
        if [one.rank for one in both] != [0, 1] or any(one.epochs != epochs for one in both):
            return Code.INCOMPLETE
        if both[writer].mismatches or both[1 - writer].mismatches != 1:
            return None
    return Code.PATTERN_MISMATCH if len(ways) == 2 else None


def one_byte(found: Sequence[Library], expected: Sequence[Library]) -> Code | None:
    """The same libraries, of which exactly one has other bytes."""
    if not expected or [one.name for one in found] != [one.name for one in expected]:
        return Code.INCOMPLETE
    pairs = zip(found, expected, strict=True)
    other = sum(one.sha256 != known.sha256 for one, known in pairs)
    return Code.LIBRARY_CHANGED if other == 1 else None


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


def unprimed(refusals: Sequence[Mapping[str, str] | None]) -> Code | None:
    """Both ranks refused for want of a primed kernel: the same code has other places as well."""
    places = [None if one is None else (one["code"], one["where"]) for one in refusals]
    wanted = (Code.UNPRIMED.value, "kernel sampled_fused")
    return Code.UNPRIMED if places == [wanted, wanted] else None


def one_specialisation(
    ones: Sequence[Primed], primed: Sequence[Primed], cached: tuple[int, int]
) -> Code | None:
    """What was compiled again is what was primed, and came out of the cache.

    Args:
        ones: what both ranks primed again after the launches.
        primed: what both ranks primed.
        cached: binaries in the cache before and after.
    """
    wanted = {(one.ptx_sha256, one.cubin_sha256) for one in primed}
    found = {(one.ptx_sha256, one.cubin_sha256) for one in ones}
    if len(ones) != 2 or len(wanted) != 1 or found != wanted:
        return Code.KERNELS_DIFFER
    before, after = cached
    return None if before and before == after else Code.COMPILED_AFTER_PRIMING


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


def waited_longer(first: Block, second: Block) -> bool:
    """Whether one rank waited longer than another in the first exchange of a block."""
    return first.waited[0][0] > second.waited[0][0]


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


def agree(expected: Sequence[Expectation], ways: Sequence[str]) -> Code | None:
    """All ways that were asked for gave the same block."""
    by = [one.by for one in expected]
    same = len({one.digest for one in expected}) == 1
    return None if by == list(ways) and same else Code.OUTPUT_MISMATCH


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


def left_behind(facts: Sequence[bool]) -> Code | None:
    """A leak on purpose is seen only where every place that can show it does."""
    return Code.LEAK if facts and all(facts) else None
