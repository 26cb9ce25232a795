"""A proposal that may be used: every field of a reply is checked before anything is drawn from it.

What is checked is the form.  A reply that is well formed and false, such as tickets moved from one
candidate to another, cannot be told from a true one by looking at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pp4.errors import BadInputError, Code, Refusal, WrongError
from pp4.kernels import dyadic24, philox
from pp4.kernels.purposes import Purpose
from pp4.verifier.units import MAX_VOCABULARY, Mode
from pp4.wire import drafts

_SOURCE: Final = "docs/verifier.md"
_LEFT: Final = "nothing was drawn from it; the step is decoded without a draft"


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """One block to verify; made by :func:`validated` alone.

    Attributes:
        mode: SAMPLED, GREEDY_T0 or DELTA.
        ids: int32 ``[depth, 32]``, -1 where no candidate is.
        tickets: int32 ``[depth, 32]``, q in units of 2**-24; zero unless SAMPLED.
        tokens: int32 ``[depth]``.
        vocabulary: of the target; ids lie below it.
        generation: of the slot when the draft was asked for.
        slot: of the engine.
        round: of the request.
        position: absolute, of the first token.
        key: the request's own, 64 bits.
    """

    mode: Mode
    ids: NDArray[np.int32]
    tickets: NDArray[np.int32]
    tokens: NDArray[np.int32]
    vocabulary: int
    generation: int
    slot: int
    round: int
    position: int
    key: int

    @property
    def depth(self) -> int:
        """How many tokens are proposed."""
        return len(self.tokens)

    def tickets_of_token(self, index: int) -> int:
        """Tickets of the token at a position of the block; above 0 where it was sampled."""
        return int(self.tickets[index][self.ids[index] == self.tokens[index]].sum())

    def word(self, position: int, purpose: Purpose) -> int:
        """The 64-bit word of a decision: words 0 (high) and 1 (low) of its Philox block.

        Word 0 is the high one, as in a draft, whose ticket is the top of word 0.
        """
        block = philox.stream(key=self.key, position=position, round=self.round, purpose=purpose)
        return block[0] << 32 | block[1]


def bad_proposal(where: str, expected: str, found: str) -> WrongError:
    """The refusal of a proposal; ``where`` names the check."""
    return WrongError(
        Refusal(Code.BAD_PROPOSAL, f"proposal {where}", expected, found, source=_SOURCE, left=_LEFT)
    )


def require_temperature(temperature: float) -> None:
    """Refuse what is no temperature of a request.

    Raises:
        BadInputError: below 0, infinite, or no number.
    """
    if not 0 <= temperature < float("inf"):
        raise BadInputError.of("temperature", "0 or above, finite", repr(temperature))


def mode_of(drafted: drafts.Mode, temperature: float) -> Mode:
    """Return the mode by which a reply is verified.

    Args:
        drafted: by which selector the worker says that it drafted.
        temperature: of the request, 0 or above.

    Raises:
        BadInputError: no temperature.
        WrongError: BAD_PROPOSAL: a sampled draft for a request at temperature 0.
    """
    require_temperature(temperature)
    if temperature > 0:
        return Mode.SAMPLED if drafted == "sampled" else Mode.DELTA
    if drafted == "sampled":
        raise bad_proposal("mode", "a greedy draft at temperature 0", "a sampled one")
    return Mode.GREEDY_T0


def validated(
    *,
    ids: NDArray[np.int32],
    q: NDArray[np.float32],
    tokens: NDArray[np.int32],
    mode: Mode,
    depth: int,
    definition: str,
    vocabulary: int,
    generation: int,
    slot: int,
    round: int,
    position: int,
    key: int,
    errors: NDArray[np.int32] | None = None,
) -> Proposal:
    """Check a reply and copy it.

    Args:
        ids: int32 ``[depth, 32]``; -1, behind the last candidate, where there is none.
        q: float32 ``[depth, 32]``.
        tokens: int32 ``[depth]``.
        mode: see :func:`mode_of`.
        depth: as it was negotiated, 1 or more.
        definition: id of the numerical definition that the worker drafts by.
        vocabulary: of the target, 1 to 2**18.
        generation: 64 bits.
        slot: 32 bits.
        round: 32 bits.
        position: absolute, of the first token; with the bonus token's it fits 32 bits.
        key: the request's own, 64 bits.
        errors: error words int32 ``[depth]``, where the transport carries them.

    Returns:
        The proposal, its arrays read-only copies.

    Raises:
        WrongError: BAD_PROPOSAL; ``where`` names the first check that failed.
    """
    _check_numbers(
        depth=(depth, 1, 1 << 16),
        vocabulary=(vocabulary, 1, MAX_VOCABULARY + 1),
        generation=(generation, 0, 1 << 64),
        slot=(slot, 0, 1 << 32),
        round=(round, 0, 1 << 32),
        key=(key, 0, 1 << 64),
    )
    _check_numbers(position=(position, 0, (1 << 32) - depth))
    if definition != dyadic24.DEFINITION:
        raise bad_proposal("definition", dyadic24.DEFINITION, repr(definition))
    if not isinstance(mode, Mode) or mode is Mode.INACTIVE:
        raise bad_proposal("mode", "SAMPLED, GREEDY_T0 or DELTA", repr(mode))
    _check_array("ids", ids, np.dtype(np.int32), (depth, dyadic24.WIDTH))
    _check_array("q", q, np.dtype(np.float32), (depth, dyadic24.WIDTH))
    _check_array("tokens", tokens, np.dtype(np.int32), (depth,))
    if errors is not None:
        _check_array("errors", errors, np.dtype(np.int32), (depth,))
        _refuse_any("errors", errors != 0, "no error word", errors)
    # copied first: what lies in a buffer that is shared could change after it was checked
    ids, q, tokens = ids.copy(), q.copy(), tokens.copy()
    _check_ids(ids, vocabulary)
    tickets = _tickets(ids, q)
    if mode is Mode.SAMPLED:
        _check_sampled(ids, tickets, tokens)
    else:
        _check_greedy(ids, tickets, tokens, vocabulary)
    for array in (ids, tickets, tokens):
        array.setflags(write=False)
    return Proposal(mode, ids, tickets, tokens, vocabulary, generation, slot, round, position, key)


def _check_numbers(**bounds: tuple[int, int, int]) -> None:
    for name, (value, first, end) in bounds.items():
        # a bool is an int, and no number of a slot
        if type(value) is not int or not first <= value < end:
            raise bad_proposal(name, f"an integer from {first} below {end}", repr(value))


def _check_array(
    name: str, array: object, dtype: np.dtype[np.generic], shape: tuple[int, ...]
) -> None:
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == shape:
        return
    found = type(array).__name__
    if isinstance(array, np.ndarray):
        found = f"{array.dtype} {list(array.shape)}"
    raise bad_proposal(name, f"{dtype} {list(shape)}", found)


def _refuse_any(
    name: str, bad: NDArray[np.bool_], expected: str, values: NDArray[np.generic]
) -> None:
    """Refuse at the first place that is bad."""
    # to find places takes many times as long as to see that there are none
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise bad_proposal(f"{name}{list(place)}", expected, str(values[place]))


def _check_ids(ids: NDArray[np.int32], vocabulary: int) -> None:
    _refuse_any("ids", (ids < -1) | (ids >= vocabulary), f"-1, or below {vocabulary}", ids)
    listed = ids >= 0
    ended = np.logical_or.accumulate(~listed, axis=1)
    _refuse_any("padding", listed & ended, "no id behind a -1", ids)
    ordered = np.sort(ids, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        again = np.where(twice, ordered[:, 1:], -1).max(axis=1)
        _refuse_any("distinct ids", again >= 0, "no id twice", again)


def _tickets(ids: NDArray[np.int32], q: NDArray[np.float32]) -> NDArray[np.int32]:
    """The tickets of q; scaling by a power of two is exact."""
    # a NaN compares false
    _refuse_any("q", ~((q >= 0) & (q <= 1)), "a probability", q)
    scaled = q.astype(np.float64) * dyadic24.TICKETS
    _refuse_any("q", scaled != np.floor(scaled), "a multiple of 2**-24", q)
    _refuse_any("padding", (ids < 0) & (q != 0), "q 0 where no candidate is", q)
    return scaled.astype(np.int32)


def _check_sampled(
    ids: NDArray[np.int32], tickets: NDArray[np.int32], tokens: NDArray[np.int32]
) -> None:
    sums = tickets.sum(axis=1, dtype=np.int64)
    _refuse_any("tickets", sums != dyadic24.TICKETS, f"a sum of {dyadic24.TICKETS}", sums)
    owned = (ids == tokens[:, None]) & (tickets > 0)
    _refuse_any("tokens", ~owned.any(axis=1), "a listed id with tickets", tokens)


def _check_greedy(
    ids: NDArray[np.int32],
    tickets: NDArray[np.int32],
    tokens: NDArray[np.int32],
    vocabulary: int,
) -> None:
    _refuse_any("q", tickets != 0, "zero throughout a greedy draft", tickets)
    _refuse_any("tokens", (tokens < 0) | (tokens >= vocabulary), f"below {vocabulary}", tokens)
    other = (ids[:, 0] >= 0) & (ids[:, 0] != tokens)
    _refuse_any("tokens", other, "the first id, where ids are listed", tokens)
