"""What a row emits, from the sums of its tiles: one program for a row."""

import triton
import triton.language as tl

from pp4.kernels.purposes import Purpose
from pp4.verifier.device import columns, draw, flaws, words
from pp4.verifier.flaws import Flaw
from pp4.verifier.units import TICKET_WEIGHT, TOTAL, Mode

POINTERS = [
    "p_ptr", "sums_ptr", "keys_ptr", "ids_ptr", "tickets_ptr", "tokens_ptr", "mode_ptr", "key_ptr",
    "position_ptr", "round_ptr", "words_ptr", "accepted_ptr", "emitted_ptr", "error_ptr",
]  # fmt: skip
SCALARS = ["vocabulary", "depth", "tiles", "row_stride", "place_stride"]

_INACTIVE = tl.constexpr(int(Mode.INACTIVE))
_GREEDY_T0 = tl.constexpr(int(Mode.GREEDY_T0))
_DELTA = tl.constexpr(int(Mode.DELTA))
_WHOLE = tl.constexpr(TOTAL // TICKET_WEIGHT)
_ACCEPT = tl.constexpr(int(Purpose.ACCEPT))
_RESIDUAL = tl.constexpr(int(Purpose.RESIDUAL))
_BONUS = tl.constexpr(int(Purpose.BONUS))
_TARGET = tl.constexpr(int(Flaw.TARGET))
_NOTHING_LEFT = tl.constexpr(int(Flaw.RESIDUAL))


@triton.jit
def _accepted(
    proposal, target, largest, source, depth, PLACES: tl.constexpr, SCRIPTED: tl.constexpr
):
    """How many tokens a sound row accepts: up to its first rejection.

    target: (p of the row, place_stride); largest: first and rest of each place; source: (counter,
    words of the row where they are SCRIPTED).
    """
    ids_ptr, tickets_ptr, tokens_ptr, mode = proposal
    p, place_stride = target
    first, rest = largest
    counter, words_ptr = source
    place = tl.arange(0, PLACES)
    inside = place < depth
    tokens = tl.load(tokens_ptr + place, mask=inside, other=-1)
    at = place[:, None] * 32 + tl.arange(0, 32)[None, :]
    own = tl.load(ids_ptr + at, mask=inside[:, None], other=-1) == tokens[:, None]
    tickets = tl.load(tickets_ptr + at, mask=inside[:, None], other=0)
    tickets = tl.sum(tl.where(own, tickets, 0).to(tl.int64), 1)
    tickets = tl.where(mode == _DELTA, _WHOLE, tickets)
    found = tl.load(p + place * place_stride + tokens, mask=inside, other=0.0)
    weight = columns.floors(found) + tl.where(tokens == first, rest, 0)
    if SCRIPTED:
        u = words.halves(tl.load(words_ptr + place, mask=inside, other=0))
    else:
        u = words.streamed(counter, place, place * 0 + _ACCEPT)
    greedy = mode == _GREEDY_T0
    good = (greedy & (tokens == first)) | (~greedy & words.accepts(u, weight, tickets))
    return tl.min(tl.where(good & inside, PLACES, place), 0)


@triton.jit
def _last(
    proposal, target, largest, source, found, stop, depth, vocabulary,
    PLACES: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr, PART: tl.constexpr,
    SCRIPTED: tl.constexpr,
):  # fmt: skip
    """The token behind the accepted ones, and whether there was one; arguments as above."""
    _, _, _, mode = proposal
    p, place_stride = target
    counter, words_ptr = source
    sums_ptr, _, tiles = found
    firsts, rests = largest
    here = tl.arange(0, PLACES) == stop
    first = tl.sum(tl.where(here, firsts, 0), 0)
    rest = tl.sum(tl.where(here, rests, 0), 0)
    if mode == _GREEDY_T0:
        token, left = first, True
    else:
        rejected = stop < depth
        if SCRIPTED:
            u = words.halves(tl.load(words_ptr + depth + stop))
        else:
            u = words.streamed(counter, stop, tl.where(rejected, _RESIDUAL, _BONUS))
        p += stop * place_stride
        taken = draw.changes(proposal, stop, rejected, p, (first, rest))
        token, total = draw.drawn(
            sums_ptr + stop * tiles, tiles, (p, vocabulary), taken, (first, rest), u,
            TILES, TILE, PART,
        )  # fmt: skip
        left = total > 0
    return token, left


@triton.jit(do_not_specialize=SCALARS, do_not_specialize_on_alignment=POINTERS)
def finished(
    p_ptr, sums_ptr, keys_ptr,  # target and its tiles
    ids_ptr, tickets_ptr, tokens_ptr, mode_ptr, key_ptr, position_ptr, round_ptr,  # proposals
    words_ptr,  # [B, 2 * depth + 1] where SCRIPTED: those of ACCEPT, then of what comes last
    accepted_ptr, emitted_ptr, error_ptr,  # outputs
    vocabulary: tl.int32, depth: tl.int32, tiles: tl.int32,
    row_stride: tl.int64, place_stride: tl.int64,
    PLACES: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr, PART: tl.constexpr,
    SCRIPTED: tl.constexpr,
):  # fmt: skip
    """One row: its flaw, what it accepts, the token behind it.  Grid: rows."""
    row = tl.program_id(0).to(tl.int64)
    mode = tl.load(mode_ptr + row)
    at = row * depth
    proposal = (ids_ptr + at * 32, tickets_ptr + at * 32, tokens_ptr + at, mode)
    counter = (tl.load(key_ptr + row), tl.load(position_ptr + row), tl.load(round_ptr + row))
    accepted, last, error = 0, -1, 0
    if mode != _INACTIVE:
        error = flaws.first_flaw(proposal, counter, depth, vocabulary, PLACES)
        if error == 0:
            at = row * (depth + 1) * tiles
            found = (sums_ptr + at, keys_ptr + at, tiles)
            first, rest, sound = columns.merged(found, depth, PLACES, TILES, TILE)
            error = _TARGET
            if sound:
                target = (p_ptr + row * row_stride, place_stride)
                source = (counter, words_ptr + row * (2 * depth + 1))
                stop = _accepted(
                    proposal, target, (first, rest), source, depth, PLACES, SCRIPTED
                )  # fmt: skip
                token, left = _last(
                    proposal, target, (first, rest), source, found, stop, depth, vocabulary,
                    PLACES, TILES, TILE, PART, SCRIPTED,
                )  # fmt: skip
                error = tl.where(left, 0, _NOTHING_LEFT)
                accepted = tl.where(left, stop, 0)
                last = tl.where(left, token, -1)
    tl.store(accepted_ptr + row, accepted)
    tl.store(error_ptr + row, error)
    place = tl.arange(0, PLACES)
    tokens = tl.load(tokens_ptr + row * depth + place, mask=place < accepted, other=-1)
    tokens = tl.where(place == accepted, last, tokens)
    tl.store(emitted_ptr + row * (depth + 1) + place, tokens, mask=place <= depth)
