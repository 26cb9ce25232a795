"""Runs of a target over a sequence, cut into a prompt and steps."""

from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

from pp4.engine.interface import Row


@dataclass(frozen=True)
class Piece:
    """One step of a sequence.

    Attributes:
        kept: tokens of the sequence that it adds.
        tail: tokens behind them that are rejected.
        others: what neighbours add in the same step, and how much of it they keep, by slot.
        place: of the sequence's row among the rows.
    """

    kept: int
    tail: tuple[int, ...] = ()
    others: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    place: int = 0


@st.composite
def pieces(draw, total, *, slot, slots, window, vocab):
    """Any way to cut ``total`` tokens into steps, among neighbours in the other slots."""
    left, cut = total, []
    words = st.integers(0, vocab - 1)
    while left:
        kept = draw(st.integers(1, min(window, left)))
        tail = draw(st.lists(words, max_size=window - kept))
        others = {}
        for other in set(range(slots)) - {slot}:
            added = tuple(draw(st.lists(words, max_size=window)))
            if added:
                others[other] = added, draw(st.integers(0, len(added)))
        place = draw(st.integers(0, len(others)))
        cut.append(Piece(kept, tuple(tail), others, place))
        left -= kept
    return cut


def run(target, tokens, prompt, cut, slot=0):
    """Prefill the first ``prompt`` tokens, step the others; -> logits of the stepped, all features.

    A neighbour that has no room left starts again.
    """
    features, logits = [target.prefill(slot, tokens[:prompt])], []
    first = prompt
    for piece in cut:
        rows = []
        for other, (added, _) in piece.others.items():
            if target.length(other) + len(added) > target.context:
                target.prefill(other, [])
            rows.append(Row(other, added))
        mine = [*tokens[first : first + piece.kept], *piece.tail]
        rows.insert(piece.place, Row(slot, mine))
        found = target.step(rows)
        target.keep(slot, piece.kept)
        for other, (_, kept) in piece.others.items():
            target.keep(other, kept)
        # the next step may compute into the same arrays
        logits.append(found.logits[piece.place, : piece.kept].clone())
        features.append(found.features[piece.place, : piece.kept].clone())
        first += piece.kept
    return torch.cat(logits), torch.cat(features)


def one_by_one(count):
    """Plain decoding: a token a step, nothing beside it."""
    return [Piece(1)] * count


def tokens_of(count, vocab, seed=0):
    state = torch.Generator().manual_seed(2000 + seed)
    return torch.randint(vocab, (count,), generator=state).tolist()
