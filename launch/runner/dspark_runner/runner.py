"""The runner: load once, then step.  DSpark drafts only where the model has no MTP head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dspark_runner import remote_dspark
from dspark_runner.engine import Engine, Refused, want_abi


@dataclass(frozen=True)
class Settings:
    """How to draft.

    Attributes:
        socket: of the drafter's worker.
        depth: drafted tokens of a step.
        temperature: of the drafts; 0 drafts greedily.
    """

    socket: str
    depth: int
    temperature: float


class Runner:
    """One sequence, an engine that verifies, and a drafter that proposes."""

    def __init__(self, engine: Engine, drafter: remote_dspark.Drafter, temperature: float) -> None:
        self._engine, self._drafter, self._temperature = engine, drafter, temperature
        self._anchor, self._round = 0, 0

    @classmethod
    def load(cls, engine: Engine, settings: Settings, mtp: object) -> Self:
        """Connect to the drafter, for a model without a head of its own.

        Raises:
            Refused: the model has such a head, or the drafter will not do.
        """
        if mtp is None:
            return cls._connected(engine, settings)
        raise Refused("an MTP head is loaded; it and DSpark would draft for the same verifier")

    @classmethod
    def _connected(cls, engine: Engine, settings: Settings) -> Self:
        drafter = remote_dspark.connect(settings.socket, settings.depth)
        try:
            want_abi(drafter.abi)
        except Refused:
            drafter.close()
            raise
        return cls(engine, drafter, settings.temperature)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drafter.close()

    def step(self, fresh: int, mtp: object) -> list[int]:
        """Draft, verify, and return what is emitted.

        Args:
            fresh: tokens whose features the drafter does not have yet.
            mtp: the model's own head; there has to be none.

        Raises:
            Refused: there is one; the drafter will not do.
        """
        if mtp is None:
            return self._drafted_step(fresh)
        raise Refused("an MTP head came in between two steps")

    def decode(self, steps: int, mtp: object) -> Iterator[list[int]]:
        """Step so many times."""
        fresh = 1
        for _ in range(steps):
            emitted = self.step(fresh, mtp)
            # The last of them is the next anchor, and has no features yet.
            fresh = len(emitted)
            yield emitted

    def _drafted_step(self, fresh: int) -> list[int]:
        self._drafter.accepted(self._engine.features(fresh, self._drafter.width))
        drafted = self._drafter.draft(self._round, self._anchor, self._temperature)
        emitted = self._engine.verified(drafted)
        self._round += 1
        self._anchor = emitted[-1]
        return emitted
