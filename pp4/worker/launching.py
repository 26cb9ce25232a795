"""Launching a block on two ranks: who goes first, who comes late, who stops on the way."""

from __future__ import annotations

from pp4.clock import Deadline, SystemClock
from pp4.wire.asks import RunBlock
from pp4.worker.ranks import Pair, RankEnd


def launch(pair: Pair, asked: RunBlock, order: list[int]) -> None:
    """Launch in the asked order, steer pauses and wait for every answer or death.

    Args:
        pair: a primed pair.
        asked: what is launched and how.
        order: gets the ranks that were launched, also where this ends in an error.

    Raises:
        TimedOutError: ``STEP_TIMEOUT``, no answer within the limit for everything together.
    """
    deadline = Deadline.after(SystemClock(), asked.limit_s)
    first, second = pair[asked.first], pair[1 - asked.first]
    for end in pair.ends:
        end.events.clear()
        end.reply = None
    _launch(pair, first, asked, order)
    if asked.second == "launched":
        pair.until(lambda: first.reached("launching"), deadline, "launch")
    elif asked.second == "answered":
        pair.until(lambda: first.settled, deadline, "launch")
    if asked.second != "never":
        _launch(pair, second, asked, order)
    for rank in order:
        if asked.launches[rank].pause_before is not None:
            _steer(pair, pair[rank], asked.on_pause, deadline)
    pair.until(lambda: all(pair[rank].settled for rank in order), deadline, "block")


def began(end: RankEnd) -> bool:
    """Whether a rank that was asked to launch may have done so: it said so, or said nothing."""
    return end.reply is None or "launching" in end.events


def _launch(pair: Pair, end: RankEnd, asked: RunBlock, order: list[int]) -> None:
    order.append(end.rank)
    how = asked.launches[end.rank]
    pair.ask(end.rank, "run", {"case": asked.case.model_dump(), "launch": how.model_dump()})


def _steer(pair: Pair, end: RankEnd, action: str, deadline: Deadline) -> None:
    """Wait for a rank to pause, then kill it or let it go on, at once or after its peer."""
    peer = pair[1 - end.rank]
    pair.until(lambda: end.reached("paused"), deadline, "pause")
    if "paused" not in end.events:
        # it answered or died instead: a word to go on would be taken for its next request
        return
    if action == "kill":
        end.kill()
        return
    if action == "resume-late":
        pair.until(lambda: peer.settled, deadline, "the peer's answer")
    pair.resume(end.rank)
