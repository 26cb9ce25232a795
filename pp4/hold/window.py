"""A HOLD on a receiving host as its coordinator has it: opened, kept alive, worked in, closed.

The host grants, times, kills and attests; here is only asked.  When the host has not answered for
half a lease, nothing more is asked for: it may have given the HOLD away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from pp4.clock import Clock, Deadline
from pp4.errors import (
    Code,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
)
from pp4.hold.delivery import (
    CLOSE_AGAIN_S,
    CLOSE_S,
    SYMPTOMS,
    Program,
    end_of,
    near_end,
    require_own_end,
)
from pp4.hold.hop_books import HOP
from pp4.hold.hop_ends import FAR_S
from pp4.hold.interruption import ended
from pp4.hold.lease import Contact
from pp4.hold.line import Line, raised, there
from pp4.transport.interface import Host
from pp4.wire.facts import read, refusal_of
from pp4.wire.holds import (
    QUIESCE,
    Beat,
    Close,
    Granted,
    Named,
    Open,
    Start,
    Watch,
    Watched,
    Why,
)
from pp4.wire.hops import Brought, FarLogin, FarStep, Hop, Hopped, Place

OPEN_S = 60.0 + FAR_S
"""How long a host may take to grant: the sweep of older HOLDs included, and of their hops."""
_ASK_S = 30.0
_POLL_S = 0.2
_SCREEN_S = 0.5


class Watcher(Protocol):
    """Who is told how a HOLD is; calls come from more than one thread."""

    def told(self, item: dict[str, Any]) -> None:
        """A step told something."""

    def alive(self, lease_s: float, deadline_s: float, last_line: str) -> None:
        """Seconds that are left, and the last line of the step that runs."""


class Window:
    """An open HOLD on a host; :func:`open_window` makes it.

    Attributes:
        granted: what the host granted.
        tombstone: the host's word on its end, None while it is open.

    Args:
        host: where it is.
        program: how modules are started there.
        asked: what it was asked for.
        granted: its grant.
        line: the line that the grant came over.
        clock: the coordinator's.
        watcher: who is told.
        option: what commands need that are to find this host again; empty on it itself.
    """

    def __init__(
        self,
        host: Host,
        program: Program,
        asked: Open,
        granted: Granted,
        line: Line,
        clock: Clock,
        watcher: Watcher,
        option: str,
    ) -> None:
        self._recover = f"pp4 hold recover {granted.hold}{option}"
        self.granted, self._clock, self._watcher, self._host = granted, clock, watcher, host
        self.tombstone: dict[str, Any] | None = None
        self._contact = Contact(clock, granted.ttl_s)
        self._line = line
        near = near_end(program, granted.hold, asked.state_dir, asked.host_dir)
        self._line.redirect(near)
        # half a lease is all that there is for both attempts
        self._line.patient(granted.ttl_s / 4)
        self._quiesces = bool(asked.quiesce)
        self._beat_s = granted.ttl_s / 6
        self._close_s = CLOSE_S + sum(one.limit_s for one in asked.restore)
        self._far_s = 0.0
        self._deadline = Deadline.after(clock, granted.bound_s)
        self._last_line = ""
        self._stop = threading.Event()
        self._refused: Pp4Error | None = None
        self._heard = threading.Event()
        self._beaten: Beat | None = None
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._screen = threading.Thread(target=self._show, name="heartbeats shown", daemon=True)
        for thread in (self._heart, self._screen):
            thread.start()

    def _named(self) -> dict[str, Any]:
        return {"hold": self.granted.hold, "fence": self.granted.fence}

    # -- the lease --------------------------------------------------------------------------

    def _beat(self) -> None:
        """Tell the host that somebody is here, until the end; runs in a thread of its own."""
        while not self._stop.wait(self._beat_s) and not self._contact.lost():
            self._beat_once()

    def _beat_once(self) -> None:
        sent = self._clock.boottime_ns()
        left = Deadline(self._clock, sent, self._contact.remaining_ns())
        try:
            facts = self._line.ask("beat", Named(**self._named()).model_dump(), left)
            beat = read(Beat, facts)
        except Pp4Error as error:
            # what it means is decided by the time that has passed; the reason is kept for people
            self._refused = error
            return
        self._contact.answered(sent)
        self._beaten = beat
        self._heard.set()

    def _show(self) -> None:
        """Tell the watcher of heartbeats, in a thread of its own: a screen may stand still."""
        while self._heard.wait() and not self._stop.is_set():
            self._heard.clear()
            if (beat := self._beaten) is not None:
                self._watcher.alive(beat.lease_ns / 1e9, beat.deadline_ns / 1e9, self._last_line)

    def require(self) -> None:
        """Go on only while the HOLD is ours for certain.

        Raises:
            TimedOutError: ``LEASE_LOST``.
        """
        if self._contact.lost():
            why = "" if self._refused is None else f"; {self._refused.refusal.found}"
            raise TimedOutError(
                Refusal(
                    Code.LEASE_LOST,
                    f"HOLD {self.granted.hold}",
                    f"a heartbeat answered within {self.granted.ttl_s / 2:g} s",
                    f"none{why}",
                    left="whatever runs under it, until the host ends it",
                    next=self._recover,
                )
            )

    # -- work -------------------------------------------------------------------------------

    def run(self, label: str, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run one step on the host and wait for its answer; -> its facts.

        Args:
            label: names the step; used once in a HOLD.
            module: a module of pp4.
            arguments: what it is told.

        Raises:
            Pp4Error: its refusal; ``LEASE_LOST``, ``DEADLINE``, ``RANK_DIED``.
        """
        start = Start(**self._named(), label=label, module=module, arguments=arguments)
        self._ask("start", start.model_dump(mode="json"))
        return self._answer_of(label)

    def hop(
        self, name: str, login: FarLogin, step: FarStep, files: Sequence[Brought] = ()
    ) -> Hopped:
        """Run one step on a further host that the receiving host reaches, and wait for its answer.

        Args:
            name: names the hop; used once in a HOLD.
            login: the further host, as the receiving host reaches it.
            step: what runs there.
            files: files of the receiving host that are brought there first.

        Raises:
            Pp4Error: as :meth:`run`; ``HOST_KEY``, ``UNREACHABLE``, ``AUTHENTICATION``: the further
                host is not the one that was meant, or not reached.
        """
        asked = Hop(
            **self._named(), label=f"{HOP}{name}", login=login, step=step, files=tuple(files)
        )
        # however it ends, also unanswered: all of them are proven over at once
        self._far_s = FAR_S
        self._ask("hop", asked.model_dump(mode="json"))
        return read(Hopped, self._answer_of(asked.label))

    def place(self, part: str, target: str, sha256: str, size: int) -> None:
        """Have a file that was uploaded checked and given its name in the working directory.

        Args:
            part: its temporary name there.
            target: its relative name there.
            sha256: what its bytes have to have.
            size: how many there have to be.

        Raises:
            RefusedError: ``EXISTS``, ``DIGEST_MISMATCH``, ``BAD_INPUT``: a name that leaves the
                directory; ``STALE_FENCE``.
        """
        asked = Place(**self._named(), part=part, target=target, sha256=sha256, size=size)
        self._ask("place", asked.model_dump(mode="json"))

    def quieten(self) -> None:
        """Wait until the host has run the quiesce commands that it was opened with, if any.

        Nothing else starts before.

        Raises:
            Pp4Error: ``NOT_IDLE``, one failed; as :meth:`run`.
        """
        if self._quiesces:
            self._answer_of(QUIESCE)

    def _answer_of(self, label: str) -> dict[str, Any]:
        """Pass on what a step tells until it answers; -> its facts."""
        taken = 0
        while True:
            asked = Watch(**self._named(), label=label, after=taken)
            seen = read(Watched, self._ask("watch", asked.model_dump()))
            taken += len(seen.items)
            self._last_line = seen.last_line
            for item in seen.items:
                self._watcher.told(item)
            if seen.ended:
                break
            self._deadline.require(f"step {label}", left="nothing: the host ends it")
            if not seen.items:
                time.sleep(_POLL_S)
        if seen.facts is None:
            refusal = there(refusal_of(seen.refusal), self._host)
            # something was started by then: what could not be written down is not "refused"
            raise UncleanError(refusal) if refusal.code is Code.UNWRITABLE else raised(refusal)
        return seen.facts

    def _ask(self, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.require()
        limit = min(_ASK_S, self._contact.remaining_ns() / 1e9)
        return self._line.ask(verb, arguments, Deadline.after(self._clock, limit))

    # -- the end ----------------------------------------------------------------------------

    def close(self, why: Why, failed: Pp4Error | None = None) -> dict[str, Any]:
        """Close this HOLD and no other; -> its tombstone.  May be asked for again.

        Args:
            why: what its tombstone is to say.
            failed: what went wrong before, to be said too where it cannot be closed.

        Raises:
            UncleanError: it could not be closed, or not be proven that it is: what the host says,
                or that it says nothing.
            RefusedError: ``HOST_KEY``, whoever answers is not the host that granted it.
        """
        self._stop.set()
        self._heard.set()
        asked = Close(**self._named(), why=why)
        # a host that is not heard of any more closes it by itself, and is asked no longer than that
        close_s = self._close_s + self._far_s
        limit_s = 2 * self.granted.ttl_s if self._contact.lost() else close_s
        try:
            deadline = Deadline.after(self._clock, limit_s)
            # over a new connection now and then: of one that died silently nobody hears
            self._line.patient(CLOSE_AGAIN_S)
            tombstone = end_of(self._line, asked, deadline)
        except Pp4Error as error:
            raise self._not_closed(error, failed) from error
        finally:
            self._heart.join(self.granted.ttl_s)
            self._screen.join(_SCREEN_S)
            self._line.drop()
        return tombstone

    def _not_closed(self, error: Pp4Error, failed: Pp4Error | None) -> Pp4Error:
        found, first = error.refusal, ""
        if failed is not None and failed.refusal.code not in SYMPTOMS:
            first = f"; what went wrong first: {failed}"
        if self._line.ended is not None:
            # both keys as they are: what else there is to say is nothing beside it
            left = f"HOLD {self.granted.hold}, until its own host ends it with its lease"
            return RefusedError(replace(self._line.ended.refusal, left=left))
        return UncleanError(
            Refusal(
                found.code,
                f"the end of HOLD {self.granted.hold}",
                "a tombstone of the receiving host",
                f"{found.found}{first}",
                left=f"unproven: whatever HOLD {self.granted.hold}, fence {self.granted.fence}, "
                f"had started ({found.left})",
                next=self._recover,
            )
        )


@contextlib.contextmanager
def open_window(
    host: Host,
    program: Program,
    asked: Open,
    clock: Clock,
    watcher: Watcher,
    option: str = " --hold FILE",
) -> Iterator[Window]:
    """Ask a host for a HOLD, keep it while the block runs, and close it.

    Args:
        host: the receiving host.
        program: how modules are started there.
        asked: what is asked for.
        clock: the coordinator's.
        watcher: who is told how it goes.
        option: what commands need that are to find this host again; empty on it itself.

    Raises:
        Pp4Error: the refusal of the host; nothing was granted then.
        UncleanError: the HOLD could not be proven closed.
    """
    line = Line(host, program("pp4.hold.relay", "open"))
    # a grant that fails late is taken back before it is answered
    limit_s = OPEN_S + sum(one.limit_s for one in asked.restore)
    why: Why = "cancelled"
    failed: Pp4Error | None = None
    deadline = Deadline.after(clock, limit_s)
    try:
        # a signal in here leaves at most a HOLD that ends with its lease, since nobody keeps it
        granted = read(Granted, line.once("open", asked.model_dump(mode="json"), deadline))
        window = Window(host, program, asked, granted, line, clock, watcher, option)
    except BaseException:
        line.drop()
        raise
    try:
        _require_ours(granted, asked)
        yield window
        why = "done"
    except Exception as error:
        why = "failed"
        failed = error if isinstance(error, Pp4Error) else None
        raise
    finally:
        ended(partial(_closed, window, why, failed), again=why != "cancelled")
        if failed is not None:
            require_own_end(window.granted.hold, window.tombstone, failed)


def _closed(window: Window, why: Why, failed: Pp4Error | None) -> None:
    window.tombstone = window.close(why, failed)


def _require_ours(granted: Granted, asked: Open) -> None:
    """Refuse a grant of something else than was asked for."""
    same: Sequence[tuple[str, object, object]] = (
        ("gpus", asked.gpus, granted.gpus),
        ("rehearsal", asked.rehearsal, granted.rehearsal),
        ("ttl_s", asked.ttl_s, granted.ttl_s),
    )
    for name, wanted, found in same:
        if wanted != found:
            raise RefusedError(
                Refusal(Code.BAD_FRAME, f"the grant: {name}", str(wanted), str(found))
            )
