"""What every receipt has, whatever its kind: scalars with one spelling, and the envelope."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from pp4.receipts.canonical import SAFE_INTEGER

SCHEMA: Final = "pp4-receipt/1"
"""The version that this package writes; see docs/receipts.md for what a new one would mean."""


class Model(BaseModel):
    """Strict, frozen, closed: no coercion, no change, no unknown member."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )


def _below_two_to_64(text: str) -> str:
    if int(text) >= 2**64:
        raise ValueError("does not fit in 64 bits")
    return text


def _real_moment(text: str) -> str:
    # The pattern fixes the spelling; this refuses the 31st of February.
    datetime.fromisoformat(text)
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]{0,127}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=SAFE_INTEGER)]
U64 = Annotated[
    str,
    StringConstraints(pattern=r"^(0|[1-9][0-9]{0,19})$"),
    AfterValidator(_below_two_to_64),
]
"""A 64-bit number as decimal text: keys, nanoseconds, epochs, fences."""
Decimal = Annotated[str, StringConstraints(pattern=r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?$")]
"""A number with a fraction, as text: receipts hold no floating point."""
Moment = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    AfterValidator(_real_moment),
]
"""A moment in UTC (RFC 3339), to the second; for people, never for a decision between hosts."""
RelativePath = Annotated[
    str, StringConstraints(pattern=r"^[^/\\\x00-\x1f]+(/[^/\\\x00-\x1f]+)*$", max_length=1024)
]
Integer = Annotated[int, Field(ge=-SAFE_INTEGER, le=SAFE_INTEGER)]
Scalar = bool | Integer | str
Fact = Scalar | tuple[Scalar, ...]
"""What a setting or an observation may be."""
Facts = dict[Text, Fact]

Kind = Literal[
    "solo",
    "whole_worker",
    "qualification",
    "budget",
    "measurement",
    "preparation",
    "rehearsal",
    "refusal",
    "incident",
]
Role = Literal["identity_reference", "rehearsal", "budget", "first_half", "qualification", "cause"]


class Tool(Model):
    """The program that wrote the receipt."""

    name: Literal["pp4"]
    version: Text


class SourceFile(Model):
    """One file of the source."""

    path: RelativePath
    sha256: Sha256


class SourceList(Model):
    """The source that ran: every file, and one digest over the list."""

    digest: Sha256
    files: tuple[SourceFile, ...] = Field(min_length=1)


class Reference(Model):
    """A receipt that this one rests on, by the sha256 of its file."""

    role: Role
    kind: Kind
    sha256: Sha256


class OpenLeaf(Model):
    """A private value that can be read; the salt is part of its hash."""

    salt: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32,128}$")]
    value: Annotated[str, StringConstraints(max_length=4096)]


class RedactedLeaf(Model):
    """A private value of which only the salted hash is left."""

    sha256: Sha256


class Envelope(Model):
    """Members that all kinds share."""

    schema_: Literal["pp4-receipt/1"] = Field(alias="schema")
    made_at: Moment | None
    tool: Tool
    source: SourceList
    limits: tuple[Text, ...] = Field(min_length=1)
    evidence: tuple[Reference, ...]
    private: dict[Word, OpenLeaf | RedactedLeaf]
    digest: Sha256
