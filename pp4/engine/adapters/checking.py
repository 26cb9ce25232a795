"""What all adapters do first: replies of a step become proposals that may be used, or none."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.engine.adapters.handshake import Agreed
from pp4.engine.adapters.interface import Answered
from pp4.errors import BadInputError, Refusal, WrongError
from pp4.verifier.proposal import (
    Proposal,
    bad_proposal,
    mode_of,
    require_temperature,
    validated,
)
from pp4.worker import proposals as replies

Checked = tuple[tuple[Proposal | None, ...], tuple[Refusal | None, ...]]


def checked(agreed: Agreed, rows: Sequence[Answered]) -> Checked:
    """Validate each reply against what was agreed on.

    Returns:
        Proposals, and the refusals of replies that are none; one of each for each row.

    Raises:
        BadInputError: a temperature or a key that is none.
    """
    found: list[Proposal | None] = []
    refusals: list[Refusal | None] = []
    for row in rows:
        _require_own(row)
        refusal, proposal = None, None
        if row.answer is not None:
            try:
                proposal = _proposal(agreed, row, row.answer)
            except WrongError as error:
                refusal = error.refusal
        found.append(proposal)
        refusals.append(refusal)
    return tuple(found), tuple(refusals)


def _require_own(row: Answered) -> None:
    # of every row, answered or not; validated() would blame the reply for the engine's own key
    require_temperature(row.temperature)
    if type(row.key) is not int or not 0 <= row.key < 1 << 64:
        raise BadInputError.of("key", "an integer of 64 bits", repr(row.key))


def _proposal(agreed: Agreed, row: Answered, answer: replies.Proposal) -> Proposal:
    if answer.mode not in ("sampled", "greedy"):
        raise bad_proposal("mode", "sampled or greedy", repr(answer.mode))
    if answer.mode == "sampled" and not agreed.sampled:
        raise bad_proposal("mode", "a greedy draft while a switch is off", "a sampled one")
    return validated(
        ids=answer.ids,
        q=answer.q,
        tokens=answer.tokens,
        mode=mode_of(answer.mode, row.temperature),
        depth=agreed.wanted.depth,
        definition=agreed.offer.definition,
        vocabulary=agreed.wanted.vocab,
        generation=answer.generation,
        slot=answer.slot,
        round=answer.round,
        position=answer.position,
        key=row.key,
    )
