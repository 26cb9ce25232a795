"""Gate 0 and 7: devices, libraries, memory, and what crossed the link bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.errors import Code
from pp4.wire.facts import Identity, Library, Pattern
from pp4.wire.gpus import Gpu

IDLE_BYTES = 1 << 30
"""What an idle GPU may have in use: the driver's own, and that of a display or a monitor."""
LEFT_BYTES = 64 << 20
"""What may still be in use beyond the baseline when everything of ours has ended."""


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


def left_behind(facts: Sequence[bool]) -> Code | None:
    """A leak on purpose is seen only where every place that can show it does."""
    return Code.LEAK if facts and all(facts) else None
