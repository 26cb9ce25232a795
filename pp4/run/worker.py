"""A worker under the grant of a HOLD: started, asked to serve, asked how it fared, torn down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pp4.clock import Deadline, SystemClock
from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Code, Refusal, WrongError
from pp4.hold.open import OpenHold
from pp4.hold.processes import boot_id
from pp4.run.asking import Asker
from pp4.wire.facts import read
from pp4.wire.frozen import RANKS, Served, Settled, TornDown
from pp4.wire.holds import Granted
from pp4.wire.serving import Serve

SERVER: Final = "pp4.worker.serve"
ASK_S: Final = 60.0
_GRANT_S: Final = 600.0
"""How long a rehearsal, whose HOLD has no deadline, lets a worker live."""


class Server:
    """The product's own server as a program of a HOLD; it ends with the HOLD's grant.

    Args:
        hold: under which it runs.
        label: of its process; its ranks' are made from it.
        settings: what it is started with.
        start_s: seconds until it serves.
        environment: of it alone; the only way to set a switch.
    """

    def __init__(
        self,
        hold: OpenHold,
        label: str,
        settings: Serve,
        start_s: float,
        environment: Mapping[str, str],
    ) -> None:
        kernels = ON_GPUS if hold.gpus else INTERPRETED
        self._hold, self._label, self._start_s = hold, label, start_s
        self.channel = hold.start(
            SERVER,
            [settings.model_dump_json()],
            environment={**kernels, **environment},
            label=label,
        )
        self._asker = Asker(hold, self.channel)
        self._ranks: tuple[int, ...] = ()

    def serve(self) -> Served:
        """Hand the grant over and wait until it serves; its ranks are in the books long before.

        Raises:
            WrongError: ``SUBJECT_MISMATCH``, ranks serve that are in no books.
        """
        granted = {"granted": grant_of(self._hold).model_dump(mode="json")}
        served = read(Served, self._asker.ask("serve", granted, self._start_s, self._own))
        if served.pids != self._ranks:
            found = f"ranks {served.pids}"
            expected = f"those that it has told of: {self._ranks or 'none'}"
            raise WrongError(Refusal(Code.SUBJECT_MISMATCH, SERVER, expected, found))
        return served

    def _own(self, event: str) -> None:
        """Enter ranks in the books as soon as they are told of: they load and compile for long."""
        told = RANKS.fullmatch(event)
        if told is None or self._ranks:
            return
        self._ranks = tuple(map(int, told.groups()))
        for rank, pid in enumerate(self._ranks):
            self._hold.own(pid, f"{self._label}-rank-{rank}")

    def settle(self) -> Settled:
        """Ask what happened since it was primed."""
        return read(Settled, self._ask("settle"))

    def tear_down(self) -> TornDown:
        """End it."""
        return read(TornDown, self._ask("teardown"))

    def _ask(self, verb: str) -> dict[str, Any]:
        return self._asker.ask(verb, {}, ASK_S)


def grant_of(hold: OpenHold) -> Granted:
    """The grant as a run hands it on to a worker, which has no heartbeat of its own.

    A rehearsal that granted itself a HOLD makes one up, with the end that it itself would have.
    """
    if hold.granted is not None:
        return hold.granted
    deadline = hold.deadline or Deadline.after(SystemClock(), _GRANT_S)
    bound_s = deadline.limit_ns / 1e9
    return Granted(
        hold=hold.hold_id,
        fence=hold.fence,
        nonce=hold.nonce,
        exclusion=hold.exclusion,
        boot_id=hold.boot_id or boot_id(),
        gpus=hold.gpus,
        opened_at=hold.opened_at.isoformat(),
        bound_s=bound_s,
        ttl_s=bound_s,
        deadline_boottime_ns=deadline.start_ns + deadline.limit_ns,
        transport="ssh" if hold.transport == "ssh" else "local",
        rehearsal=not hold.gpus,
        directory=str(hold.directory),
        public=str(hold.directory),
        work=str(hold.directory),
        compiled=str(hold.directory / "compiled"),
    )


def require_socket(served: Served, settings: Serve) -> None:
    """Refuse to send anything to another worker than the one that was started.

    Raises:
        WrongError: ``SUBJECT_MISMATCH``.
    """
    if served.socket != settings.socket:
        refusal = Refusal(Code.SUBJECT_MISMATCH, SERVER, settings.socket, served.socket)
        raise WrongError(refusal)
