"""The first flaw of a row's proposal on the device; :mod:`pp4.verifier.flaws` defines them."""

import triton
import triton.language as tl

from pp4.kernels import dyadic24
from pp4.verifier.flaws import Flaw
from pp4.verifier.units import Mode

_INACTIVE = tl.constexpr(int(Mode.INACTIVE))
_SAMPLED = tl.constexpr(int(Mode.SAMPLED))
_LAST_MODE = tl.constexpr(int(Mode.DELTA))
_TICKETS_SUM = tl.constexpr(dyadic24.TICKETS)
_WORDS = tl.constexpr(1 << 32)

_MODE = tl.constexpr(int(Flaw.MODE))
_COUNTER = tl.constexpr(int(Flaw.COUNTER))
_IDS = tl.constexpr(int(Flaw.IDS))
_PADDING = tl.constexpr(int(Flaw.PADDING))
_DISTINCT = tl.constexpr(int(Flaw.DISTINCT))
_TICKETS = tl.constexpr(int(Flaw.TICKETS))
_TOKEN = tl.constexpr(int(Flaw.TOKEN))
_NONE = tl.constexpr(1 << 30)
"""While the least flaw is sought."""


@triton.jit
def _of_candidates(ids_ptr, ids, tickets, inside, sampled, vocabulary, PLACES: tl.constexpr):
    """The least flaw of each candidate; ids, tickets, inside: [PLACES, 32].  -> [PLACES, 32]."""
    slot = tl.arange(0, 32)[None, :]
    at = ids_ptr + tl.arange(0, PLACES)[:, None] * 32
    before = tl.load(at + slot - 1, mask=inside & (slot > 0), other=0)
    unlisted = ids < 0
    padding = (~unlisted & (before < 0)) | (unlisted & (tickets != 0))
    # every pair of a row is no more than half of it apart, one way round or the other
    twice = slot < 0
    for step in tl.static_range(1, 17):
        other = tl.load(at + ((slot + step) & 31), mask=inside, other=-1)
        twice = twice | (other == ids)
    most = tl.where(sampled, _TICKETS_SUM, 0)
    flaw = tl.where((tickets < 0) | (tickets > most), _TICKETS, _NONE)
    flaw = tl.where(twice & ~unlisted, _DISTINCT, flaw)
    flaw = tl.where(padding, _PADDING, flaw)
    flaw = tl.where((ids < -1) | (ids >= vocabulary), _IDS, flaw)
    return tl.where(inside, flaw, _NONE)


@triton.jit
def first_flaw(proposal, counter, depth, vocabulary, PLACES: tl.constexpr):
    """The first flaw of a row that is not inactive, 0 where it has none.

    proposal: (ids [depth, 32], tickets [depth, 32], tokens [depth], all in memory, mode).
    counter: (key, position, round).  Every load stays in the proposal, whatever it says.
    """
    ids_ptr, tickets_ptr, tokens_ptr, mode = proposal
    _, position, round = counter
    place = tl.arange(0, PLACES)
    slot = tl.arange(0, 32)[None, :]
    inside = (place < depth)[:, None] & (slot >= 0)
    at = place[:, None] * 32 + slot
    ids = tl.load(ids_ptr + at, mask=inside, other=-1)
    tickets = tl.load(tickets_ptr + at, mask=inside, other=0)
    tokens = tl.load(tokens_ptr + place, mask=place < depth, other=0)
    sampled = mode == _SAMPLED
    flaw = tl.min(_of_candidates(ids_ptr, ids, tickets, inside, sampled, vocabulary, PLACES), 1)

    whole = tl.sum(tickets.to(tl.int64), 1) == _TICKETS_SUM
    flaw = tl.where(sampled & ~whole, tl.minimum(flaw, _TICKETS), flaw)
    own = ids == tokens[:, None]
    owned = tl.max((own & (tickets > 0)).to(tl.int32), 1) > 0
    other = tl.max(((ids >= 0) & ~own & (slot == 0)).to(tl.int32), 1) > 0
    alone = (tokens >= 0) & (tokens < vocabulary) & ~other
    known = (sampled & owned) | (~sampled & alone)
    flaw = tl.where(known, flaw, tl.minimum(flaw, _TOKEN))

    first = tl.min(tl.where(place < depth, flaw, _NONE), 0)
    fits = (position >= 0) & (position < _WORDS) & (round >= 0) & (round < _WORDS)
    fits = fits & (position + depth < _WORDS)
    first = tl.where(fits, first, _COUNTER)
    first = tl.where((mode < _INACTIVE) | (mode > _LAST_MODE), _MODE, first)
    return tl.where(first == _NONE, 0, first)
