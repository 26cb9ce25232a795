"""The target's features of live requests, kept as the keys and values that the layers need.

Features of a token never change, so they are projected once, when they arrive.  A slot belongs to
one request from its opening to its closing: a new request that finds no slot is refused, and no
live one is ever evicted for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pp4.drafter.backbone import Backbone
from pp4.errors import BadInputError, Code, Refusal, RefusedError


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of a batch stand.

    Attributes:
        slots: ``[B]`` int64, slot of each row's features; any slot on an inactive row.
        lengths: ``[B]`` int64, tokens before each anchor; 0 on an inactive row.
        anchors: ``[B]`` int64 tokens that the blocks start with; 0 on an inactive row.
    """

    slots: Tensor
    lengths: Tensor
    anchors: Tensor


@dataclass(slots=True)
class _Live:
    slot: int
    length: int = 0


class FeatureCache:
    """Features of a stated number of requests, each of a stated number of tokens at most.

    Args:
        backbone: projects them; its context is the limit of a request.
        slots: requests that can be live at once.
        like: a tensor of the type and on the device of the features.

    Raises:
        BadInputError: there would be no slot.
    """

    def __init__(self, backbone: Backbone, slots: int, like: Tensor) -> None:
        if slots < 1:
            raise BadInputError.of("slots", "at least one", str(slots))
        self._backbone, self.slots = backbone, slots
        config = backbone.config
        shape = (config.layers, slots, config.kv_heads, backbone.context, config.head_dim)
        # Zeros, since a masked place still multiplies: zero times what is not finite is not zero.
        self.keys = torch.zeros(shape, dtype=like.dtype, device=like.device)
        self.values = torch.zeros_like(self.keys)
        self._live: dict[int, _Live] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all slots."""
        return 2 * self.keys.numel() * self.keys.element_size()

    @property
    def context(self) -> int:
        """Tokens that a request may have features of."""
        return self._backbone.context

    def open(self, request: int) -> None:
        """Give a request a slot.

        Raises:
            BadInputError: it has one already.
            RefusedError: ``CACHE_FULL``, every slot belongs to a live request.
        """
        if request in self._live:
            raise BadInputError.of("request", "one that is not open", str(request))
        free = set(range(self.slots)) - {live.slot for live in self._live.values()}
        if not free:
            raise RefusedError(
                Refusal(
                    Code.CACHE_FULL,
                    "feature cache",
                    f"at most {self.slots} requests at once",
                    "one more",
                    next="close a request that has ended",
                )
            )
        self._live[request] = _Live(min(free))

    def place(self, request: int) -> tuple[int, int]:
        """Slot of a request and its length, which describe its row of a batch.

        Raises:
            BadInputError: there is no such request.
        """
        live = self._of(request)
        return live.slot, live.length

    def length(self, request: int) -> int:
        """Tokens whose features a request has; the position of its next anchor.

        Raises:
            BadInputError: there is no such request.
        """
        return self._of(request).length

    def append(self, request: int, features: Tensor) -> int:
        """Keep the features of the tokens that follow; nothing is kept where it refuses.

        Whether they are finite is read back from the device: this is no part of a block.  Their
        keys and values have to be finite as well: one that is not would make an error of every row
        of this request, and the end of a worker of it.

        Args:
            request: an open one.
            features: ``[T, feature width]`` of the cache's type, on its device, T at least 1: the
                outputs of the target's layers side by side, in the config's order.

        Returns:
            Tokens whose features the request has now.

        Raises:
            BadInputError: no such request, another shape or type, a value that is not finite, or
                one so large that its keys or values are not.
            RefusedError: ``CACHE_FULL``, the request would grow beyond the context limit.
        """
        live, width = self._of(request), self._backbone.config.feature_width
        fits = features.ndim == 2 and len(features) > 0 and features.shape[1] == width
        if not fits or features.dtype != self.keys.dtype:
            raise BadInputError.of(
                "features",
                f"[tokens, {width}] of {self.keys.dtype}",
                f"{list(features.shape)} of {features.dtype}",
            )
        first, last = live.length, live.length + len(features)
        if last > self.context:
            raise RefusedError(
                Refusal(
                    Code.CACHE_FULL,
                    "features of a request",
                    f"at most {self.context} tokens",
                    f"{last} tokens",
                    next="stop drafting for this request; its features so far are kept",
                )
            )
        if not bool(torch.isfinite(features).all()):
            raise BadInputError.of("features", "finite values", "infinite or undefined ones")
        keys, values = self._backbone.project(features, first)
        if not bool(torch.isfinite(keys).all() & torch.isfinite(values).all()):
            raise BadInputError.of(
                "features", "finite keys and values of them", "values that overflow on the way"
            )
        self.keys[:, live.slot, :, first:last] = keys
        self.values[:, live.slot, :, first:last] = values
        live.length = last
        return last

    def close(self, request: int) -> None:
        """Give a request's slot back and forget its features.

        Raises:
            BadInputError: there is no such request.
        """
        live = self._of(request)
        for kept in (self.keys, self.values):
            kept[:, live.slot, :, : live.length] = 0
        del self._live[request]

    def rows(self, requests: Sequence[int | None], anchors: Sequence[int]) -> Rows:
        """Where a batch stands.

        Args:
            requests: one for each row, None for an inactive row.
            anchors: the last accepted token of each; its features are not known yet.  That of an
                inactive row is not looked at.

        Raises:
            BadInputError: no such request, or an anchor that is no token of the target.
        """
        vocab = self._backbone.config.vocab
        if len(anchors) != len(requests) or not requests:
            raise BadInputError.of("anchors", f"{len(requests)}, at least 1", str(len(anchors)))
        places = []
        for request, anchor in zip(requests, anchors, strict=True):
            if request is None:
                places.append((0, 0, 0))
                continue
            if not 0 <= anchor < vocab:
                raise BadInputError.of("anchor", f"a token below {vocab}", str(anchor))
            live = self._of(request)
            places.append((live.slot, live.length, anchor))
        columns = torch.tensor(places, dtype=torch.int64, device=self.keys.device)
        return Rows(*columns.unbind(1))

    def _of(self, request: int) -> _Live:
        if request not in self._live:
            raise BadInputError.of("request", "an open one", str(request))
        return self._live[request]
