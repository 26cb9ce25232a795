"""Priming of two ranks: both compile and load, and what came out is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, WrongError
from pp4.wire import asks
from pp4.wire.facts import Primed, read, refusal_of
from pp4.worker.ranks import Pair

_LIMIT_S = 240.0


def prime_pair(
    pair: Pair, asked: asks.Prime, try_launch: Callable[[asks.RunBlock | None], str]
) -> dict[str, Any]:
    """Prime the pair's kernel, the solo kernel and the controls on both ranks.

    The digests of both ranks are compared every time.

    Args:
        pair: two ranks that have not launched anything.
        asked: what is primed, and whether a rank is held back meanwhile.
        try_launch: tries a block while a rank is held back; -> the code of the refusal.

    Returns:
        ``primed`` and ``solo``, a :class:`Primed` of each rank, and ``meanwhile``.

    Raises:
        WrongError: a rank refused or died, or ``KERNELS_DIFFER``.
        TimedOutError: ``STEP_TIMEOUT``.
    """
    deadline = Deadline.after(SystemClock(), _LIMIT_S)
    _ask(pair, asked, 1, asked.delayed)
    meanwhile = ""
    if asked.delayed is not None:
        meanwhile = _held_back(pair, asked.delayed, deadline, lambda: try_launch(asked.probe))
    primed = _compared(pair, deadline)
    _ask(pair, asked, 2, None)
    solo = _compared(pair, deadline)
    planted = {"shape": asked.shape.model_dump(), "controls": asked.controls}
    for reply in pair.both("plant", (planted, planted), deadline.remaining_s()):
        if reply.facts is None:
            raise WrongError(refusal_of(reply.refusal))
    return {"primed": primed, "solo": solo, "meanwhile": meanwhile}


def _ask(pair: Pair, asked: asks.Prime, shards: Literal[1, 2], delayed: int | None) -> None:
    for end in pair.ends:
        given = asks.PrimeOfRank(
            shape=asked.shape,
            shards=shards,
            recorded=asked.recorded,
            delayed=end.rank == delayed,
        )
        pair.ask(end.rank, "prime", given.model_dump())


def _held_back(pair: Pair, delayed: int, deadline: Deadline, try_launch: Callable[[], str]) -> str:
    """Try a launch while the delayed rank waits; -> the code of the refusal."""
    late, ready = pair[delayed], pair[1 - delayed]
    pair.until(lambda: ready.settled and late.reached("paused"), deadline, "prime")
    if "paused" not in late.events:
        # it answered or died instead: a word to go on would be taken for its next request
        return ""
    code = try_launch()
    pair.resume(delayed)
    return code


def _compared(pair: Pair, deadline: Deadline) -> list[dict[str, Any]]:
    """What both ranks primed; refuses where it is not the same."""
    pair.until(lambda: all(end.settled for end in pair.ends), deadline, "prime")
    primed = [_primed(pair, end.rank) for end in pair.ends]
    require_equal(primed)
    return [one.model_dump() for one in primed]


def require_equal(primed: Sequence[Primed]) -> None:
    """Refuse two ranks that would run different binaries.

    Raises:
        WrongError: ``KERNELS_DIFFER``.
    """
    keys = {(one.key, one.ptx_sha256, one.cubin_sha256) for one in primed}
    if len(keys) != 1:
        raise WrongError(
            Refusal(Code.KERNELS_DIFFER, "priming", "equal digests on both ranks", str(keys))
        )


def _primed(pair: Pair, rank: int) -> Primed:
    reply = pair[rank].answer("prime")
    if reply.facts is None:
        raise WrongError(refusal_of(reply.refusal))
    return read(Primed, reply.facts)
