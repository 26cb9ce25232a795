"""The one branch between the original selector and the sampled one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Generic, Protocol, TypeAlias, TypeVar

from pp4.drafter.selector import GreedyOutputs
from pp4.errors import Code, Refusal, RefusedError
from pp4.kernels.sampled_fused import SAMPLED

Shape = tuple[int, int]
"""(batch, n_out) of a captured graph."""
G = TypeVar("G")
S = TypeVar("S")
G_co = TypeVar("G_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)


class HeadMode(StrEnum):
    """How a drafter may be asked to run its head."""

    DEFAULT = "default"
    NATIVE = "native"
    PARTIAL_RANK = "partial-rank"
    MARGIN = "margin"
    TRACED = "traced"


class Replayed(Protocol[G_co]):
    """A captured graph of the original path."""

    def replay(self) -> G_co:
        """Run it; -> its fixed outputs."""


Original: TypeAlias = Replayed[GreedyOutputs]
"""A captured graph of the original selector alone."""


class Sampled(Protocol[S_co]):
    """A captured graph of the sampled path."""

    @property
    def block(self) -> S_co:
        """What has its outputs."""

    def replay(self) -> object:
        """Run it; the outputs are the block's buffers."""


def unsupported(mode: HeadMode) -> RefusedError:
    """Return the refusal of a head mode that the sampled path does not have."""
    return RefusedError(
        Refusal(
            Code.UNSUPPORTED_HEAD_MODE,
            f"head mode {mode}",
            f"head mode {HeadMode.DEFAULT} where sampled drafting is on",
            str(mode),
            next="switch sampled drafting off for this drafter",
        )
    )


def missing(code: Code, shape: Shape, captured: Iterable[Shape]) -> RefusedError:
    """Return the refusal of a shape that was not captured."""
    return RefusedError(
        Refusal(
            code,
            f"batch {shape[0]}, n_out {shape[1]}",
            f"one of the captured shapes {sorted(captured)}",
            "no graph of this shape",
        )
    )


class Heads(Generic[G, S]):
    """Chooses a captured graph by the switch and the batch's modes.

    Args:
        original: graphs of the original path by shape.
        sampled: graphs of the sampled path by shape, None where the switch is OFF.
    """

    def __init__(
        self,
        original: Mapping[Shape, Replayed[G]],
        sampled: Mapping[Shape, Sampled[S]] | None,
    ) -> None:
        self._original, self._sampled = original, sampled

    def select(
        self, shape: Shape, modes: Sequence[int], head_mode: HeadMode = HeadMode.DEFAULT
    ) -> G | S:
        """Run one block.

        Args:
            shape: (batch, n_out) of the captured graph.
            modes: mode of each row; see ``kernels/sampled_fused.py``.
            head_mode: how the drafter wants its head run.

        Returns:
            The original selector's own outputs, the same objects as with the switch OFF, where
            nothing is sampled; else the block with the sampled outputs.

        Raises:
            RefusedError: ``UNSUPPORTED_HEAD_MODE``; or, where the shape was not captured and there
                is no eager way out, ``MISSING_GRAPH`` or ``MISSING_SAMPLED_GRAPH``.
        """
        if self._sampled is None or SAMPLED not in modes:
            original = self._original.get(shape)
            if original is None:
                raise missing(Code.MISSING_GRAPH, shape, self._original)
            return original.replay()
        if head_mode is not HeadMode.DEFAULT:
            raise unsupported(head_mode)
        sampled = self._sampled.get(shape)
        if sampled is None:
            raise missing(Code.MISSING_SAMPLED_GRAPH, shape, self._sampled)
        sampled.replay()
        return sampled.block
