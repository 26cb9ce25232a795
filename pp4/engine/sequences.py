"""What an engine knows of a request while it decodes it; the tokens are with the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pp4.engine.requests import Ending, Output, Request


@dataclass(slots=True, eq=False)
class Live:
    """A request in a slot.

    Attributes:
        number: the engine's, never used again.
        request: as it was asked.
        slot: of the target.
        anchor: the last token, which the target does not keep yet.
        kept: tokens that the target keeps; the anchor's position.
        round: of the next step; it rises with every step, also with a plain one, so that no word
            of a stream is used twice.
        tokens: that were emitted.
    """

    number: int
    request: Request
    slot: int
    anchor: int
    kept: int
    round: int = 0
    tokens: list[int] = field(default_factory=list)

    @property
    def position(self) -> int:
        """Of the next token."""
        return self.kept + 1

    def emit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Take what a step gave, up to the limit and to a stop token; -> what was taken.

        What follows is thrown away: whether it is does not depend on it, so nothing is biased.
        """
        room = self.request.limit - len(self.tokens)
        taken = tuple(tokens[:room])
        if self.request.stop in taken:
            taken = taken[: taken.index(self.request.stop) + 1]
        self.tokens += taken
        return taken

    def output(self) -> Output | None:
        """What came of it; None while it goes on."""
        if self.tokens and self.tokens[-1] == self.request.stop:
            return Output(self.number, tuple(self.tokens), Ending.STOP)
        if len(self.tokens) == self.request.limit:
            return Output(self.number, tuple(self.tokens), Ending.LIMIT)
        return None
