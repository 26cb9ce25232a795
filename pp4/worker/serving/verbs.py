"""What an owner asks of a rank that serves; arrays cross in the arena."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pp4.wire.frames import Model

Size = Annotated[int, Field(ge=1)]
Word64 = Annotated[int, Field(ge=0, lt=1 << 64)]


class Load(Model):
    """Load this rank's part of a checkpoint and make room for requests.

    Attributes:
        checkpoint: its directory.
        target: directory of the target's checkpoint, for what the drafter's leaves to it.
        slots: requests that can be open at once.
        context: tokens that a request may have features of.
        cache_mib: size of the Markov cache.
        sampled: whether there is a sampled path.
    """

    checkpoint: str
    target: str | None
    slots: Size
    context: Size
    cache_mib: Annotated[int, Field(ge=0)]
    sampled: bool


class Capture(Model):
    """Record every shape, over the link there is now."""

    batches: tuple[Size, ...]
    depths: tuple[Size, ...]


class Named(Model):
    """Open or close a request."""

    request: Word64


class Grow(Model):
    """One request and its tokens among those whose features lie in the arena."""

    request: Word64
    tokens: Size


class Append(Model):
    """Keep the features that lie in the arena, those of each part behind those of the one before.

    Attributes:
        parts: each request once.
    """

    parts: Annotated[tuple[Grow, ...], Field(min_length=1)]


class Grown(Model):
    """What became of one part.

    Attributes:
        length: tokens whose features the request has now, None where it was refused.
        refusal: why nothing of it was kept.
    """

    length: Size | None = None
    refusal: dict[str, str] | None = None


class Appended(Model):
    """What became of every part, in order."""

    parts: tuple[Grown, ...]


class Draft(Model):
    """Draft the batch whose inputs lie in the arena.

    Attributes:
        batch: a captured batch size.
        n_out: positions.
        rows: how many of its rows, from the first, are requests; the others are padding.
    """

    batch: Size
    n_out: Size
    rows: Size
