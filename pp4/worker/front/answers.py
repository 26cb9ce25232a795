"""Answers that say why there is no other."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code, Refusal, RefusedError
from pp4.wire.drafts import Refused

SHOWN: Final = 2000
"""Characters of a text that are sent."""


def stopped(where: str) -> RefusedError:
    """What a question is answered that was given up."""
    return RefusedError(Refusal(Code.INTERRUPTED, where, "an answer", "it was given up"))


def texts(refusal: Refusal) -> dict[str, str]:
    """A refusal as it is sent; a text that is too long for a frame is cut."""
    return {name: text[:SHOWN] for name, text in refusal.as_dict().items()}


def refused(sequence: int | None, refusal: Refusal) -> Refused:
    """What takes the place of an answer."""
    return Refused(sequence=sequence, refusal=texts(refusal))
