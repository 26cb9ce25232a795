"""What an engine adapter is: the seam between a worker's replies and an engine's verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pp4.engine.adapters.handshake import Agreed
from pp4.errors import Refusal
from pp4.verifier.proposal import Proposal
from pp4.worker import proposals as replies

Form = TypeVar("Form", covariant=True)


@dataclass(frozen=True, slots=True)
class Answered:
    """One sequence of a step: what it needs, and what the worker said.

    That an answer belongs to what its slot waits for is known before: see
    :mod:`pp4.verifier.slots`.

    Attributes:
        temperature: of the request, 0 or above.
        key: of the request's draws, 64 bits.
        answer: the worker's reply; None where there is none, for whatever reason.
    """

    temperature: float
    key: int
    answer: replies.Proposal | None


@dataclass(frozen=True, slots=True)
class Gap:
    """A reason why what an engine emits is not, or is not shown to be, the target's distribution.

    Attributes:
        name: short, of lower-case words.
        reason: what the engine does.
        effect: how far it takes the output from the target; measured, or said not to be.
        source: where the reason was read, and as of when.
    """

    name: str
    reason: str
    effect: str
    source: str


@dataclass(frozen=True, slots=True)
class Converted(Generic[Form]):
    """A step in an engine's own form; all members have a row for each sequence.

    Attributes:
        form: what the engine's verifier takes.
        proposals: that are in it; None where a sequence is decoded plainly in this step.
        refusals: why a reply that came is not in it; None where it is, or none came.
    """

    form: Form
    proposals: tuple[Proposal | None, ...]
    refusals: tuple[Refusal | None, ...]


class EngineAdapter(Protocol[Form]):
    """Proposals in the form of one engine's verifier; made of an :class:`Agreed`.

    Whoever writes one inherits from it, so that ``exact`` is not a word of its own.
    """

    @property
    def name(self) -> str:
        """Of the engine."""

    @property
    def agreed(self) -> Agreed:
        """The handshake that allows it."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """All that is known to be between the engine's verifier and exactness."""

    @property
    def at_zero(self) -> str:
        """For a person: what the engine does with a request at temperature 0."""

    def convert(self, rows: Sequence[Answered]) -> Converted[Form]:
        """Check the replies of one step and put them into the engine's form.

        A reply that is malformed never gets into the form: its sequence has no proposal in this
        step and is decoded plainly, like one without a reply.

        Args:
            rows: one for each sequence, in the engine's order.

        Raises:
            BadInputError: a temperature or a key that is none.
        """

    @property
    def exact(self) -> bool:
        """Whether the output has exactly the target's distribution: only without any gap."""
        return not self.gaps
