"""What an owner can be asked for: the arguments of each verb.

Closed and strict like everything on the wire: a misspelt word must not turn into its default, or a
gate would judge a run that never happened.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pp4.wire.facts import Case, Launch, Rank, Shape, Source, Waits
from pp4.wire.frames import Model

Limit = Annotated[float, Field(gt=0, le=600)]
"""Seconds that the owner may wait for its ranks."""


class Plain(Model):
    """No arguments."""


class Libraries(Model):
    """Hash the mapped libraries; ``flip`` is a control, see ``worker/libraries.py``."""

    flip: bool = False


class RunBlock(Model):
    """Launch a block on both ranks.

    Attributes:
        case: the inputs.
        launches: how each rank runs them.
        first: the rank that is launched first.
        second: when the other one is: at once, once the first says it launches, once the first
            has answered, or never.
        on_pause: what happens to a rank that pauses: it goes on, is killed, or goes on only after
            its peer has answered.
        limit_s: for everything together.
    """

    case: Case
    launches: tuple[Launch, Launch] = (Launch(), Launch())
    first: Rank = 0
    second: Literal["together", "launched", "answered", "never"] = "together"
    on_pause: Literal["resume", "kill", "resume-late"] = "resume"
    limit_s: Limit = 60.0


class Prime(Model):
    """Compile and load on both ranks.

    Attributes:
        shape: what is compiled.
        recorded: whether a rank may take the digests of what an earlier rank of its number compiled
            in this HOLD, as long as the binaries still have them.
        controls: mutants that are loaded beside the product's kernel.
        delayed: a rank that waits before it compiles.
        probe: the block that is tried while that rank waits.
    """

    shape: Shape
    recorded: bool = False
    controls: tuple[str, ...] = ()
    delayed: Rank | None = None
    probe: RunBlock | None = None


class MakeLink(Model):
    """Make a rendezvous."""

    nonce: str
    fence: Annotated[int, Field(ge=0)]
    rows: Annotated[int, Field(ge=1)]
    waits: tuple[Waits, Waits]


class Both(Model):
    """Ask both ranks one of their own verbs, past the owner's rules."""

    verb_of_rank: str
    arguments: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    limit_s: Limit = 120.0


class One(Model):
    """Ask one rank alone one of its own verbs, past the owner's rules; its peer hears nothing."""

    rank: Rank
    verb_of_rank: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    limit_s: Limit = 120.0


class Select(Model):
    """Run the branch between the selectors; see ``drafter/heads.py``."""

    case: Case
    switch: bool
    graph: str | None = None
    head_mode: str = "default"


class PrimeOfRank(Model):
    """What one rank is asked for on the way to :class:`Prime`.

    Attributes:
        shape: what is compiled.
        shards: 1 for a rank of a pair, 2 for solo.
        recorded: see :class:`Prime`.
        delayed: whether to wait for the owner's word first.
    """

    shape: Shape
    shards: Literal[1, 2] = 1
    recorded: bool = False
    delayed: bool = False


class ExpectOfRank(Model):
    """What one rank is asked for on the way to :class:`Expect`."""

    case: Case
    by: Source


class Expect(Model):
    """Say what a case must give: rank 0 by the first way, rank 1 by the second, meanwhile."""

    case: Case
    by: Annotated[tuple[Source, ...], Field(min_length=1, max_length=2)]
