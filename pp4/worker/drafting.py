"""What a server asks of whoever drafts: the seam between sockets and ranks.

One call runs at a time; whoever calls takes care of that.  Every call may refuse what was asked
(a :class:`pp4.errors.RefusedError`), which leaves everything as it was.  Any other error is the end
of these ranks: it is kept in :attr:`Drafting.failed`, and every later call raises it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pp4.errors import Pp4Error, RefusedError
from pp4.wire.offers import Offer


@dataclass(frozen=True, slots=True)
class Row:
    """One request's part of a batch.

    Attributes:
        request: the owner's number of an open request.
        key: the request's own 64-bit key.
        position: absolute position of the first predicted token.
        round: the request's round, 32 bits.
        anchor: the last accepted token, whose features are not known yet.
        sampled: whether its temperature is above 0.
    """

    request: int
    key: int
    position: int
    round: int
    anchor: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Features of one request, among those that are kept together.

    Attributes:
        request: the owner's number of an open request.
        tokens: how many.
        features: ``[tokens, feature width]`` BF16, little-endian.
    """

    request: int
    tokens: int
    features: memoryview


class Drafting(Protocol):
    """Two ranks that serve."""

    @property
    def offer(self) -> Offer:
        """What they can do; the same for as long as they live."""

    @property
    def capacity(self) -> int:
        """Bytes of features that one call takes at most."""

    @property
    def failed(self) -> Pp4Error | None:
        """The error that ended them, None while they serve."""

    async def open(self, request: int) -> None:
        """Make room for a request; the number was never used before.

        Raises:
            RefusedError: ``CACHE_FULL``.
        """

    async def append(self, parts: Sequence[Part]) -> list[int | RefusedError]:
        """Keep the features of the tokens that follow those there are, of several requests.

        Args:
            parts: at least one, each request once, of at most :attr:`capacity` bytes together.

        Returns:
            For each part the tokens whose features its request has now; or what it is refused,
            which leaves its request as it was and the other parts alone: ``CACHE_FULL``, beyond
            the context; ``BAD_INPUT``, not finite, or not once it was projected.

        Raises:
            RefusedError: ``BAD_INPUT``, parts that cannot be; nothing of any was kept.
        """

    async def close(self, request: int) -> None:
        """Forget a request and its features."""

    async def draft(self, n_out: int, rows: Sequence[Row]) -> list[bytes]:
        """Draft one block for each row.

        Args:
            n_out: positions, one of the offer's depths.
            rows: 1 to as many as the largest captured batch, each request once.

        Returns:
            For each row the bytes of :data:`pp4.drafter.packing.REPLY_MEMBERS`.  All of them leave,
            or none: where either rank or their agreement fails, this raises and the ranks are over.
        """

    async def lost(self) -> Pp4Error:
        """Wait until the ranks fail, also while nothing is asked of them; -> the error."""
