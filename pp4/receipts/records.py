"""Receipts about what was prepared, what was refused and what went wrong."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from pp4.receipts.envelope import (
    U64,
    Count,
    Envelope,
    Facts,
    Model,
    RelativePath,
    Sha256,
    SourceFile,
    Text,
    Word,
)
from pp4.receipts.gates import JournalLine


class TreeFile(SourceFile):
    """One file of a tree, or a link, whose sha256 is that of its text."""

    type: Literal["file", "program", "link"] = "file"


class Replacement(Model):
    """A nested package or a passage that was replaced; one place, or nothing is prepared.

    ``line`` is that of a passage, before it was replaced.
    """

    what: Text
    path: RelativePath
    line: Annotated[int, Field(ge=1)] | None = None
    matches: Literal[1]
    before_sha256: Sha256
    after_sha256: Sha256


class Guard(Model):
    """A guard that was found, by syntax tree, before and after the edits."""

    name: Word
    path: RelativePath
    line_before: Annotated[int, Field(ge=1)]
    line_after: Annotated[int, Field(ge=1)]


class Preparation(Envelope):
    """A runner tree was staged from reviewed input; equal input gives equal bytes."""

    kind: Literal["preparation"]
    verdict: Literal["prepared"]
    manifest_sha256: Sha256
    reviewed_runner_sha256: Sha256
    inputs: tuple[TreeFile, ...] = Field(min_length=1)
    outputs: tuple[TreeFile, ...] = Field(min_length=1)
    inputs_sha256: Sha256 | None = None
    outputs_sha256: Sha256 | None = None
    replacements: tuple[Replacement, ...]
    guards: tuple[Guard, ...]


class RefusalRecord(Model):
    """The refusal as a person saw it."""

    code: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
    where: Text
    expected: Text
    found: Text
    source: Text
    host: Text
    left: Text
    next: Text


class RefusalReceipt(Envelope):
    """A command did not go on, and nothing was done.

    ``contacted`` says whether any other machine was spoken to before.
    """

    kind: Literal["refusal"]
    command: Text
    exit: Annotated[int, Field(ge=1, le=255)]
    contacted: bool
    refusal: RefusalRecord


class Survivor(Model):
    """A process that could not be proven dead; the start token tells it from a later namesake."""

    pid: Count
    start_token: Text
    state: Text


class Incident(Envelope):
    """A window did not end as it should: what is known, and what is not."""

    kind: Literal["incident"]
    hold_id: Text
    fence: U64
    what: Text
    state: Literal["closed", "closing", "quarantined", "unknown"]
    tombstone_sha256: Sha256 | None
    survivors: tuple[Survivor, ...]
    unproven: tuple[Text, ...]
    journal: tuple[JournalLine, ...]
    journal_torn: bool
    facts: Facts
