"""How long an engine waits for a worker."""

from __future__ import annotations

from dataclasses import dataclass

from pp4.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a worker is waited for; the rest of the time an engine decodes without it.

    Attributes:
        draft_s: seconds for all drafts of a step together.
        exchange_s: seconds for anything else that is asked in a step, and for each part of
            connecting.
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
