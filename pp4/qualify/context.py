"""What the arms of one run share: settings, the HOLD, the session, facts seen before."""

from __future__ import annotations

from dataclasses import dataclass, field

from pp4.hold.rehearsal import OpenHold
from pp4.qualify.session import CARELESS, Session
from pp4.qualify.settings import Settings
from pp4.wire.facts import Case, Compiled, Library, Primed, Waits


@dataclass
class Record:
    """Facts that more than one arm or the receipt needs."""

    libraries: tuple[Library, ...] = ()
    primed: tuple[Primed, ...] = ()
    solo: tuple[Primed, ...] = ()
    compiled_controls: dict[str, Compiled] = field(default_factory=dict)
    definition: str = ""
    versions: dict[str, str] = field(default_factory=dict)


class Context:
    """Hands arms a session in the state that they ask for.

    Args:
        hold: the open HOLD.
        settings: numbers of the run.
    """

    def __init__(self, hold: OpenHold, settings: Settings) -> None:
        self.hold, self.settings = hold, settings
        self.record = Record()
        self._owners = 0
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The session with the product's owner; starts one where none runs."""
        if self._session is None:
            self._owners += 1
            self._session = Session(self.hold, f"owner-{self._owners}")
        return self._session

    def careless(self) -> Session:
        """A session with an owner that breaks the release rule; the caller closes it."""
        self._owners += 1
        return Session(self.hold, f"careless-owner-{self._owners}", CARELESS)

    def fresh(
        self, waits: tuple[Waits, Waits] | None = None, session: Session | None = None
    ) -> Session:
        """A new pair with a new rendezvous, primed and sealed."""
        chosen = session or self.session
        chosen.start()
        patient = self.settings.patient
        chosen.prime(self.settings.shape, recorded=True)
        chosen.link(self.settings.rows, waits or (patient, patient))
        return chosen

    def hasty(self, session: Session | None = None) -> Session:
        """A new pair whose waits run out soon."""
        return self.fresh((self.settings.hasty, self.settings.hasty), session)

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
