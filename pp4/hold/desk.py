"""The rules of a supervisor: who may ask for what, in which state; no sockets here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, TimedOutError
from pp4.hold import quiesce
from pp4.hold.hop_books import HOP
from pp4.hold.hop_ends import MODULE
from pp4.hold.hops import Hops
from pp4.hold.lease import Lease
from pp4.hold.local_hold import LocalHold
from pp4.hold.placing import place
from pp4.hold.quiesce import Commands
from pp4.hold.steps import Step
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.holds import QUIESCE, Beat, Close, Granted, HostCommand, Named, Start, Watch
from pp4.wire.hops import Hop, Place

N = TypeVar("N", bound=Named)
_KEPT = 256
_ONCE = frozenset({"start", "hop", "place"})


class Desk:
    """Answers the requests about one HOLD.

    Args:
        hold: the open HOLD.
        granted: what its coordinator was told.
        lease: its lease.
        hops: its steps on further hosts; None where there can be none.

    Attributes:
        closing: why the HOLD is to be closed, None while it is open.
        steps: steps by label.
    """

    def __init__(
        self, hold: LocalHold, granted: Granted, lease: Lease, hops: Hops | None = None
    ) -> None:
        self._hold, self._granted, self._lease = hold, granted, lease
        self._hops = hops
        self.closing: str | None = None
        self.steps: dict[str, Step] = {}
        self._answered: OrderedDict[str, Reply] = OrderedDict()
        self._verbs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "beat": self._beat,
            "start": self._start,
            "watch": self._watch,
            "hop": self._hop,
            "place": self._place,
        }

    def quiesce(self, commands: Sequence[HostCommand]) -> None:
        """Begin to make the GPUs free; until that is done, no other step starts.

        Raises:
            Pp4Error: it cannot be begun.
        """
        if commands:
            told = Commands(commands=tuple(commands)).model_dump(mode="json")
            asked = Start(
                hold=self._granted.hold,
                fence=self._granted.fence,
                label=QUIESCE,
                module=quiesce.MODULE,
                arguments=told,
            )
            self.steps[QUIESCE] = Step(self._hold, self._granted, asked, whole=True)

    def answer(self, request: Request) -> Reply | None:
        """Answer one request; None where the answer has to wait for the end of the HOLD."""
        try:
            if request.verb == "close":
                asked = self._ours(Close, request.arguments)
                self.end(asked.why)
                return None
            verb = self._verbs.get(request.verb)
            if verb is None:
                expected = f"one of {sorted([*self._verbs, 'close'])}"
                raise RefusedError(Refusal(Code.BAD_FRAME, "supervisor", expected, request.verb))
            return Reply(sequence=request.sequence, facts=verb(request.arguments))
        except Pp4Error as error:
            return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())

    def answer_once(self, request: Request) -> Reply | None:
        """As :meth:`answer`, and what was begun once is answered as often as it is asked for."""
        if request.verb not in _ONCE:
            return self.answer(request)
        # whole, so that another client's request of the same number is another request
        asked = request.model_dump_json()
        known = self._answered.get(asked)
        if known is None:
            known = self.answer(request)
            if known is not None:
                self._answered[asked] = known
            while len(self._answered) > _KEPT:
                self._answered.popitem(last=False)
        return known

    def end(self, why: str) -> None:
        """Have the HOLD closed, unless it is being closed already."""
        self.closing = self.closing or why

    def look(self) -> None:
        """Take what steps have said, and see whether the HOLD is over."""
        for step in self.steps.values():
            step.pump()
        if self._hops is not None:
            self._hops.look()
        if self._lease.expired():
            self.end("abandoned")
        deadline = self._hold.deadline
        if deadline is not None and deadline.expired():
            self.end("deadline")

    def _ours(self, model: type[N], arguments: dict[str, Any]) -> N:
        """Read the arguments of a request, and refuse one of another HOLD or another fence.

        Raises:
            RefusedError: ``STALE_FENCE``.
        """
        asked = read(model, arguments)
        here = (self._granted.hold, self._granted.fence)
        if (asked.hold, asked.fence) != here:
            expected = f"HOLD {here[0]}, fence {here[1]}"
            found = f"HOLD {asked.hold}, fence {asked.fence}"
            raise RefusedError(Refusal(Code.STALE_FENCE, "supervisor", expected, found))
        return asked

    def _beat(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._ours(Named, arguments)
        self._require_open()
        deadline = self._hold.deadline
        if not self._lease.renew():
            raise self._lost()
        return Beat(
            lease_ns=self._lease.remaining_ns(),
            deadline_ns=0 if deadline is None else deadline.remaining_ns(),
            steps=tuple(name for name, step in self.steps.items() if not step.ended),
        ).model_dump(mode="json")

    def _start(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = self._ours(Start, arguments)
        self._require_open()
        self._require_quiet()
        self._require_new(asked.label)
        if asked.module == MODULE or asked.label.startswith(HOP):
            # it would be in no books, and its far end nobody's
            where, found = f"step {asked.label}", f"a start of {asked.module}"
            raise RefusedError(Refusal(Code.BAD_FRAME, where, "the verb hop for a hop", found))
        self.steps[asked.label] = Step(self._hold, self._granted, asked)
        return {"pid": self.steps[asked.label].channel.pid}

    def _require_new(self, label: str) -> None:
        if label in self.steps:
            where = f"step {label}"
            raise RefusedError(Refusal(Code.EXISTS, where, "a new label", "one that was used"))

    def _hop(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = self._ours(Hop, arguments)
        self._require_open()
        self._require_quiet()
        self._require_new(asked.label)
        if self._hops is None:
            raise RefusedError(Refusal(Code.BAD_FRAME, "supervisor", "a HOLD with hops", "none"))
        step = self.steps[asked.label] = self._hops.start(asked)
        return {"pid": step.channel.pid}

    def _place(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = self._ours(Place, arguments)
        self._require_open()
        place(Path(self._granted.work), asked)
        return {}

    def _watch(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = self._ours(Watch, arguments)
        step = self.steps.get(asked.label)
        if step is None:
            found = asked.label
            expected = f"one of {sorted(self.steps)}"
            raise RefusedError(Refusal(Code.UNKNOWN_HOLD, "a step of the HOLD", expected, found))
        step.pump()
        return step.watched(asked.after).model_dump(mode="json")

    def _require_open(self) -> None:
        if self._lease.expired():
            raise self._lost()
        if self.closing is not None:
            where = f"HOLD {self._granted.hold}"
            found = f"one that is closing ({self.closing})"
            raise RefusedError(Refusal(Code.STALE_FENCE, where, "an open HOLD", found))

    def _require_quiet(self) -> None:
        step = self.steps.get(QUIESCE)
        if step is not None and not step.done:
            where, expected = f"HOLD {self._granted.hold}", "one whose quiesce commands are done"
            found = "one where they have failed" if step.ended else "one where they still run"
            raise RefusedError(Refusal(Code.NOT_IDLE, where, expected, found))

    def _lost(self) -> TimedOutError:
        return TimedOutError(
            Refusal(
                Code.LEASE_LOST,
                f"HOLD {self._granted.hold}",
                f"a heartbeat within {self._granted.ttl_s:g} s",
                "none in that time",
                next=f"pp4 hold recover {self._granted.hold}",
            )
        )
