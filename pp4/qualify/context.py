"""What the arms of one run share: settings, the HOLD, the session, facts seen before."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.hold.open import OpenHold
from pp4.qualify import judge
from pp4.qualify.judge.whole_worker import Identity, WholeRun
from pp4.qualify.session import CARELESS, Session
from pp4.qualify.settings import Settings
from pp4.qualify.whole_settings import REHEARSED, Whole
from pp4.receipts.bindings import Subject, unlike
from pp4.receipts.runs import WholeWorker
from pp4.wire.facts import (
    Case,
    Compiled,
    Expectation,
    Library,
    Primed,
    Shape,
    Source,
    Waits,
    read,
)
from pp4.wire.gpus import Gpu, GpuReport, find

_FOREIGN_S = 60.0
_AT_REST_S = 5.0
_LOOK_S = 0.1


@dataclass
class Record:
    """Facts that more than one arm or the receipt needs."""

    libraries: tuple[Library, ...] = ()
    primed: tuple[Primed, ...] = ()
    solo: tuple[Primed, ...] = ()
    compiled_controls: dict[str, Compiled] = field(default_factory=dict)
    definition: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    baseline: tuple[Gpu, ...] = ()
    archive: Identity | None = None
    worker: Identity | None = None
    whole: WholeRun | None = None


class Context:
    """Hands arms a session in the state that they ask for.

    Args:
        hold: the open HOLD.
        settings: numbers of the run.
        compiled: where binaries are kept; in the HOLD, and gone with it, where none is given.
        whole: numbers of whole-worker runs.
    """

    def __init__(
        self,
        hold: OpenHold,
        settings: Settings,
        compiled: Path | None = None,
        whole: Whole = REHEARSED,
    ) -> None:
        self.hold, self.settings, self.whole = hold, settings, whole
        self.compiled = compiled or hold.directory / "compiled"
        # a worker loads nothing out of a directory that others may write, whatever the umask is
        self.compiled.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = Record()
        self._started = 0
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The session with the product's owner; starts one where none runs."""
        if self._session is None:
            label = self.label("owner")
            self._session = Session(self.hold, label, self.compiled, solo=self.settings.solo)
        return self._session

    def label(self, kind: str) -> str:
        """A name for a process that is about to start; no other of this run has it."""
        self._started += 1
        return f"{kind}-{self._started}"

    def careless(self) -> Session:
        """A session with an owner that breaks the release rule; the caller closes it."""
        return Session(self.hold, self.label("careless-owner"), self.compiled, CARELESS)

    def fresh(
        self,
        waits: Waits | None = None,
        session: Session | None = None,
        *,
        controls: tuple[str, ...] = (),
        shape: Shape | None = None,
    ) -> Session:
        """A pair with a new rendezvous, primed and sealed; its processes may have run before.

        A pair on which anything went wrong is torn down and replaced.

        Args:
            waits: bounds on both ranks; patient ones where none are given.
            session: whose pair it becomes; the product's where none is given.
            controls: mutants that are loaded as well.
            shape: what is primed; that of the settings where none is given.
        """
        chosen, bounds = session or self.session, waits or self.settings.patient
        wanted = shape or self.settings.shape
        if not chosen.ready(wanted, controls):
            chosen.start()
            chosen.prime(wanted, recorded=True, controls=controls)
        chosen.link(self.settings.rows, (bounds, bounds))
        return chosen

    def hasty(self, session: Session | None = None, *, controls: tuple[str, ...] = ()) -> Session:
        """A new pair whose waits run out soon."""
        return self.fresh(self.settings.hasty, session, controls=controls)

    def expect(self, case: Case, *, solo: bool = True) -> tuple[Expectation, ...]:
        """What a case must give: by the run's reference and, where asked, by the solo kernel."""
        more: tuple[Source, ...] = ("solo",) if solo and not self.settings.solo else ()
        return self.session.expect(case, self.settings.reference, *more)

    def unlike(
        self,
        *,
        libraries: Mapping[str, str] | None = None,
        kernels: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """In what this run differs from the receipts that it has to match.

        Args:
            libraries: what is mapped, by name.
            kernels: what the gates have compiled; a worker's are of another shape, and gate 6
                compares those.
        """
        admission = self.hold.admission
        here = Subject(admission.source_digest, libraries=libraries, kernels=kernels)
        return tuple(
            f"{name}: {found}"
            for one in admission.receipts.values()
            for name in ("libraries", "kernels")
            if not (name == "kernels" and isinstance(one, WholeWorker))
            for _, found in unlike(one, here, (name,))
        )

    def at_rest(self) -> tuple[tuple[Gpu, ...], bool]:
        """The GPUs once they are back at their baseline; -> (how they are, whether they are).

        A driver takes memory back a moment after a process has ended.
        """
        # real time, whatever clock the HOLD has: a driver is waited for
        deadline = Deadline.after(SystemClock(), _AT_REST_S)
        while True:
            found = self.gpus()
            above = any(judge.above(found, self.record.baseline))
            if not above or deadline.expired():
                return found, not above
            time.sleep(_LOOK_S)

    def gpus(self) -> tuple[Gpu, ...]:
        """The HOLD's GPUs as the driver sees them now, rank 0's first."""
        report = read(GpuReport, self.session.ask("gpus"))
        return tuple(find(report, uuid) for uuid in self.hold.gpus)

    @contextmanager
    def foreign(self) -> Iterator[None]:
        """A process that belongs to no pair and takes memory of the first GPU."""
        channel = self.hold.start(
            "pp4.worker.foreign", [self.hold.gpus[0]], environment={}, label="foreign"
        )
        try:
            channel.receive(Deadline.after(self.hold.clock, _FOREIGN_S))
            yield
        finally:
            self.hold.stop(channel)

    def restart(self) -> None:
        """Leave a session that may be in any state; the next arm gets a new owner."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def case(self, batch: int, n_out: int, number: int, **more: object) -> Case:
        """Inputs of an arm; the number keeps the seeds of arms apart."""
        given = {
            "batch": batch,
            "n_out": n_out,
            "seed": self.settings.seed + number,
            "modes": (1,) * batch,
            **more,
        }
        return Case.model_validate(given)
