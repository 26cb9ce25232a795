"""The engine adapter: what is asked of an engine, the verifier ABI, an engine without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ABI = None
"""Name of the verifier's ABI that a drafter has to offer; None takes any."""


class Refused(Exception):
    """The runner does not go on."""


class Engine(Protocol):
    """The target model, as far as a runner needs it."""

    def features(self, tokens: int, width: int) -> bytes:
        """Return BF16 features of the newest ``tokens`` tokens, ``[tokens, width]`` in bytes."""

    def verified(self, drafted: Sequence[int]) -> list[int]:
        """Return the tokens that a step emits: what is accepted of a draft, and one more."""


class ToyEngine:
    """Counts upwards from 1; accepts what counts along."""

    def __init__(self) -> None:
        self._last = 0

    def features(self, tokens: int, width: int) -> bytes:
        """Return zeros."""
        return bytes(2 * tokens * width)

    def verified(self, drafted: Sequence[int]) -> list[int]:
        """Return as much of a draft as counts on, and the next number."""
        emitted = []
        for token in drafted:
            if token != self._last + 1:
                break
            emitted.append(token)
            self._last = token
        self._last += 1
        return [*emitted, self._last]


def want_abi(offered: str) -> None:
    """Refuse a drafter whose proposals mean something else to the verifier.

    Raises:
        Refused: it offers another ABI than :data:`ABI`.
    """
    if ABI is not None and offered != ABI:
        raise Refused(f"the verifier takes {ABI}, the drafter offers {offered}")
