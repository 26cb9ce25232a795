"""The owner's side of two ranks that serve; see :class:`pp4.worker.drafting.Drafting`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from pp4.clock import SystemClock
from pp4.drafter import packing
from pp4.drafter.config import DrafterConfig
from pp4.errors import BadInputError, Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.kernels.faults import Fault
from pp4.kernels.link import EPOCH_LIMIT
from pp4.kernels.sampled_fused import GREEDY, SAMPLED
from pp4.wire.drafts import reply_bytes
from pp4.wire.facts import Identity, Library, Primed, Shape, read
from pp4.wire.offers import Offer
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.drafting import Part, Row
from pp4.worker.epochs import Epochs
from pp4.worker.ranks import Pair
from pp4.worker.release import both_ranks
from pp4.worker.serving import starting
from pp4.worker.serving.agreement import HARMLESS, Left, grown_alike, left_by
from pp4.worker.serving.arena import Arena, Sizes
from pp4.worker.serving.conversation import Conversation
from pp4.worker.serving.setup import FEATURE_BYTES, Setup, shape_of

_ASK_S = 60.0
_LIBRARIES_S = 120.0
_DRAIN_AT = 0.9
"""Part of the epochs after which a new rendezvous is made, between two batches."""


class PairDrafting:
    """Two ranks, from their fork to their proven end.

    Args:
        homes: directories that the ranks may write; the pair's is theirs alone.
        seats: where they run.
        setup: what they serve.
        config: of the checkpoint.
    """

    def __init__(self, homes: Homes, seats: Seats, setup: Setup, config: DrafterConfig) -> None:
        self._homes, self._seats, self.setup, self.config = homes, seats, setup, config
        sizes = Sizes(batch=setup.largest, block=config.block, features=FEATURE_BYTES)
        self._arena = Arena(sizes)
        # forked here, before there is an event loop or a thread
        self.pair = Pair(homes, seats, arena=self._arena)
        self._ranks = Conversation(self.pair)
        self._epochs = Epochs(0, 0)
        self._generation = 0
        self._places: dict[int, _Place] = {}
        self.kernels: list[Primed] = []
        self.bias: list[Primed] = []
        self.clock = SystemClock()
        self.cache_hits = self.cache_misses = 0
        self._names: tuple[Identity, ...] = ()
        self._made: Offer | None = None

    @property
    def failed(self) -> Pp4Error | None:
        """The error that ended the ranks."""
        return self._ranks.failed

    @property
    def offer(self) -> Offer:
        """What they can do; there is none before :meth:`start`."""
        if self._made is None:
            raise WrongError(Refusal(Code.UNPRIMED, "worker", "started ranks", "none"))
        return self._made

    @property
    def capacity(self) -> int:
        """Bytes of features that one call takes at most."""
        return self._arena.sizes.features

    async def lost(self) -> Pp4Error:
        """Wait until the ranks fail; -> the error."""
        return await self._ranks.lost()

    # -- starting ---------------------------------------------------------------------------

    async def prime(self) -> None:
        """Load the checkpoint and compile; nothing is launched between the ranks yet.

        Raises:
            Pp4Error: a rank refused or died, or they differ.
        """
        self._ranks.listen()
        self._names, self.bias = await starting.load(self._ranks, self.setup)
        if self.setup.sampled and not self._seats.reference:
            self.kernels = await starting.prime(
                self._ranks, self._seats, self.config, self.setup.largest
            )
        await self._ranks.both("seal", {}, _ASK_S)

    async def serve(self) -> None:
        """Make the rendezvous and record every shape; from now on there is an offer.

        Raises:
            Pp4Error: a rank refused or died.
        """
        await self._connect()
        self._made = starting.offer(self.setup, self.config, self._names)

    async def _connect(self) -> None:
        """A new rendezvous and the shapes that are recorded over it."""
        try:
            if self.setup.sampled:
                self._generation += 1
                self._epochs = await starting.link(self._ranks, self.setup, self._generation)
            await starting.capture(self._ranks, self.setup)
        except RefusedError as error:
            # refused alike, but between two links: what is recorded is of one that may be gone
            self._ranks.fail(error)
            raise

    # -- requests ---------------------------------------------------------------------------

    async def open(self, request: int) -> None:
        """Make room for a request."""
        given = {"request": request}
        found = await self._ranks.both("serve.open", given, self.setup.block_s, HARMLESS)
        self._places[request] = _Place(self._same("slot", found))

    async def append(self, parts: Sequence[Part]) -> list[int | RefusedError]:
        """Keep the features of the tokens that follow, of several requests."""
        self._lay(parts)
        given = {"parts": [{"request": one.request, "tokens": one.tokens} for one in parts]}
        found = await self._ranks.both("serve.append", given, self.setup.block_s, HARMLESS)
        try:
            told = grown_alike(found, len(parts))
        except WrongError as error:
            raise self._ranks.fail(error) from error
        for part, one in zip(parts, told, strict=True):
            if isinstance(one, int):
                self._places[part.request].length = one
        return told

    def _lay(self, parts: Sequence[Part]) -> None:
        """Write features into the arena, one part behind the other."""
        width = 2 * self.config.feature_width
        wanted, found = (
            [part.tokens * width for part in parts],
            [part.features.nbytes for part in parts],
        )
        if found != wanted or not 0 < sum(wanted) <= self.capacity:
            expected = f"{wanted} bytes, 1 to {self.capacity} together"
            raise BadInputError.of("features", expected, f"{found} bytes")
        place = self._arena.feature_bytes(sum(wanted))
        for part, end in zip(parts, accumulate(wanted), strict=True):
            place[end - part.features.nbytes : end] = np.frombuffer(part.features, np.uint8)

    async def close(self, request: int) -> None:
        """Forget a request."""
        await self._ranks.both("serve.close", {"request": request}, self.setup.block_s)
        del self._places[request]

    def _same(self, name: str, found: tuple[dict[str, Any], dict[str, Any]]) -> int:
        """What both ranks count alike, or they are over."""
        first, second = (one[name] for one in found)
        if first != second:
            found_apart = f"{first}, {second}"
            differ = Refusal(Code.RANKS_DIFFER, name, "the same on both ranks", found_apart)
            raise self._ranks.fail(WrongError(differ))
        return int(first)

    # -- blocks -----------------------------------------------------------------------------

    async def draft(self, n_out: int, rows: Sequence[Row]) -> list[bytes]:
        """Draft one block for each row; all leave or none."""
        batch = next(size for size in self.setup.batches if size >= len(rows))
        sampled = self.setup.sampled and any(row.sampled for row in rows)
        modes = self._write(batch, rows)
        given = {"batch": batch, "n_out": n_out, "rows": len(rows)}
        found = await self._ranks.both("serve.draft", given, self.setup.block_s)
        self.cache_hits, self.cache_misses = found[0]["cache_hits"], found[0]["cache_misses"]
        drafted, first = left_by(self._arena, 0, batch, n_out)
        _, second = left_by(self._arena, 1, batch, n_out)
        self._release((first, second), modes, n_out, sampled=sampled)
        size = reply_bytes(self.config.block)
        replies = [row.tobytes()[:size] for row in drafted[: len(rows)]]
        if sampled:
            await self._drain()
        return replies

    def _write(self, batch: int, rows: Sequence[Row]) -> list[int]:
        """Lay the inputs out; -> the mode of every row, padding included."""
        inputs = np.zeros(1, packing.input_type(batch))
        record = inputs[0]
        places = [self._places[row.request] for row in rows]
        members = {
            "slot": [place.slot for place in places],
            "length": [place.length for place in places],
            "anchor": [row.anchor for row in rows],
            "mode": [SAMPLED if row.sampled else GREEDY for row in rows],
            "position": [row.position for row in rows],
            "round": [row.round for row in rows],
            "key": [row.key for row in rows],
        }
        for name, values in members.items():
            record[name][: len(rows)] = values
        self._arena.input_bytes(batch)[:] = inputs.view(np.uint8)
        modes: list[int] = record["mode"].tolist()
        return modes

    def _release(
        self, left: Sequence[Left], modes: Sequence[int], n_out: int, *, sampled: bool
    ) -> None:
        """Let a batch's replies leave, or end the ranks; the original selector stamps nothing."""
        unstamped = ((0,) * n_out,) * len(modes)
        stamps = self._epochs.expected(modes, n_out) if sampled else unstamped
        release = both_ranks(left, stamps)
        if release.why is not None:
            raise self._ranks.fail(WrongError(_kept(release.why, left)))
        if sampled:
            self._epochs.advance(modes, n_out)

    async def _drain(self) -> None:
        """Start anew before a row runs out of epochs; nothing is in flight between two batches."""
        if self._epochs.furthest >= self._drained_at:
            await self._connect()

    @property
    def _drained_at(self) -> float:
        """Epochs after which no block is begun: behind them a whole one may not fit."""
        given = self.setup.waits.epochs
        most = EPOCH_LIMIT - self._epochs.start if given is None else given
        return max(1, min(_DRAIN_AT * most, most - self.setup.depths[-1] + 1))

    @property
    def epochs_left(self) -> float | None:
        """Part of the epochs that is left before a new rendezvous; None where there is no link."""
        if not self._epochs.rows:
            return None
        return max(0.0, 1.0 - self._epochs.furthest / self._drained_at)

    # -- what was loaded ----------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """What the kernels are compiled for."""
        return shape_of(self.config)

    @property
    def versions(self) -> dict[str, str]:
        """Of Python, torch and Triton."""
        who = self._names[0]
        return {"python": who.python, "torch": who.torch, "triton": who.triton}

    async def libraries(self) -> tuple[Library, ...]:
        """What rank 0 has mapped; hashed only where something depends on it."""
        if not self.setup.sampled or not self._seats.gpus:
            return ()
        found, _ = await self._ranks.both("libraries", {}, _LIBRARIES_S)
        return tuple(read(Library, one) for one in found["libraries"])

    async def compilations(self) -> list[int | None]:
        """How many each rank has seen since it was primed; None where nothing could be seen."""
        found = await self._ranks.both("compilations", {}, _ASK_S)
        return [one["compilations"] for one in found]

    # -- the end ----------------------------------------------------------------------------

    async def teardown(self) -> dict[str, Any]:
        """End both ranks; -> their pids, whether each is proven dead, and what is left of them."""
        began = time.monotonic_ns()
        self._ranks.fall_silent()
        # a process takes its time to end, and clients are answered meanwhile
        buried = await asyncio.to_thread(self.pair.bury)
        for path in self._homes.pair.glob("link-*"):
            path.unlink(missing_ok=True)
        left = len(list(self._homes.pair.glob("link-*")))
        return {**buried, "links_left": left, "elapsed_ns": time.monotonic_ns() - began}


class _Place:
    """Where a request's features lie on both ranks, and how many there are."""

    __slots__ = ("length", "slot")

    def __init__(self, slot: int) -> None:
        self.slot, self.length = slot, 0


def _kept(why: Code, left: Sequence[Left]) -> Refusal:
    """Why no reply of a batch left."""
    words = "; ".join(
        f"rank {one.rank}: own {Fault(one.own_error).name}, peer {Fault(one.peer_error).name}"
        for one in left
    )
    return Refusal(
        why,
        "batch",
        "clean words, the stamps that follow and equal outputs on both ranks",
        words,
        left="nothing of the batch",
        next="restart the worker",
    )
