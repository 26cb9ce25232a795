"""An exhaustive model of the exchange between two ranks, in plain Python.

What a state holds and why the search may leave interleavings out:

* A store into the peer's memory is in flight from its issue on and may land at any later time.
  Landing touches nothing but the receiver's memory, which only the receiver reads, so it is moved
  up to the very load that could tell the difference: each load branches over what may have landed.
* A release lands with every store that its thread is ordered behind: its own warp's, and those
  of the other warp that a block barrier put before it.  A plain store may land alone.  Stores to
  one place land in the order of issue.  Releases of one thread land in order.
* A store is issued as early as the barriers permit, since it may land late anyway.
* A poll that finds nothing changes nothing and is no move, so the graph has no cycles.
* Time is left out.  In a quiet world a wait runs out only when nothing else can end it, in a rough
  one at any moment: every real budget lies between the two.
* Replays follow without waiting for the owner, which allows more than a real launch does.
* The candidates of a row are named by the row's serial number; tickets and draws are functions of
  the union and need no state.  One batch row stands for all: rows share no word but the errors.
* The word of an error and the summary word in front of it land together: the reader acts on the
  summary, which is released after the code.
"""

from __future__ import annotations

from pp4.qualify.host_model.explore import Exploration, Violation, explore
from pp4.qualify.host_model.protocol import (
    CONTRACT,
    ECHOING,
    ONE_SLOT,
    PLANTED,
    Property,
    Protocol,
)

__all__ = [
    "CONTRACT",
    "ECHOING",
    "ONE_SLOT",
    "PLANTED",
    "Exploration",
    "Property",
    "Protocol",
    "Violation",
    "explore",
]
