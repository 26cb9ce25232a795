"""What a client and a worker say to each other: the models; frames are in ``draft_frames``.

A question's ``sequence`` is the client's own number, and its answer repeats it.  Models give types
and widths alone: what a value may be at this moment is the worker's to say, so that it refuses a
question and not the connection.  Big arrays travel beside a model, as the body of its frame.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from pp4.wire.frames import Model
from pp4.wire.offers import ABI, Offer

VERSION: Final = 1
"""Of the frames and of the models in them."""
CANDIDATES: Final = 32
"""Candidates of a position; the width of ``pp4.kernels.dyadic24``, which this side cannot see."""
FEATURE_BYTES: Final = 2
"""Of one BF16 value."""

U16 = Annotated[int, Field(ge=0, lt=1 << 16)]
U32 = Annotated[int, Field(ge=0, lt=1 << 32)]
U64 = Annotated[int, Field(ge=0, lt=1 << 64)]
Mode = Literal["sampled", "greedy"]
State = Literal["starting", "primed", "serving", "failed", "torn down"]


def reply_bytes(block: int) -> int:
    """Bytes of one row: ids and q ``[block, 32]``, token and confidence ``[block]``, 4 each."""
    return 4 * block * (2 * CANDIDATES + 2)


class Spoken(Model):
    """Anything that is said."""

    def fits(self, body: int) -> bool:
        """Whether a body of as many bytes can belong to it; most have none."""
        return body == 0


class Question(Spoken):
    """From a client."""

    sequence: U64


class Hello(Question):
    """The first question of a connection: the version, the meaning and the depth of all others."""

    verb: Literal["HELLO"] = "HELLO"
    version: U16 = VERSION
    abi: Annotated[str, Field(max_length=64)] = ABI
    depth: U16


class Open(Question):
    """Begin a request.

    Attributes:
        request: the client's own number, free on this connection.
        key: the key of its draws.
    """

    verb: Literal["OPEN"] = "OPEN"
    request: U64
    key: U64


class Features(Question):
    """Append features of accepted tokens; the body is ``[tokens, feature width]`` BF16.

    Attributes:
        request: an open one.
        first: position of the first of them: as many as there are already.
        tokens: how many.
    """

    verb: Literal["FEATURES"] = "FEATURES"
    request: U64
    first: U32
    tokens: Annotated[int, Field(ge=1, lt=1 << 32)]

    def fits(self, body: int) -> bool:
        """Whole tokens of whole values."""
        return body > 0 and body % (self.tokens * FEATURE_BYTES) == 0


class Draft(Question):
    """Ask for one block.

    Attributes:
        request: an open one, with no draft under way.
        generation: the client's own, for its answer to name.
        slot: the client's own, for its answer to name.
        round: above that of every draft of the request before.
        position: of the first predicted token, one past the anchor.
        anchor: the last accepted token, at the position that follows those with features.
        mode: sampled with a temperature above 0, greedy with 0.
        temperature: see ``mode``.
    """

    verb: Literal["DRAFT"] = "DRAFT"
    request: U64
    generation: U64
    slot: U32
    round: U32
    position: U32
    anchor: U32
    mode: Mode
    temperature: float


class Abort(Question):
    """Give up the draft that is under way; the request stays open."""

    verb: Literal["ABORT"] = "ABORT"
    request: U64


class Close(Question):
    """End a request; a draft that is under way is given up."""

    verb: Literal["CLOSE"] = "CLOSE"
    request: U64


class Status(Question):
    """How the worker is; answered in every state, also before HELLO."""

    verb: Literal["STATUS"] = "STATUS"


class Welcome(Spoken):
    """Answers HELLO.

    Attributes:
        offer: what the worker can do.
        depth: positions of each reply on this connection.
        largest_body: bytes of the largest body that it takes.
    """

    verb: Literal["WELCOME"] = "WELCOME"
    sequence: U64
    offer: Offer
    depth: U16
    largest_body: U32


class Opened(Spoken):
    """Answers OPEN."""

    verb: Literal["OPENED"] = "OPENED"
    sequence: U64
    request: U64


class Appended(Spoken):
    """Answers FEATURES; ``length`` is of how many tokens there are features now."""

    verb: Literal["APPENDED"] = "APPENDED"
    sequence: U64
    request: U64
    length: U32


class Drafted(Spoken):
    """Answers DRAFT; the body is ids, q, token and confidence of :func:`reply_bytes`.

    Attributes:
        mode: by which the block was drafted: greedy where the worker does not sample.
        depth: positions that were asked for; what follows them is zero.
        block: positions of the arrays.
    """

    verb: Literal["DRAFTED"] = "DRAFTED"
    sequence: U64
    request: U64
    generation: U64
    slot: U32
    round: U32
    position: U32
    mode: Mode
    depth: U16
    block: U16

    def fits(self, body: int) -> bool:
        """Exactly one row, of at least as many positions as were asked for."""
        return 0 < self.depth <= self.block and body == reply_bytes(self.block)


class Aborted(Spoken):
    """Answers ABORT; ``dropped`` is whether a draft was under way, which was refused."""

    verb: Literal["ABORTED"] = "ABORTED"
    sequence: U64
    request: U64
    dropped: bool


class Closed(Spoken):
    """Answers CLOSE."""

    verb: Literal["CLOSED"] = "CLOSED"
    sequence: U64
    request: U64


class Standing(Spoken):
    """Answers STATUS.

    Attributes:
        state: of the worker.
        since: when it came into it.
        ranks: process ids.
        offer: what it can do, once that is known.
        refusal: what every request is answered with, once it has failed.
        counters: since the start, by name.
    """

    verb: Literal["STANDING"] = "STANDING"
    sequence: U64
    state: State
    since: AwareDatetime
    ranks: tuple[U32, ...]
    offer: Offer | None
    refusal: dict[str, str] | None
    counters: dict[str, U64]


class Refused(Spoken):
    """Takes the place of any answer; without a sequence it ends the connection."""

    verb: Literal["REFUSED"] = "REFUSED"
    sequence: U64 | None
    refusal: dict[str, str]


AnyQuestion = Hello | Open | Features | Draft | Abort | Close | Status
AnyAnswer = Welcome | Opened | Appended | Drafted | Aborted | Closed | Standing | Refused
QUESTIONS: Final[TypeAdapter[AnyQuestion]] = TypeAdapter(
    Annotated[AnyQuestion, Field(discriminator="verb")]
)
ANSWERS: Final[TypeAdapter[AnyAnswer]] = TypeAdapter(
    Annotated[AnyAnswer, Field(discriminator="verb")]
)
