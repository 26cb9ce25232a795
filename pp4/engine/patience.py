"""How long an engine waits for a worker."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a worker is waited for; the rest of the time an engine decodes without it.

    No step waits for longer than ``draft_s`` and ``exchange_s`` together, and once more
    ``exchange_s`` where it connects.

    Attributes:
        draft_s: seconds for all drafts of a step together.  Many times what a block takes: see
            docs/engine.md for what a limit near to that would do to sampled text.
        exchange_s: seconds for all else that a step asks, together: closing, opening and features,
            after a loss those of every token that is kept; and likewise for connecting.
        retry_steps: steps before a worker that was lost is tried again, before a request that was
            refused is asked for again, and within which a draft that was given up has to be over.

    Raises:
        BadInputError: no time, or no steps.
    """

    draft_s: float = 1.0
    exchange_s: float = 5.0
    retry_steps: int = 64

    def __post_init__(self) -> None:
        for name, seconds in (("draft_s", self.draft_s), ("exchange_s", self.exchange_s)):
            if not 0 < seconds < float("inf"):
                raise BadInputError.of(f"patience, {name}", "seconds above 0", repr(seconds))
        if self.retry_steps < 1:
            raise BadInputError.of("patience, retry_steps", "1 or more", repr(self.retry_steps))
