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


@dataclass(frozen=True, slots=True)
class _Growth:
    """Features that fit behind those that a request has."""

    live: _Live
    features: Tensor

    @property
    def places(self) -> list[tuple[int, int]]:
        """Slot and position of every token."""
        first = self.live.length
        return [(self.live.slot, first + token) for token in range(len(self.features))]


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
        (told,) = self.append_together([(request, features)])
        if isinstance(told, RefusedError):
            raise told
        return told

    def append_together(self, parts: Sequence[tuple[int, Tensor]]) -> list[int | RefusedError]:
        """Keep the features of several requests; what one of them is refused is for it alone.

        Whether all are finite is read back from the device, once for all of them: this is no part
        of a block.  Their keys and values have to be finite as well: one that is not would make an
        error of every row of its request, and the end of a worker of it.

        Args:
            parts: requests, each once, and what :meth:`append` takes.

        Returns:
            For each part the tokens whose features its request has now, or what :meth:`append`
            would have raised; nothing is kept of such a part.

        Raises:
            BadInputError: a request that is there twice; nothing is kept.
        """
        requests = [request for request, _ in parts]
        if len(set(requests)) != len(requests):
            raise BadInputError.of("requests", "each of them once", str(requests))
        found = [self._growth(*part) for part in parts]
        told = iter(self._grown([one for one in found if isinstance(one, _Growth)]))
        return [next(told) if isinstance(one, _Growth) else one for one in found]

    def _growth(self, request: int, features: Tensor) -> _Growth | RefusedError:
        """What a request would have more; nothing is looked at on the device."""
        width = self._backbone.config.feature_width
        if request not in self._live:
            return _not_open(request)
        live = self._live[request]
        fits = features.ndim == 2 and len(features) > 0 and features.shape[1] == width
        if not fits or features.dtype != self.keys.dtype:
            return BadInputError.of(
                "features",
                f"[tokens, {width}] of {self.keys.dtype}",
                f"{list(features.shape)} of {features.dtype}",
            )
        last = live.length + len(features)
        if last > self.context:
            return RefusedError(
                Refusal(
                    Code.CACHE_FULL,
                    "features of a request",
                    f"at most {self.context} tokens",
                    f"{last} tokens",
                    next="stop drafting for this request; its features so far are kept",
                )
            )
        return _Growth(live, features)

    def _grown(self, growths: Sequence[_Growth]) -> list[int | RefusedError]:
        """Project features that fit, and keep those of each request of which all are finite."""
        if not growths:
            return []
        features = torch.cat([one.features for one in growths])
        places = self._on_device([place for one in growths for place in one.places])
        keys, values = self._backbone.project(features, places[:, 1])
        whole = torch.isfinite(keys) & torch.isfinite(values)
        finite = torch.stack([torch.isfinite(features).all(1), whole.all(3).all(1).all(0)])
        # the one wait for the device
        sound = torch.split(finite.cpu(), [len(one.features) for one in growths], dim=1)
        refused = [_not_finite(*one.all(1).tolist()) for one in sound]
        if any(refused):
            wanted = zip(refused, sound, strict=True)
            rows = torch.cat([torch.full((one.shape[1],), not why) for why, one in wanted])
            rows = rows.nonzero()[:, 0].to(places.device)
            places, keys, values = places[rows], keys[:, :, rows], values[:, :, rows]
        slots, positions = places.unbind(1)
        for kept, more in ((self.keys, keys), (self.values, values)):
            # indices on both sides of a slice come first
            kept[:, slots, :, positions] = more.permute(2, 0, 1, 3)
        told: list[int | RefusedError] = []
        for one, why in zip(growths, refused, strict=True):
            one.live.length += 0 if why else len(one.features)
            told.append(why or one.live.length)
        return told

    def _on_device(self, numbers: Sequence[tuple[int, ...]]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.keys.device)

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
        return Rows(*self._on_device(places).unbind(1))

    def _of(self, request: int) -> _Live:
        if request not in self._live:
            raise _not_open(request)
        return self._live[request]


def _not_open(request: int) -> BadInputError:
    return BadInputError.of("request", "an open one", str(request))


def _not_finite(given: bool, projected: bool) -> BadInputError | None:
    """What is refused where features, or their keys and values, are not all finite."""
    if not given:
        return BadInputError.of("features", "finite values", "infinite or undefined ones")
    if not projected:
        return BadInputError.of(
            "features", "finite keys and values of them", "values that overflow on the way"
        )
    return None
