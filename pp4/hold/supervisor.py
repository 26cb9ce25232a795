"""The supervisor of one HOLD: grants it, times it, owns what runs under it, closes it.

``python -m pp4.hold.supervisor`` reads one request (``open``) from its standard input, answers with
the grant or the refusal on its standard output, and serves the HOLD at a socket until it is over.
It outlives whoever started it; what ends it is a ``close``, the end of its lease, its deadline, or
SIGTERM.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.config import load_settings
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.hold import durable, records
from pp4.hold.cgroup import leaves
from pp4.hold.desk import Desk
from pp4.hold.exclusion import open_exclusion
from pp4.hold.hops import Hops
from pp4.hold.lease import Lease
from pp4.hold.local import open_local
from pp4.hold.local_hold import LocalHold
from pp4.hold.places import own_directory
from pp4.hold.processes import Owned
from pp4.hold.restoring import keep, settle, settle_lost
from pp4.hold.served import Server, listen
from pp4.hold.sweep import moment
from pp4.hold.trees import become_subreaper, descendants
from pp4.receipts.admission import Admission, Command, Refused, Subject, admit
from pp4.receipts.bindings import ClosedHold
from pp4.receipts.digests import installed_source
from pp4.transport.local import LocalTransport
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.holds import Closed, Granted, Open, Parent

RESERVE_S = 60.0
"""What a HOLD keeps of its time for its own end, or a tenth of a short one."""
_ASKED_S = 20.0
_LEAF_S = 2.0
_TICK_S = 0.5
_LOG = "supervisor.log"


def _first(pipes: Pipes) -> Request:
    """Read the one request that a supervisor is started with.

    Raises:
        TimedOutError: it does not come.
        WrongError: the input ends before it.
        RefusedError: it is something else.
    """
    asked = pipes.receive(Deadline.after(SystemClock(), _ASKED_S))
    if not isinstance(asked, Request) or asked.verb != "open":
        found = asked.verb if isinstance(asked, Request) else asked.kind
        raise RefusedError(Refusal(Code.BAD_FRAME, "supervisor", "open", found))
    return asked


def _admission(asked: Open) -> Admission:
    """Judge the evidence once more: it is the host that grants.

    Raises:
        RefusedError: ``SUBJECT_MISMATCH``, this is another source than the coordinator's; or what
            admission refuses.
    """
    here = installed_source().digest
    if asked.source_digest != here:
        raise RefusedError(
            Refusal(
                Code.SUBJECT_MISMATCH,
                "source of pp4 on the receiving host",
                asked.source_digest,
                here,
                source="the coordinator's source",
            )
        )
    try:
        command = Command(asked.command)
    except ValueError as error:
        raise RefusedError(
            Refusal(Code.BAD_FRAME, "supervisor", "a command of pp4", asked.command)
        ) from error
    evidence = [(one.role, one.raw()) for one in asked.evidence]
    judged = admit(command, evidence, _subject(asked, here))
    if isinstance(judged, Refused):
        raise RefusedError(judged.refusal)
    return judged


def _subject(asked: Open, source_digest: str) -> Subject:
    """What the evidence is held against; times are this host's own."""
    known = Subject(
        source_digest=source_digest,
        gpu_models=frozenset(asked.gpu_models),
        drivers=frozenset(asked.drivers),
    )
    if asked.plan is None:
        return known
    first = asked.plan.first_closed
    closed = None if first is None else ClosedHold(first.hold, first.fence, first.restored)
    return replace(
        known,
        gpu_uuids=frozenset(asked.gpus),
        model_sha256=asked.plan.model_sha256,
        shapes=asked.plan.shapes,
        settings=asked.plan.settings,
        first_closed=closed,
        # a child has what is left of its parent, which was judged with all of it
        bound_ns=None if asked.parent else int(asked.bound_s * 1e9),
        now=SystemClock().wall(),
    )


def _granted(hold: LocalHold, asked: Open, state_dir: Path) -> Granted:
    deadline = hold.deadline
    if deadline is None or hold.boot_id is None:
        raise ValueError("a HOLD of GPUs has a deadline and a boot")
    return Granted(
        hold=hold.hold_id,
        fence=hold.fence,
        nonce=hold.nonce,
        exclusion=hold.exclusion,
        boot_id=hold.boot_id,
        gpus=hold.gpus,
        opened_at=moment(hold.opened_at.astimezone(UTC)),
        bound_s=deadline.limit_ns / 1e9,
        ttl_s=asked.ttl_s,
        deadline_boottime_ns=deadline.start_ns + deadline.limit_ns,
        transport=asked.transport,
        rehearsal=asked.rehearsal,
        directory=str(hold.directory.parent),
        public=str(hold.public),
        work=str(hold.directory),
        compiled=str(state_dir / "compiled"),
    )


def _reserve_s(asked: Open) -> float:
    """What is kept of the time for the end, and for what puts the host back.

    Raises:
        RefusedError: ``DEADLINE``, nothing is left for the work.
    """
    end_s = min(RESERVE_S, asked.bound_s / 10)
    restore_s = sum(one.limit_s for one in asked.restore)
    if end_s + restore_s >= asked.bound_s:
        expected = f"a bound above the {end_s + restore_s:g} s that its end may take"
        found = f"{asked.bound_s:g} s"
        raise RefusedError(Refusal(Code.DEADLINE, "the bound of the HOLD", expected, found))
    return end_s + restore_s


def _orphans(hold: str) -> tuple[Owned, ...]:
    """What is left below this process once its guards are stopped; a cgroup is killed as one."""
    for leaf in leaves(hold):
        leaf.kill()
    return descendants(os.getpid())


def _put_back(hold: str, own: Path) -> tuple[str, ...]:
    """Remove what guards that were killed could not, and restore the host."""
    for leaf in leaves(hold):
        leaf.remove(Deadline.after(SystemClock(), _LEAF_S))
    return settle(own)


def _parent(asked: Parent | None) -> records.Parent | None:
    if asked is None:
        return None
    return records.Parent(
        hold=asked.hold, fence=str(asked.fence), hop=asked.hop, origin=asked.origin
    )


@contextlib.contextmanager
def _opened(asked: Open, clock: Clock) -> Iterator[tuple[LocalHold, Granted]]:
    """Hold the GPUs with everything that belongs around them."""
    settings = load_settings()
    state_dir = Path(asked.state_dir) if asked.state_dir else settings.state_dir
    host_dir = Path(asked.host_dir) if asked.host_dir else settings.host_dir
    admission = _admission(asked)
    own_directory(state_dir)
    exclusion = open_exclusion(host_dir, state_dir)
    with open_local(
        admission,
        LocalTransport(asked.transport),
        clock,
        gpus=asked.gpus,
        exclusion=exclusion,
        state_dir=state_dir,
        bound_s=asked.bound_s - _reserve_s(asked),
        rehearsal=asked.rehearsal,
        asked_by=asked.coordinator,
        parent=_parent(asked.parent),
    ) as hold:
        if not isinstance(hold, LocalHold):
            raise TypeError("a HOLD of this machine")
        own = hold.directory.parent
        # nothing but this HOLD has ever been started here
        hold.orphans = lambda: _orphans(hold.hold_id)
        hold.on_end = lambda: _put_back(hold.hold_id, own)
        for text in settle_lost(own.parent, exclusion, asked.gpus if asked.parent is None else ()):
            hold.journal.add("restore", "end", found=text)
        keep(own, asked.restore)
        yield hold, _granted(hold, asked, state_dir)


def _detach(directory: Path) -> None:
    """Let go of the session that started this process; what is said from now on is kept."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (null, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)


def _serve(asked: Open, sequence: int, clock: Clock, pipes: Pipes) -> None:
    """Grant, serve and close; the refusal of a HOLD that cannot be granted is raised.

    Raises:
        Pp4Error: nothing was granted.
    """
    said = False
    server: Server | None = None
    ending: Pp4Error | None = None
    try:
        with _opened(asked, clock) as (hold, granted):
            hops = Hops(hold, granted, asked)
            hold.elsewhere = hops.settle
            desk = Desk(hold, granted, Lease(clock, asked.ttl_s), hops)
            signal.signal(signal.SIGTERM, lambda *_: desk.end("cancelled"))
            server = Server(listen(hold.directory.parent), desk, min(_TICK_S, asked.ttl_s / 20))
            desk.quiesce(asked.quiesce)
            pipes.send(Reply(sequence=sequence, facts=granted.model_dump(mode="json")))
            said = True
            _detach(hold.directory.parent)
            hold.close(server.serve())
    except Pp4Error as error:
        if not said:
            raise
        ending = error
    if server is not None:
        # only now are the locks free: whoever reads the answer may open the next HOLD
        server.part(_last_word(granted, ending))


def _last_word(granted: Granted, ending: Pp4Error | None) -> Reply:
    if ending is not None:
        return Reply(sequence=0, refusal=ending.refusal.as_dict())
    tombstone = durable.read_object(Path(granted.public) / "closed.json")
    return Reply(sequence=0, facts=Closed(tombstone=tombstone or {}).model_dump(mode="json"))


class _Stopped(BaseException):
    """SIGTERM before the HOLD is served: whatever was begun is taken back on the way out."""


def _stop(*_: object) -> None:
    # a second one must not cut the way out in two
    signal.signal(signal.SIGTERM, lambda *_: None)
    raise _Stopped


def main() -> int:
    """Open and serve one HOLD; -> exit code."""
    # what started this process may have ignored or blocked them, and that is inherited
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    signal.signal(signal.SIGTERM, _stop)
    for number in (signal.SIGHUP, signal.SIGINT):
        # a handler, since what is ignored stays ignored in every process that is started
        signal.signal(number, lambda *_: None)
    sequence, pipes = 0, Pipes(0, 1)
    try:
        request = _first(pipes)
        sequence = request.sequence
        become_subreaper()
        _serve(read(Open, request.arguments), sequence, SystemClock(), pipes)
    except Pp4Error as error:
        with contextlib.suppress(Pp4Error):
            # whoever asked may be gone: that is what went wrong then
            pipes.send(Reply(sequence=sequence, refusal=error.refusal.as_dict()))
        return int(error.exit)
    except _Stopped:
        refusal = Refusal(Code.INTERRUPTED, "supervisor", "to grant a HOLD", "SIGTERM")
        pipes.send(Reply(sequence=sequence, refusal=refusal.as_dict()))
        return int(Exit.TERMINATED)
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main())
