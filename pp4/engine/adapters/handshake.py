"""The guarded handshake: an engine says what it was set up for, and takes a worker that offers it.

Pure: it looks at the offer that HELLO brought and at nothing else.  An :class:`Agreed` comes from
here alone and every adapter is made of one, so that no reply is converted before its worker was
held against what the engine wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn, Self, final

from pp4.drafter.config import bounds_of
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels.dyadic24 import DEFINITION, TAU, WIDTH, definition_digest
from pp4.verifier.units import MAX_VOCABULARY
from pp4.wire.offers import ABI, Offer

Bounds = tuple[tuple[int, int], tuple[int, int]]
_EQUAL: Final = (
    "abi",
    "definition",
    "definition_sha256",
    "tau",
    "candidates",
    "vocab",
    "draft_vocab",
    "bounds",
    "block",
)
"""Members that an offer has under the same name, and has to have with the same value."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an engine was set up for; :meth:`of` fills in what this pp4 verifies by.

    Attributes:
        vocab: tokens of the target.
        draft_vocab: tokens that can be drafted.
        bounds: first and past-the-last draft id of each rank.
        block: queries of the drafter's block.
        depth: tokens of each proposal.
        sampled: the engine's switch; where it is off, every request asks for greedy drafts.
        abi: meaning of requests and replies.
        definition: name of the numerical definition.
        definition_sha256: digest of its constants and vectors.
        tau: temperature of q, as its shortest decimal text.
        candidates: of a position, K.
    """

    vocab: int
    draft_vocab: int
    bounds: Bounds
    block: int
    depth: int
    sampled: bool
    abi: str
    definition: str
    definition_sha256: str
    tau: str
    candidates: int

    @classmethod
    def of(
        cls, *, vocab: int, block: int, depth: int, sampled: bool, draft_vocab: int | None = None
    ) -> Self:
        """What is wanted for a target and its drafter, by the definition of this pp4.

        Args:
            vocab: tokens of the target, up to 2**18.
            block: queries of the drafter's block.
            depth: tokens of each proposal, up to ``block``.
            sampled: the engine's switch.
            draft_vocab: tokens that can be drafted; all of them where it is None.

        Raises:
            BadInputError: a number that no drafter has.
        """
        drafted = vocab if draft_vocab is None else draft_vocab
        _require("vocab", vocab, 2, MAX_VOCABULARY)
        _require("draft_vocab", drafted, 2, vocab)
        _require("block", block, 1, 1 << 16)
        _require("depth", depth, 1, block)
        if type(sampled) is not bool:
            raise BadInputError.of("wanted sampled", "True or False", repr(sampled))
        first, second = bounds_of(drafted, 2)
        return cls(
            vocab=vocab,
            draft_vocab=drafted,
            bounds=(first, second),
            block=block,
            depth=depth,
            sampled=sampled,
            abi=ABI,
            definition=DEFINITION,
            definition_sha256=definition_digest(),
            tau=TAU,
            candidates=WIDTH,
        )


def _require(name: str, value: int, least: int, most: int) -> None:
    # a bool is an int, and no size
    if type(value) is not int or not least <= value <= most:
        raise BadInputError.of(f"wanted {name}", f"an integer, {least} to {most}", repr(value))


@final
@dataclass(frozen=True, slots=True, init=False)
class Agreed:
    """Proof that a worker offers what an engine wants; only :func:`agreed_on` makes one.

    Attributes:
        wanted: by the engine.
        offer: of the worker.
    """

    wanted: Wanted
    offer: Offer

    def __new__(cls) -> Agreed:
        """Refuse: an agreement follows from an offer; copies and stored ones come here too."""
        raise TypeError("an Agreed is made by agreed_on() alone")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("an Agreed has no subclasses")

    @property
    def sampled(self) -> bool:
        """Whether proposals may be sampled: the switches of engine and worker are both on."""
        return self.wanted.sampled and self.offer.sampled

    def asked_temperature(self, temperature: float) -> float:
        """The temperature to ask for a draft with: the request's, or 0 where nothing is sampled."""
        return temperature if self.wanted.sampled else 0.0


def agreed_on(wanted: Wanted, offer: Offer) -> Agreed:
    """Hold a worker's offer against what an engine wants.

    A worker whose switch is off is no mismatch: it drafts greedily, which every engine takes.

    Args:
        wanted: what the engine was set up for.
        offer: what WELCOME brought.

    Returns:
        What an adapter is made of.

    Raises:
        RefusedError: ``ABI_MISMATCH``, once for everything that differs, with both values.
    """
    differences = list(_differences(wanted, offer))
    if differences:
        names = ", ".join(name for name, _, _ in differences)
        expected = "; ".join(f"{name} {value}" for name, value, _ in differences)
        found = "; ".join(f"{name} {value}" for name, _, value in differences)
        raise RefusedError(Refusal(Code.ABI_MISMATCH, f"handshake, {names}", expected, found))
    agreed = object.__new__(Agreed)
    object.__setattr__(agreed, "wanted", wanted)
    object.__setattr__(agreed, "offer", offer)
    return agreed


def _differences(wanted: Wanted, offer: Offer) -> Iterator[tuple[str, str, str]]:
    """Name, expected and found of each member that differs, as text."""
    for name in _EQUAL:
        expected, found = getattr(wanted, name), getattr(offer, name)
        if expected != found:
            yield name, repr(expected), repr(found)
    if wanted.depth not in offer.depths:
        yield "depth", repr(wanted.depth), f"one of {offer.depths!r}"
