"""Drafts of a worker for the slots of an engine, whatever becomes of the worker.

    with Drafts("/run/user/1000/pp4/socket", target, depth=5) as drafts:
        engine = Engine(target, drafts)

Every way in which a draft can fail ends in a :class:`Cause`, which is plain decoding of that step.
A worker that was lost is tried again after some steps, and gets all features of what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from torch import Tensor

from pp4.engine.counters import DraftCounters
from pp4.engine.drafting import Cause, Want
from pp4.engine.held import Held
from pp4.engine.interface import Target
from pp4.engine.line import Judged, Line, Wish
from pp4.engine.patience import Patience
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, TimedOutError
from pp4.kernels import dyadic24
from pp4.verifier import slots as mapping
from pp4.verifier.proposal import Proposal
from pp4.verifier.slots import Slots
from pp4.wire.offers import Offer
from pp4.worker.step_client import StepClient

__all__ = ["Drafts", "Patience"]
_USUAL = Patience()


class Drafts:
    """See :class:`pp4.engine.drafting.DraftSource`; one thread.

    Args:
        path: of the worker's socket.
        target: whose sizes a worker has to fit; it is not run from here.
        depth: tokens of every proposal, one of those that the worker offers.
        sampled: whether requests above temperature 0 ask for sampled drafts: see
            :func:`pp4.config.engine_switch`.  Where not, they ask for greedy ones.
        patience: see there.

    Attributes:
        depth: see above.
        trouble: what ended the last connection or was in the way of the next, None while there is
            one.
    """

    def __init__(
        self,
        path: str | Path,
        target: Target,
        *,
        depth: int,
        sampled: bool = False,
        patience: Patience = _USUAL,
    ) -> None:
        self.depth = depth
        self.trouble: Pp4Error | None = None
        self._path, self._count = path, target.slots
        self._vocab, self._width = target.vocab, target.width
        self._sampled, self._patience = sampled, patience
        self._counters, self._mapped = DraftCounters(), mapping.Counters()
        self._held: dict[int, Held] = {}
        self._line: Line | None = None
        self._why, self._step, self._retry = Cause.NOT_CONNECTED, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()

    # -- requests ---------------------------------------------------------------------------

    def open(self, slot: int, request: int, key: int) -> None:
        """See :class:`DraftSource`; the worker is told with the first draft."""
        if slot in self._held or not 0 <= slot < self._count:
            raise BadInputError.of("slot", f"a free one below {self._count}", f"{slot}")
        self._held[slot] = Held(request, key)

    def keep(self, slot: int, features: Tensor) -> None:
        """See :class:`DraftSource`."""
        if features.ndim != 2 or features.shape[1] != self._width:
            found = str(list(features.shape))
            raise BadInputError.of("features", f"[tokens, {self._width}]", found)
        self._of(slot).keep(features)

    def close(self, slot: int) -> None:
        """See :class:`DraftSource`; the worker is told with what is asked next."""
        held = self._of(slot)
        del self._held[slot]
        if self._line is not None:
            self._line.forget(held.request)

    def _of(self, slot: int) -> Held:
        if slot not in self._held:
            raise BadInputError.of("slot", "an open one", f"{slot}")
        return self._held[slot]

    # -- drafts -----------------------------------------------------------------------------

    def draft(self, wants: Sequence[Want]) -> list[Proposal | Cause]:
        """See :class:`DraftSource`."""
        self._step += 1
        wishes = [self._wish(want) for want in wants]
        if self._line is None and self._step >= self._retry:
            try:
                self.connect()
            except Pp4Error as error:
                unfit = isinstance(error, BadInputError)  # a HELLO that it cannot agree to
                lost = Cause.UNFIT if unfit else Cause.NOT_CONNECTED
                self._why = _reason(error, lost, ours=True)
        if self._line is None:
            return [self._why] * len(wants)
        try:
            found = self._line.draft(wishes, self._step)
        except Pp4Error as error:
            return [self._lose(error, self._line)] * len(wants)
        return [found[want.slot] for want in wants]

    def _wish(self, want: Want) -> Wish:
        held = self._of(want.slot)
        if want.position != held.kept + 1:
            expected = f"{held.kept + 1}, since features of {held.kept} tokens are kept"
            raise BadInputError.of("position", expected, f"{want.position}")
        return Wish(want, held)

    def _lose(self, error: Pp4Error, line: Line) -> Cause:
        """End a connection on which something went wrong; -> why its drafts are not used."""
        cause = _reason(error, Cause.LOST, ours=line.client.over is not None)
        self._drop()
        self._counters.ended += 1
        self.trouble, self._retry = error, self._step + self._patience.retry_steps
        self._why = Cause.FAILED if cause is Cause.FAILED else Cause.NOT_CONNECTED
        return cause

    # -- connections ------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a worker, as far as is known."""
        return self._line is not None

    def connect(self) -> None:
        """Connect now where there is no connection; drafting does so by itself.

        Raises:
            RefusedError: ``UNREACHABLE`` and whatever a worker refuses; ``SUBJECT_MISMATCH``, it is
                none for this target.
            Pp4Error: it has failed, or does not answer.
        """
        if self._line is not None:
            return
        self._counters.attempts += 1
        slots, limit_s = Slots(self._count), self._patience.exchange_s
        try:
            client = StepClient.unix(self._path, limit_s, Judged(slots))
            self._line = self._greeted(client, slots)
        except Pp4Error as error:
            self.trouble, self._retry = error, self._step + self._patience.retry_steps
            raise
        self._counters.connections += 1
        self.trouble = None

    def disconnect(self) -> None:
        """End the connection; what is held stays, and the next draft connects again."""
        self._drop()
        self._why, self._retry = Cause.NOT_CONNECTED, self._step

    def _drop(self) -> None:
        if self._line is not None:
            self._line.end()
            self._mapped = _sum(self._mapped, self._line.slots.counters)
            self._line = None

    def _greeted(self, client: StepClient, slots: Slots) -> Line:
        try:
            offer = client.hello(self.depth)
            self._require_fit(offer)
        except Pp4Error:
            client.disconnect()
            raise
        return Line(
            client,
            offer,
            slots,
            sampled=self._sampled,
            patience=self._patience,
            counters=self._counters,
        )

    def _require_fit(self, offer: Offer) -> None:
        """Refuse a worker that drafts for another target or by other numbers."""
        wanted = (self._vocab, self._width, dyadic24.DEFINITION, dyadic24.definition_digest())
        told = (offer.vocab, offer.feature_width, offer.definition, offer.definition_sha256)
        if told != wanted:
            names = "vocabulary {}, features of {} values, {} sha256 {}"
            refusal = Refusal(
                Code.SUBJECT_MISMATCH, "worker", names.format(*wanted), names.format(*told)
            )
            raise RefusedError(refusal)

    def as_dict(self) -> dict[str, int]:
        """Counters of connections, requests and replies, of all connections together."""
        mapped = self._mapped
        if self._line is not None:
            mapped = _sum(mapped, self._line.slots.counters)
        return {**self._counters.as_dict(), **mapped.as_dict()}


def _reason(error: Pp4Error, lost: Cause, *, ours: bool) -> Cause:
    """Why nothing is drafted after an error that ended a connection, or was in the way of one.

    Args:
        error: what was raised.
        lost: what it is if it says nothing of the worker.
        ours: whether a wait that ran out was one of this side, and not the worker's for its ranks.
    """
    code = error.refusal.code
    if code in (Code.BAD_FRAME, Code.BAD_PROPOSAL):
        return Cause.UNTRUSTED
    if code is Code.SUBJECT_MISMATCH:
        return Cause.UNFIT
    if isinstance(error, RefusedError) or (ours and isinstance(error, TimedOutError)):
        return lost
    # whatever a worker says but a refusal is the end of its ranks
    return Cause.FAILED


def _sum(first: mapping.Counters, second: mapping.Counters) -> mapping.Counters:
    pairs = zip(first.as_dict().items(), second.as_dict().values(), strict=True)
    return mapping.Counters(**{name: one + other for (name, one), other in pairs})
