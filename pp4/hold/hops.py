"""Hops as the near host owns them: numbered, written down, started, and proven over at the end.

That a near process is dead says nothing of the far one.  So a HOLD is not over before each of its
hops has the far host's own word, which a program of its own is sent for: ``pp4.hold.hop close``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from pp4.errors import Pp4Error
from pp4.hold.children import origin_of
from pp4.hold.exclusion import Exclusion
from pp4.hold.hop_books import HopBook, read_hop, write_book
from pp4.hold.hop_ends import MODULE, settle_hops
from pp4.hold.local_hold import LocalHold
from pp4.hold.steps import Step
from pp4.wire.holds import Granted, Open, Parent, Start
from pp4.wire.hops import Hop, Order, Recorded


class Hops:
    """The hops of one open HOLD.

    Args:
        hold: whose they are.
        granted: what its coordinator was told.
        asked: what it was asked for; a child is asked for the same.
    """

    def __init__(self, hold: LocalHold, granted: Granted, asked: Open) -> None:
        self._hold, self._granted, self._asked = hold, granted, asked
        self._directory = Path(granted.directory)
        self._last = 0
        self._started: dict[int, Step] = {}

    def start(self, asked: Hop) -> Step:
        """Write a hop down and start its near step.

        Raises:
            Pp4Error: it cannot be written down or started; nothing was contacted then.
        """
        self._last += 1
        recorded = Recorded(
            hop=self._last, label=asked.label, login=asked.login, asked=self._child(asked)
        )
        self._hold.journal.add(asked.label, "hop", detail={"number": self._last})
        write_book(self._directory, self._last, recorded)
        order = Order(
            recorded=recorded,
            evidence=self._asked.evidence,
            files=asked.files,
            step=asked.step,
        )
        start = Start(
            hold=asked.hold,
            fence=asked.fence,
            label=asked.label,
            module=MODULE,
            arguments=order.model_dump(mode="json"),
        )
        step = self._started[self._last] = Step(self._hold, self._granted, start)
        return step

    def _child(self, asked: Hop) -> Open:
        """What the far host is asked for, but for the time that is left then."""
        parent = Parent(
            hold=self._granted.hold,
            fence=self._granted.fence,
            hop=self._last,
            origin=self._origin(),
        )
        changes = {
            "evidence": (),
            "transport": "ssh",
            "state_dir": asked.login.state_dir,
            "host_dir": asked.login.host_dir,
            "quiesce": (),
            "restore": (),
            "parent": parent,
        }
        return self._asked.model_copy(update=changes)

    def _origin(self) -> str:
        """Where the fence of this HOLD was granted; a child of a child has that of them all."""
        if self._asked.parent is not None:
            return self._asked.parent.origin
        directory = Path(self._granted.public).parents[1]
        here = Exclusion(directory, self._granted.exclusion, self._granted.boot_id)
        return origin_of(here)

    def look(self) -> None:
        """Write into the journal how hops have ended since."""
        for number in [number for number, step in self._started.items() if step.ended]:
            del self._started[number]
            self._say(read_hop(self._directory, number))

    def settle(self) -> tuple[str, ...]:
        """Prove every hop over, once the near steps are dead; -> a text for each that is not."""
        left = settle_hops(self._directory, self._granted.hold)
        for number in list(self._started):
            del self._started[number]
            # the HOLD ends also where its journal is torn
            with contextlib.suppress(Pp4Error):
                self._say(read_hop(self._directory, number))
        return left

    def _say(self, book: HopBook | None) -> None:
        if book is not None:
            self._hold.journal.add(book.recorded.label, "hop-end", found=book.found)
