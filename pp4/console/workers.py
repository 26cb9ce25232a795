"""A worker as lines for a person and as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pp4.errors import Exit

if TYPE_CHECKING:
    from pp4.wire.drafts import Standing
    from pp4.wire.offers import Offer

_EXIT = {"serving": Exit.DONE, "failed": Exit.WRONG, "torn down": Exit.REFUSED}


def exit_of(standing: Standing) -> Exit:
    """0 while it serves, 1 once it has failed, 4 while it starts, 3 once it ends."""
    return _EXIT.get(standing.state, Exit.INCONCLUSIVE)


def record(standing: Standing) -> dict[str, object]:
    """Return the JSON document."""
    told = standing.model_dump(mode="json", exclude={"verb", "sequence"})
    return {**told, "exit": int(exit_of(standing))}


def lines(standing: Standing) -> Iterator[str]:
    """Yield what there is to say, a line for each thing."""
    since = standing.since.isoformat(timespec="seconds")
    yield f"state: {standing.state}, since {since}"
    if standing.ranks:
        yield f"rank processes: {', '.join(map(str, standing.ranks))}"
    if standing.offer is not None:
        yield from _offer(standing.offer)
    for name, count in standing.counters.items():
        yield f"{name.replace('_', ' ')}: {count}"


def _offer(offer: Offer) -> Iterator[str]:
    yield f"device: {offer.device} ({', '.join(offer.devices)})"
    yield f"sampled drafting: {'on' if offer.sampled else 'off'}"
    yield f"definition: {offer.definition}, sha256 {offer.definition_sha256}"
    yield f"protocol: {offer.abi}"
    bounds = ", ".join(f"{first} to {last - 1}" for first, last in offer.bounds)
    yield f"vocabulary: {offer.vocab} tokens, {offer.draft_vocab} of them drafted ({bounds})"
    depths = " or ".join(map(str, offer.depths))
    yield f"block: {offer.block} queries, {depths} positions drafted"
    batches = ", ".join(map(str, offer.batches))
    yield f"requests: {offer.slots} at once, {offer.context} tokens each, batches of {batches}"
