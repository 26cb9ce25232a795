"""Drafts of a worker for the slots of an engine, whatever becomes of the worker.

    wanted = Wanted.of(vocab=target.vocab, block=5, depth=5, sampled=engine_switch())
    with Drafts("/run/user/1000/pp4/socket", target, wanted) as drafts:
        engine = Engine(target, drafts)

Every way in which a draft can fail ends in a :class:`Cause`, which is plain decoding of that step.
A worker that was lost is tried again after some steps, and gets all features of what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from pp4.clock import Deadline
from pp4.engine.adapters.handshake import Agreed, Wanted, agreed_on
from pp4.engine.counters import DraftCounters
from pp4.engine.drafting import Cause, Want
from pp4.engine.held import Held
from pp4.engine.interface import Target
from pp4.engine.line import Judged, Line, Wish, until_within
from pp4.engine.patience import Patience
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, TimedOutError
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
        wanted: of a worker; where its switch is off, requests above temperature 0 ask for greedy
            drafts.
        patience: see there.

    Attributes:
        depth: tokens of every proposal.
        trouble: what ended the last connection or was in the way of the next, None while there is
            one.
        offer: of the worker that answered last, None where none has.
        until: beyond which nothing is waited for, whatever the patience; None for no such end.

    Raises:
        BadInputError: what is wanted is for another vocabulary than the target's.
    """

    def __init__(
        self,
        path: str | Path,
        target: Target,
        wanted: Wanted,
        patience: Patience = _USUAL,
    ) -> None:
        if wanted.vocab != target.vocab:
            expected = f"{target.vocab}, the target's"
            raise BadInputError.of("wanted vocab", expected, f"{wanted.vocab}")
        self.depth = wanted.depth
        self.trouble: Pp4Error | None = None
        self.offer: Offer | None = None
        self.until: Deadline | None = None
        self._path, self._count, self._width = path, target.slots, target.width
        self._wanted, self._patience = wanted, patience
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
        if (*features.shape[1:], features.dtype) != (self._width, torch.bfloat16):
            expected = f"[tokens, {self._width}] {torch.bfloat16}"
            found = f"{list(features.shape)} {features.dtype}"
            raise BadInputError.of("features", expected, found)
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
            found = self._line.draft(wishes, self._step, self.until)
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
            RefusedError: ``UNREACHABLE`` and whatever a worker refuses; ``ABI_MISMATCH``, it is
                none for this engine.
            Pp4Error: it has failed, or does not answer.
        """
        if self._line is not None:
            return
        self._counters.attempts += 1
        slots = Slots(self._count)
        limit = until_within(self.until, self._patience.exchange_s)
        try:
            client = StepClient.unix(self._path, limit.remaining_s(), Judged(slots))
            agreed = self._greeted(client, limit)
        except Pp4Error as error:
            self.trouble, self._retry = error, self._step + self._patience.retry_steps
            raise
        self._line = Line(client, agreed, slots, patience=self._patience, counters=self._counters)
        self._counters.connections += 1
        self.trouble, self.offer = None, agreed.offer

    def disconnect(self) -> None:
        """End the connection; what is held stays, and the next draft connects again."""
        self._drop()
        self._why, self._retry = Cause.NOT_CONNECTED, self._step

    def _drop(self) -> None:
        if self._line is not None:
            self._line.end()
            self._mapped = _sum(self._mapped, self._line.slots.counters)
            self._line = None

    def _greeted(self, client: StepClient, limit: Deadline) -> Agreed:
        try:
            agreed = agreed_on(self._wanted, client.hello(self.depth, limit.remaining_s()))
            width = agreed.offer.feature_width
            if width != self._width:
                where, expected = "handshake, feature_width", f"feature_width {self._width}"
                found = f"feature_width {width}"
                raise RefusedError(Refusal(Code.ABI_MISMATCH, where, expected, found))
        except Pp4Error:
            client.disconnect()
            raise
        return agreed

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
    if code is Code.ABI_MISMATCH:
        return Cause.UNFIT
    if isinstance(error, RefusedError) or (ours and isinstance(error, TimedOutError)):
        return lost
    # whatever a worker says but a refusal is the end of its ranks
    return Cause.FAILED


def _sum(first: mapping.Counters, second: mapping.Counters) -> mapping.Counters:
    pairs = zip(first.as_dict().items(), second.as_dict().values(), strict=True)
    return mapping.Counters(**{name: one + other for (name, one), other in pairs})
