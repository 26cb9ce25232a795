"""What an engine asks of whoever drafts for it: the seam between decoding and a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from torch import Tensor

from pp4.verifier.proposal import Proposal


class Cause(StrEnum):
    """Why a sequence was decoded without a draft in a step."""

    NO_DRAFTS = "no_drafts"
    """The engine has nobody who drafts."""
    NO_ROOM = "no_room"
    """A whole block does not fit into the context of the target or of the worker."""
    NOT_CONNECTED = "not_connected"
    """No worker was there, or the next attempt to reach one is not due yet."""
    UNFIT = "unfit"
    """Whoever answers is no worker for this target."""
    LOST = "lost"
    """The connection ended, or something but a draft was not answered in time."""
    UNTRUSTED = "untrusted"
    """A reply to what was never asked, or bytes that are no frame: the connection was ended."""
    FAILED = "failed"
    """The worker's ranks are over; it stays so until another worker answers."""
    REFUSED = "refused"
    """The worker refused the draft, or what had to come before it."""
    RESTING = "resting"
    """It was refused a while ago and is not asked for again yet."""
    TIMED_OUT = "timed_out"
    """The reply did not come in time."""
    WAITING = "waiting"
    """A draft that was given up is not over at the worker yet."""
    MALFORMED = "malformed"
    """The reply is no proposal that may be used."""


@dataclass(frozen=True, slots=True)
class Want:
    """A draft that is wanted.

    Attributes:
        slot: an open one.
        round: above that of every step of the request before.
        anchor: the last emitted token, whose features are not known yet.
        position: of the first token to propose, one past the anchor.
        temperature: of the request.
    """

    slot: int
    round: int
    anchor: int
    position: int
    temperature: float


class DraftSource(Protocol):
    """Drafts for the slots of an engine; no fault of a worker is ever raised.

    Attributes:
        depth: tokens of every proposal.
    """

    depth: int

    def open(self, slot: int, request: int, key: int) -> None:
        """Begin a request in a slot that is free.

        Args:
            slot: below the engine's number of them.
            request: the engine's number of it, never used before.
            key: of its draws.
        """

    def keep(self, slot: int, features: Tensor) -> None:
        """Keep features of the tokens that follow those there are.

        Args:
            slot: an open one.
            features: ``[T, width]`` bfloat16 on the CPU, not written to any more.
        """

    def close(self, slot: int) -> None:
        """End the request in a slot."""

    def draft(self, wants: Sequence[Want]) -> list[Proposal | Cause]:
        """Ask for one block for each, all together.

        Args:
            wants: one for each of some open slots.

        Returns:
            For each a proposal that was validated, or why there is none.
        """

    def as_dict(self) -> dict[str, int]:
        """Counters."""
