"""Which reply belongs to which draft: a slot of the engine, reused only with a new generation."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from pp4.errors import BadInputError, Code, Refusal, WrongError

_GENERATIONS: Final = 1 << 64


class Arrival(StrEnum):
    """What a reply is."""

    EXPECTED = "expected"
    """The first answer to the draft that its slot waits for: use it."""
    LATE = "late"
    """For a generation that is over: drop it."""
    DUPLICATED = "duplicated"
    """A further answer to a draft that was answered: drop it."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked of a worker, and what its reply has to repeat.

    Attributes:
        slot: below the number of slots.
        generation: of the slot.
        request: the engine's own number.
        round: of the request.
        position: absolute, of the first predicted token.
    """

    slot: int
    generation: int
    request: int
    round: int
    position: int


@dataclass(slots=True)
class Counters:
    """Since the start.

    Attributes:
        asked: drafts that were asked for.
        expected: replies that were used.
        late: replies for a generation that was over.
        duplicated: further replies for one generation.
        unknown: replies for what was never asked; each was refused.
        invalidated: drafts that were given up or whose reply was refused.
    """

    asked: int = 0
    expected: int = 0
    late: int = 0
    duplicated: int = 0
    unknown: int = 0
    invalidated: int = 0

    def as_dict(self) -> dict[str, int]:
        """Names and numbers."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(slots=True)
class _Slot:
    generation: int = 0
    ask: Ask | None = None
    """The draft of this generation; None before the first, and once it was invalidated."""
    answered: bool = False


class Slots:
    """The map of an engine's slots; no clock and no I/O, one thread.

    A slot's generation moves on with every draft and with every invalidation, and never back, so a
    reply that comes too late cannot be taken for another request's.  A new connection to a worker
    gets a new map: no reply of the old one can come over it.

    Args:
        count: how many slots there are.

    Raises:
        BadInputError: not 1 to 2**32.
    """

    def __init__(self, count: int) -> None:
        if not 1 <= count <= 1 << 32:
            raise BadInputError.of("slots", "1 to 2**32", str(count))
        self.counters = Counters()
        self._count = count
        self._slots: dict[int, _Slot] = {}

    def ask(self, slot: int, *, request: int, round: int, position: int) -> Ask:
        """Begin a draft in a slot, with a new generation.

        Raises:
            BadInputError: no such slot, or one that still waits: answer or invalidate it first.
        """
        held = self._of(slot)
        if held.ask is not None and not held.answered:
            raise BadInputError.of(
                f"slot {slot}", "no draft under way", f"generation {held.generation}"
            )
        self._move_on(slot, held)
        held.ask = Ask(slot, held.generation, request, round, position)
        self.counters.asked += 1
        return held.ask

    def arrived(self, reply: Ask) -> Arrival:
        """Say what a reply is, by what it repeats; only ``EXPECTED`` may be used.

        Of generations that are over nothing is kept, so the second copy of an old reply is late.

        Raises:
            WrongError: BAD_PROPOSAL: a slot that does not exist, a generation that was never given
                out, or other numbers than those that were asked with.  A draft that is under way in
                the slot stays so; the connection cannot be trusted with it.
        """
        held = self._slots.get(reply.slot)
        if held is None or not 0 < reply.generation <= held.generation:
            raise self._unknown(reply, "a slot and a generation that were asked for")
        if reply.generation < held.generation:
            self.counters.late += 1
            return Arrival.LATE
        # a generation without a draft is the one after an invalidation: nobody was told of it
        if reply != held.ask:
            raise self._unknown(reply, str(held.ask or "no reply"))
        if held.answered:
            self.counters.duplicated += 1
            return Arrival.DUPLICATED
        held.answered = True
        self.counters.expected += 1
        return Arrival.EXPECTED

    def invalidate(self, slot: int) -> None:
        """Give up a slot's draft, answered or not; the engine decodes the step without one.

        Raises:
            BadInputError: no such slot, or one without a draft.
        """
        held = self._of(slot)
        if held.ask is None:
            raise BadInputError.of(f"slot {slot}", "a draft to give up", "none")
        self._move_on(slot, held)
        self.counters.invalidated += 1

    def waiting(self) -> tuple[Ask, ...]:
        """Drafts that are under way, by slot: those to invalidate when the worker is gone."""
        held = (self._slots[slot] for slot in sorted(self._slots))
        return tuple(one.ask for one in held if one.ask is not None and not one.answered)

    def _of(self, slot: int) -> _Slot:
        if not 0 <= slot < self._count:
            raise BadInputError.of("slot", f"0 below {self._count}", str(slot))
        return self._slots.setdefault(slot, _Slot())

    def _move_on(self, slot: int, held: _Slot) -> None:
        if held.generation + 1 >= _GENERATIONS:
            raise BadInputError.of(f"slot {slot}", "a generation of 64 bits", "none is left")
        held.generation += 1
        held.ask, held.answered = None, False

    def _unknown(self, reply: Ask, expected: str) -> WrongError:
        self.counters.unknown += 1
        return WrongError(
            Refusal(
                Code.BAD_PROPOSAL,
                f"reply for slot {reply.slot}",
                expected,
                str(reply),
                source="docs/verifier.md",
                left="the reply was dropped; drafts under way have to be invalidated",
            )
        )
