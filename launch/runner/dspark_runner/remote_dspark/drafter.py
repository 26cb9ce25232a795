"""The form of a drafter, and one that is never there."""

from __future__ import annotations

from typing import Protocol

from dspark_runner.engine import Refused

KIND = "none; this runner was not prepared"


class Drafter(Protocol):
    """A drafter of one sequence.

    Attributes:
        abi: what its proposals mean.
        width: BF16 values of one token's features.
    """

    abi: str
    width: int

    def accepted(self, features: bytes) -> None:
        """Take features of the newest accepted tokens."""

    def draft(self, round_: int, anchor: int, temperature: float) -> list[int]:
        """Return the tokens after an anchor."""

    def close(self) -> None:
        """End the sequence."""


def connect(socket: str, depth: int) -> Drafter:
    """Refuse.

    Raises:
        Refused: always.
    """
    raise Refused(f"no drafter of depth {depth} at {socket}: this runner was not prepared")
