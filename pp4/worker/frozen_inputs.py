"""The frozen inputs of a whole-worker run: everything that a worker is asked, from names alone.

All numbers come out of SHAKE-256 over the name of what they are for, so they are the same bytes on
every machine and with every library.  Nothing that a worker answers enters them: anchors and
accepted tokens are part of the set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal

import numpy as np

from pp4.receipts.canonical import dump
from pp4.wire.frozen import InputSet

Kind = Literal["mixed", "sampled", "greedy"]
_SEED: Final = "pp4 frozen inputs 1"
_TEMPERATURES: Final = ("0.25", "0.7", "1.0", "1.5")
_LONGEST_STEP: Final = 1 << 28
"""Rounds of a request rise by at most this much, so that they reach into the upper bits."""
_SIGN, _FRACTION, _EXPONENTS, _LOWEST = 0x8000, 0x7F, 7, 120
"""Features have one of eight exponents: from 2**-7 to just below 2 in size, and never zero."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a set is.

    Attributes:
        batches: rows of its blocks.
        depths: positions that are asked for.
        kinds: how the rows of a block are mixed, for each of the blocks of a batch size and depth,
            which follow one another on the same requests.
        longest: most tokens that a request begins with.
        parts: most pieces in which the features of a request's beginning come.
    """

    batches: tuple[int, ...]
    depths: tuple[int, ...]
    kinds: tuple[Kind, ...]
    longest: int
    parts: int


PLANS: Final[Mapping[InputSet, Plan]] = {
    "full": Plan(
        batches=(1, 3, 8),
        depths=(4, 5),
        kinds=("mixed", "sampled", "greedy") * 3,
        longest=96,
        parts=3,
    ),
    # an interpreter takes most of a second for a block in which anything is drawn
    "small": Plan(batches=(1, 3), depths=(4, 5), kinds=("mixed", "greedy"), longest=7, parts=2),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the inputs are made for.

    Attributes:
        vocab: tokens of the target.
        feature_width: BF16 values of one token's features.
        block: queries of a block.
    """

    vocab: int
    feature_width: int
    block: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Features of some tokens of a row, in the order in which they are appended."""

    row: int
    first: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for one row; the position is that of the first predicted token.

    The temperature is decimal text, which every machine spells the same.
    """

    position: int
    round: int
    anchor: int
    temperature: str

    @property
    def sampled(self) -> bool:
        """Whether it is drawn."""
        return self.temperature != "0"


@dataclass(frozen=True, slots=True)
class Turn:
    """One block: what is appended before it, and what is asked for each row."""

    pieces: tuple[Piece, ...]
    rows: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """Blocks of one batch size and depth, on requests that stay open; keys are 64 bits."""

    batch: int
    n_out: int
    keys: tuple[int, ...]
    turns: tuple[Turn, ...]

    def features(self, piece: Piece, sizes: Sizes) -> bytes:
        """Return ``[tokens, feature width]`` BF16, little-endian, every value finite."""
        size = 2 * piece.tokens * sizes.feature_width
        name = ("features", self.batch, self.n_out, piece.row, piece.first)
        words = np.frombuffer(_bytes(size, *name), "<u2")
        exponents = ((words >> 7) & _EXPONENTS) + _LOWEST
        patterns = (words & (_SIGN | _FRACTION)) | (exponents << 7)
        return patterns.astype("<u2").tobytes()


def scripts(inputs: InputSet, sizes: Sizes) -> tuple[Script, ...]:
    """Return the scripts of a set, by depth and batch size.

    Args:
        inputs: which set.
        sizes: what it is made for.
    """
    plan = PLANS[inputs]
    return tuple(
        _script(plan, sizes, batch, n_out) for n_out in plan.depths for batch in plan.batches
    )


def depths(inputs: InputSet) -> tuple[int, ...]:
    """Return the numbers of positions that a set asks for."""
    return PLANS[inputs].depths


def longest(inputs: InputSet) -> int:
    """Return a number of tokens that no request of a set exceeds."""
    plan = PLANS[inputs]
    return plan.longest + len(plan.kinds) * (max(plan.depths) + 1)


def input_set_sha256(inputs: InputSet, sizes: Sizes) -> str:
    """Return the digest over everything that is sent, and over what it was made for."""
    digest = hashlib.sha256(dump([_SEED, inputs, asdict(sizes)]))
    for script in scripts(inputs, sizes):
        keys = [str(key) for key in script.keys]
        digest.update(dump([script.batch, script.n_out, keys]))
        for turn in script.turns:
            for piece in turn.pieces:
                digest.update(dump(asdict(piece)))
                digest.update(script.features(piece, sizes))
            digest.update(dump([asdict(asked) for asked in turn.rows]))
    return digest.hexdigest()


def _bytes(size: int, *name: object) -> bytes:
    return hashlib.shake_256(" ".join(map(str, (_SEED, *name))).encode()).digest(size)


def _draws(count: int, *name: object) -> list[int]:
    """Whole numbers of 64 bits."""
    return [int(one) for one in np.frombuffer(_bytes(8 * count, *name), "<u8")]


def _script(plan: Plan, sizes: Sizes, batch: int, n_out: int) -> Script:
    name = (batch, n_out)
    rows = [list(_row(plan, sizes, batch, n_out, row)) for row in range(batch)]
    turns = tuple(
        Turn(
            pieces=tuple(piece for row in rows for piece in row[number][0]),
            rows=tuple(row[number][1] for row in rows),
        )
        for number in range(len(plan.kinds))
    )
    # a key whose top bit is set is one that a signed number cannot hold
    first, *others = _draws(batch, "key", *name)
    return Script(batch, n_out, (first | 1 << 63, *others), turns)


def _row(
    plan: Plan, sizes: Sizes, batch: int, n_out: int, row: int
) -> Iterator[tuple[tuple[Piece, ...], Asked]]:
    """Yield the pieces and the question of one row, turn by turn."""
    name = (batch, n_out, row)
    length, number = 0, 0
    for turn, kind in enumerate(plan.kinds):
        tokens, step, anchor, warmth = _draws(4, "turn", turn, *name)
        # the first turn begins a request, later ones append what was accepted and the token after
        added = 1 + (tokens % (n_out + 1) if turn else _first(plan, batch, row, tokens))
        pieces = _pieces(row, length, added, 1 if turn else plan.parts)
        length += added
        number += 1 + step % _LONGEST_STEP
        cold = _greedy(kind, batch, row + turn)
        yield (
            pieces,
            Asked(
                position=length + 1,
                round=number,
                anchor=anchor % sizes.vocab,
                temperature="0" if cold else _TEMPERATURES[warmth % len(_TEMPERATURES)],
            ),
        )


def _first(plan: Plan, batch: int, row: int, tokens: int) -> int:
    """Tokens beyond one that a request begins with: another number in each row of a batch."""
    return tokens % (plan.longest // batch) * batch + row


def _pieces(row: int, first: int, tokens: int, parts: int) -> tuple[Piece, ...]:
    """Cut tokens into at most so many pieces, the first ones the larger."""
    sizes = [tokens // parts + (place < tokens % parts) for place in range(parts)]
    pieces = []
    for size in filter(None, sizes):
        pieces.append(Piece(row, first, size))
        first += size
    return tuple(pieces)


def _greedy(kind: Kind, batch: int, place: int) -> bool:
    """Whether a row is greedy; in mixed blocks every other one, a row alone is drawn."""
    return kind == "greedy" or (kind == "mixed" and batch > 1 and place % 2 == 1)
