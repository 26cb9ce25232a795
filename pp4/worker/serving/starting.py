"""How two ranks come to serve: load, prime, meet, record."""

from __future__ import annotations

from collections.abc import Sequence

from pp4.drafter.config import DrafterConfig, bounds_of
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.kernels.dyadic24 import DEFINITION, TAU, WIDTH, definition_digest
from pp4.wire.asks import PrimeOfRank
from pp4.wire.facts import Identity, Primed, read
from pp4.wire.offers import Offer
from pp4.worker.device import Seats
from pp4.worker.epochs import Epochs, start_epoch
from pp4.worker.pair_priming import require_equal
from pp4.worker.serving.conversation import Conversation
from pp4.worker.serving.setup import Setup, shape_of
from pp4.worker.serving.verbs import Capture, Load

_LOAD_S = 600.0
_PRIME_S = 240.0
_MEET_S = 120.0
_CAPTURE_S = 300.0
_HARMLESS = frozenset(Code) - {Code.INTERNAL}
"""Nothing was launched yet: whatever both ranks refuse alike is said as they say it."""


async def load(ranks: Conversation, setup: Setup) -> tuple[tuple[Identity, Identity], list[Primed]]:
    """Load the checkpoint on both ranks; -> who they are, and what makes bias rows on each.

    Raises:
        WrongError: ``KERNELS_DIFFER``.
    """
    who = await ranks.both("identity", {}, _MEET_S, _HARMLESS)
    asked = Load(
        checkpoint=str(setup.checkpoint),
        target=None if setup.target is None else str(setup.target),
        slots=setup.slots,
        context=setup.context,
        cache_mib=setup.cache_mib,
        sampled=setup.sampled,
    )
    found = await ranks.both("serve.load", asked.model_dump(), _LOAD_S, _HARMLESS)
    first, second = (read(Identity, one) for one in who)
    bias = [read(Primed, one["bias"]) for one in found if one["bias"] is not None]
    if bias:
        _require_same(ranks, bias)
    return (first, second), bias


async def prime(
    ranks: Conversation, seats: Seats, config: DrafterConfig, largest: int
) -> list[Primed]:
    """Compile and load the kernel on both ranks; -> what each primed.

    Raises:
        WrongError: ``KERNELS_DIFFER``.
        RefusedError: ``OCCUPANCY``, the largest batch leaves no room to run what it waits for.
    """
    asked = PrimeOfRank(shape=shape_of(config), shards=2 if seats.solo else 1, recorded=True)
    found = await ranks.both("prime", asked.model_dump(), _PRIME_S, _HARMLESS)
    primed = [read(Primed, one) for one in found]
    _require_same(ranks, primed)
    room = min((one.resident for one in primed if one.resident is not None), default=None)
    if room is not None and largest >= room and not seats.solo:
        expected = f"batches of fewer rows than the {room} blocks that a GPU holds at once"
        raise RefusedError(Refusal(Code.OCCUPANCY, "batches", expected, f"{largest} rows"))
    return primed


def _require_same(ranks: Conversation, primed: Sequence[Primed]) -> None:
    """Both ranks run the same binary, or they are over."""
    try:
        require_equal(primed)
    except WrongError as error:
        raise ranks.fail(error) from error


async def link(ranks: Conversation, setup: Setup, generation: int) -> Epochs:
    """A rendezvous of both ranks; -> the epochs that both count from."""
    start = start_epoch(setup.nonce, setup.fence, generation)
    given = {
        "generation": generation,
        "rows": setup.largest,
        "start": start,
        "waits": setup.waits.model_dump(),
    }
    await ranks.both("link", given, _MEET_S, _HARMLESS)
    await ranks.both("connect", {}, _MEET_S, _HARMLESS)
    return Epochs(start, setup.largest)


async def capture(ranks: Conversation, setup: Setup) -> None:
    """Record every shape on both ranks."""
    asked = Capture(batches=setup.batches, depths=setup.depths)
    await ranks.both("serve.capture", asked.model_dump(), _CAPTURE_S, _HARMLESS)


def offer(setup: Setup, config: DrafterConfig, names: Sequence[Identity]) -> Offer:
    """What ranks that were started so can do."""
    first, second = names
    bounds = bounds_of(config.draft_vocab, 2)
    return Offer(
        definition=DEFINITION,
        definition_sha256=definition_digest(),
        tau=TAU,
        candidates=WIDTH,
        vocab=config.vocab,
        draft_vocab=config.draft_vocab,
        bounds=(bounds[0], bounds[1]),
        block=config.block,
        depths=setup.depths,
        feature_width=config.feature_width,
        context=setup.context,
        slots=setup.slots,
        batches=setup.batches,
        sampled=setup.sampled,
        device=first.device_name,
        devices=(first.device, second.device),
    )
