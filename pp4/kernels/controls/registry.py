"""The mutants, each with one defect.

The edits name whole phrases of the product's source.  Whoever changes the product there meets the
refusal of the test that builds them all, and moves the edit along.
"""

from __future__ import annotations

from typing import Final

from pp4.kernels.controls.edits import Edit, Mutant

_FUSED: Final = "sampled_fused.py"
_TILE: Final = "device/tile.py"
_CHAIN: Final = "device/chain.py"
_COLUMNS: Final = "device/columns.py"
_MISSING: Final = "device/missing.py"
_UNCACHED: Final = "device/uncached.py"
_MEETING: Final = "device/meeting.py"
_OUTCOME: Final = "device/outcome.py"
_EXCHANGE: Final = "device/exchange.py"

_PROTOCOL: Final = (
    Mutant(
        "flag_before_data",
        "Rank 0 publishes its flag, waits until the peer has consumed the slot, then stores",
        (
            Edit(
                _MEETING,
                "        tl.store(exchange.inbox_at(peer_workspace, row, epoch) + place, own)\n",
                "",
            ),
            Edit(
                _MEETING,
                "        exchange.release(peer_flag, epoch, INTERPRETED)\n",
                """\
        exchange.release(peer_flag, epoch, INTERPRETED)
        if first_id > 0:
            exchange.wait(ack, epoch, epoch, own_error, told, (deadline, polls), INTERPRETED)
        tl.store(exchange.inbox_at(peer_workspace, row, epoch) + place, own)
""",
            ),
        ),
    ),
    Mutant(
        "dropped_candidate",
        "The peer's best candidate is lost in the union",
        (
            Edit(
                _MEETING,
                "bitonic.union32(own, rising)",
                "bitonic.union32(own, tl.where(place == 0, 0, below))",
            ),
        ),
    ),
    Mutant(
        "reused_epoch",
        "The epoch of a row does not move on",
        (
            Edit(
                _MEETING,
                "                tl.store(epochs + row, epoch)\n                peer_ack",
                "                peer_ack",
            ),
            Edit(
                _MEETING,
                """\
    if fault == 0:
        tl.store(epochs + row, epoch)
    return fault
""",
                "    return fault\n",
            ),
        ),
    ),
    Mutant(
        "missing_stamp",
        "No row is ever stamped as complete",
        (Edit(_OUTCOME, "    tl.store(stamp_ptr + at, epoch)\n", ""),),
    ),
    Mutant(
        "ignores_sticky",
        "A wait looks at neither error word",
        (
            Edit(
                _EXCHANGE,
                """\
        or.b64 own, own, told;
        setp.ne.s64 stop, own, 0;
        @stop bra STICKY;
""",
                "",
            ),
            Edit(
                _EXCHANGE,
                """\
        if (own != 0) | (peer != 0):
            verdict = _STICKY
        elif word > high:
""",
                "        if word > high:\n",
            ),
        ),
    ),
    Mutant(
        "no_error_message",
        "The peer hears of no fault, and a row with bad logits sends nothing",
        (
            Edit(
                _EXCHANGE,
                """\
    if PAIRED:
        tl.store(peer_error + fault, tl.full([], 1, tl.int64))
        release(peer_error, fault.to(tl.int64), INTERPRETED)
""",
                "",
            ),
            Edit(
                _MEETING,
                """\
    if fault == 0:
        place = tl.arange(0, 32)
""",
                """\
    if (fault == 0) & (tl.max(own, 0) == words.BAD):
        fault = 2
    if fault == 0:
        place = tl.arange(0, 32)
""",
            ),
        ),
    ),
    Mutant(
        "padded_exchange",
        "Padded rows are tested, exchanged and reported like live ones",
        (
            Edit(
                _FUSED,
                "        if (mode != _INACTIVE) & known:\n",
                "        if (mode >= _INACTIVE) & known:\n",
            ),
            Edit(_MISSING, "(mode != 0) & (slot < 0)", "(mode >= 0) & (slot < 0)"),
            Edit(_FUSED, "        if kind == _INACTIVE:\n", "        if kind < _INACTIVE:\n"),
        ),
    ),
)

_SELECTION: Final = (
    Mutant(
        "swapped_bounds",
        "Each shard takes the id bounds of the other",
        (
            Edit(_FUSED, "    upper = (rank + shard) > 0\n", "    upper = (rank + shard) == 0\n"),
            Edit(_COLUMNS, "    upper = (shard + rank) > 0\n", "    upper = (shard + rank) == 0\n"),
            Edit(
                _FUSED,
                "                peer_first = tl.where(rank == 0, split, 0)\n",
                "                peer_first = tl.where(rank == 0, 0, split)\n",
            ),
            Edit(
                _FUSED,
                "                peer_last = tl.where(rank == 0, vocab, split)\n",
                "                peer_last = tl.where(rank == 0, split, vocab)\n",
            ),
        ),
    ),
    Mutant(
        "tie_other_way",
        "Of equal values the higher id comes first: in a tile, across tiles and across shards",
        (
            Edit(
                _TILE,
                "return (image << BITS) | (((1 << BITS) - 1) - number)",
                "return (image << BITS) | number",
            ),
            Edit(
                _TILE,
                "return (((1 << BITS) - 1) - (keys & ((1 << BITS) - 1))).to(tl.int32)",
                "return (keys & ((1 << BITS) - 1)).to(tl.int32)",
            ),
            Edit(_COLUMNS, "(token.to(tl.int64) ^ words.ALL_ONES)", "token.to(tl.int64)"),
            Edit(_UNCACHED, "(PANEL - 1 - tl.arange(0, PANEL))", "tl.arange(0, PANEL)"),
            Edit(_UNCACHED, "(PANEL - 1 - keys % PANEL)", "keys % PANEL"),
            Edit(_UNCACHED, "(token.to(tl.int64) ^ words.ALL_ONES)", "token.to(tl.int64)"),
            Edit(
                _UNCACHED,
                "tl.where((nth // 32) % 2 == 0, place, 31 - place)",
                "tl.where((nth // 32) % 2 == 0, 31 - place, place)",
            ),
            Edit(
                _CHAIN,
                "number * 32 + tl.where(number % 2 == 0, place, 31 - place)\n",
                "number * 32 + tl.where(number % 2 == 0, 31 - place, place)\n",
            ),
            Edit(
                _MEETING,
                "token = (found & words.ALL_ONES) ^ words.ALL_ONES",
                "token = found & words.ALL_ONES",
            ),
            Edit(
                _OUTCOME,
                "ids = ((union & words.ALL_ONES) ^ words.ALL_ONES).to(tl.int32)",
                "ids = (union & words.ALL_ONES).to(tl.int32)",
            ),
        ),
    ),
    Mutant(
        "mask_swapped",
        "Rows at T = 0 are sampled, and sampled rows take the argmax",
        (
            Edit(
                _FUSED,
                "union, fault, kind == _SAMPLED, counter",
                "union, fault, kind != _SAMPLED, counter",
            ),
        ),
    ),
    Mutant(
        "t0_draws",
        "A row at T = 0 gets tickets and consumes a draw",
        (Edit(_OUTCOME, "    if sampled & (fault == 0):\n", "    if fault == 0:\n"),),
    ),
    Mutant(
        "skip_bad_test",
        "Nobody looks for NaN or +inf",
        (
            Edit(
                _COLUMNS,
                "    found = tl.where(inside & bf16.is_bad(pattern), words.BAD, word)\n",
                "    found = word\n",
            ),
            Edit(
                _UNCACHED,
                "tl.where(image > 0xFF7F, words.BAD, tl.where(image < 0x80, 0, word))",
                "tl.where((image > 0xFF7F) | (image < 0x80), 0, word)",
            ),
        ),
    ),
)

_ORDER: Final = (
    Mutant(
        "missing_barrier",
        "No block barrier stands before a release, so only one warp's stores are published",
        (
            Edit(
                _CHAIN,
                "    tl.debug_barrier()\n    before = tl.atomic_add",
                "    before = tl.atomic_add",
            ),
            Edit(_EXCHANGE, "    tl.debug_barrier()\n    if INTERPRETED", "    if INTERPRETED"),
            Edit(_EXCHANGE, "    tl.debug_barrier()\n    tl.atomic_max", "    tl.atomic_max"),
        ),
    ),
    Mutant(
        "relaxed_signal",
        "The signals to the peer order nothing that was stored before them",
        (Edit(_EXCHANGE, "st.release.sys.global.s64", "st.relaxed.sys.global.s64"),),
    ),
    Mutant(
        "relaxed_chain",
        "The retirement count orders nothing, so the last tile may read old lists",
        (Edit(_CHAIN, 'sem="acq_rel", scope="gpu"', 'sem="relaxed", scope="gpu"'),),
    ),
)

MUTANTS: Final[dict[str, Mutant]] = {
    mutant.name: mutant for mutant in (*_PROTOCOL, *_SELECTION, *_ORDER)
}
"""Every mutant by its name."""
