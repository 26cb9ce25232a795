"""Captured shapes: what a block of one (batch, n_out) runs from its inputs to its packed outputs.

Both paths of a shape begin alike, over the same inputs and the same base logits, and end alike, in
a buffer of :mod:`pp4.drafter.packing`.  Between them stands either the original selector or the
sampled block.  Nothing in a body is read back to the host, and no shape in it depends on a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import torch
from torch import Tensor

from pp4.drafter import packing
from pp4.drafter.features import Rows
from pp4.drafter.heads import Shape
from pp4.drafter.model import Drafter
from pp4.drafter.selector import Columns, Gather, OriginalSelector
from pp4.kernels.bias_rows import bias_rows
from pp4.kernels.dyadic24 import WIDTH
from pp4.kernels.link import Link
from pp4.kernels.sampled_fused import INACTIVE

_POSITION: Final = packing.row_type(1)
_WORDS: Final = {name: _POSITION[name].itemsize // 4 for name in _POSITION.names or ()}
"""32-bit words of one position by member, in the order in which a row has them."""


class Path(StrEnum):
    """Which way a block went."""

    ORIGINAL = "original"
    SAMPLED = "sampled"


class Shard(NamedTuple):
    """One rank's part of the split weights.

    Attributes:
        head: ``[columns, hidden]`` of the LM head.
        w2: ``[columns, R]`` of the Markov head.
        first_id: draft id of the first column.
    """

    head: Tensor
    w2: Tensor
    first_id: int


class Block(Protocol):
    """What a sampled body needs of :class:`pp4.kernels.block.SampledBlock`."""

    n_out: int
    link: Link
    chain: Tensor
    ids: Tensor
    q: Tensor
    token: Tensor
    error: Tensor
    stamp: Tensor

    def run(self) -> None:
        """Launch every position in order."""


class Inputs:
    """The inputs of a batch: one buffer, and its parts as views of it.

    Args:
        batch: rows.
        device: where the buffer lies.

    Attributes:
        words: ``[input_words(B)]`` int32, all of it, zero at first: every row inactive.
        mode: ``[B]`` int32.
        position: ``[B]`` int32.
        round: ``[B]`` int32.
        key: ``[B]`` int64.
        anchor: ``[B]`` int32.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self.words = torch.zeros(packing.input_words(batch), dtype=torch.int32, device=device)
        members, last = self.words.view(-1, batch), len(packing.MEMBERS)
        # slot, length and anchor lead, so that one conversion takes all three
        self._rows = members[:3]
        _, _, self.anchor, self.mode, self.position, self.round = members[:last].unbind()
        self.key = self.words[last * batch :].view(torch.int64)

    def rows(self) -> Rows:
        """Where the rows stand: slots, lengths and anchors as int64."""
        return Rows(*self._rows.to(torch.int64).unbind())


class Stage:
    """What both paths of a shape share: inputs, base logits, confidences and packing.

    Args:
        model: the replicated part.
        shards: split weights that are here, in order.
        stride: elements from one row of a shard's logits to the next.
        shape: (batch, n_out).

    Attributes:
        inputs: of the batch.
        logits: ``[shards, B, n_out, stride]`` int16 BF16 patterns of the base logits.
    """

    def __init__(self, model: Drafter, shards: Sequence[Shard], stride: int, shape: Shape) -> None:
        self._model, self.shards, self.shape = model, tuple(shards), shape
        self.weights = model.weights
        self.device, self.block = model.weights.device, model.config.block
        self.inputs = Inputs(shape[0], self.device)
        sizes = (len(shards), *shape, stride)
        self.logits = torch.zeros(sizes, dtype=torch.int16, device=self.device)

    def columns(self, place: int) -> Columns:
        """The base logits of a shard beside what the original selector needs of it."""
        shard = self.shards[place]
        base = self.logits[place].view(torch.bfloat16)[..., : len(shard.w2)]
        return Columns(shard.w2, shard.first_id, base)

    def run(self) -> Tensor:
        """Run the backbone and the LM head; -> ``[B, n_out, hidden]``, the states of positions."""
        hidden = self._model.hidden(self.inputs.rows())[:, : self.shape[1]]
        for place, shard in enumerate(self.shards):
            # one GEMM for a shard, so that it is the same one whether the other shard is here
            self._model.base_into(self.columns(place).base, hidden, shard.head)
        return hidden

    def confidence(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Confidences ``[B, n_out]`` float32 after ``[B, n_out]`` tokens; 0 on an inactive row."""
        found = self._model.confidence(hidden, previous.to(torch.int64))
        return torch.zeros(self.shape, device=self.device) if found is None else self.active(found)

    def active(self, values: Tensor) -> Tensor:
        """The same values ``[B, n_out]``, 0 on inactive rows."""
        return values.masked_fill((self.inputs.mode == INACTIVE)[:, None], 0)


class Packed:
    """The outputs of a shape: one buffer, filled by one concatenation.

    Args:
        stage: of the shape.

    Attributes:
        words: ``[output_words(B, k)]`` int32, see :mod:`pp4.drafter.packing`.
    """

    def __init__(self, stage: Stage) -> None:
        batch, n_out = stage.shape
        block, width = stage.block, packing.row_words(stage.block)
        words = packing.output_words(batch, block)
        self.words = torch.zeros(words, dtype=torch.int32, device=stage.device)
        self._rows = self.words[: batch * width].view(batch, width)
        # 64-bit words that may stand on an odd place, so they are laid out in halves
        self._tail = self.words[batch * width :]
        # positions that were not asked for, as wide as the widest member needs
        self._unused = self._rows.new_zeros(batch, (block - n_out) * WIDTH)
        self._spare = block - n_out

    def fill(self, members: Mapping[str, Tensor]) -> None:
        """Lay out the members of all rows.

        Args:
            members: by name as in :func:`pp4.drafter.packing.row_type`, ``[B, n_out, ...]`` each,
                of the types there.
        """
        batch, parts = len(self._rows), []
        for name, each in _WORDS.items():
            parts.append(members[name].view(torch.int32).reshape(batch, -1))
            parts.append(self._unused[:, : self._spare * each])
        torch.cat(parts, dim=1, out=self._rows)

    def tell(self, own_error: Tensor, told: Tensor) -> None:
        """Lay out the words of errors: ``[1]`` and ``[ERROR_WORDS]`` int64."""
        torch.cat([own_error.view(torch.int32), told.view(torch.int32)], out=self._tail)


def _by_kernel(previous: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Bias rows on a GPU, see :data:`pp4.drafter.selector.Bias`."""
    given = (previous.to(torch.int32), w1.view(torch.int16), w2.view(torch.int16))
    return bias_rows(*given).view(torch.bfloat16)


class OriginalBody:
    """A shape by the original selector.

    Args:
        stage: of the shape.
        gather: the all-gather of the winners; not called where both shards are here.
    """

    path = Path.ORIGINAL

    def __init__(self, stage: Stage, gather: Gather) -> None:
        self._stage, self.packed = stage, Packed(stage)
        first = stage.columns(0)
        weights = stage.weights
        self._selector = OriginalSelector(
            weights.w1,
            first.w2,
            first_id=first.first_id,
            gather=gather,
            batch=stage.shape[0],
            n_out=stage.shape[1],
            token_map=weights.token_map,
            base=first.base,
            beside=stage.columns(1) if len(stage.shards) == 2 else None,
            bias=_by_kernel if stage.device.type == "cuda" else None,
        )
        self._clean = torch.zeros(stage.shape, dtype=torch.int32, device=stage.device)
        self._unlisted = torch.full_like(self._clean, -1)
        self._unstamped = torch.zeros_like(self._clean, dtype=torch.int64)

    def launch(self) -> None:
        """Run it; no candidates are listed, and nothing that could fail is exchanged."""
        stage, selector = self._stage, self._selector
        hidden = stage.run()
        selector.anchor.copy_(stage.inputs.anchor)
        found = selector.replay()
        previous = torch.cat([selector.anchor[:, None], found.token[:, :-1]], dim=1)
        listed = stage.active(self._unlisted)[..., None].expand(-1, -1, WIDTH)
        self.packed.fill(
            {
                "ids": listed,
                "q": found.q,
                "token": stage.active(found.token).to(torch.int32),
                "confidence": stage.confidence(hidden, previous),
                "error": self._clean,
                "stamp": self._unstamped,
            }
        )


class SampledBody:
    """A shape by the sampled block.

    Args:
        stage: of the shape.
        block: over the stage's inputs and logits.
    """

    path = Path.SAMPLED

    def __init__(self, stage: Stage, block: Block) -> None:
        self._stage, self._block, self.packed = stage, block, Packed(stage)

    def launch(self) -> None:
        """Run it; every position of an active row is exchanged with the peer, if there is one."""
        stage, block = self._stage, self._block
        hidden = stage.run()
        block.chain[:, 0] = stage.inputs.anchor
        block.run()
        # what the kernel goes on from is always a token, also after an error
        previous = block.chain[:, : block.n_out]
        self.packed.fill(
            {
                "ids": block.ids,
                "q": block.q,
                "token": block.token,
                "confidence": stage.confidence(hidden, previous),
                "error": block.error,
                "stamp": block.stamp,
            }
        )
        self.packed.tell(block.link.own_error, block.link.told)


class Captured:
    """A recorded shape of one path; the same object for as long as the drafter lives.

    Args:
        body: of the shape.
        shape: (batch, n_out).
        repeated: records its launches.

    Attributes:
        path: which way it goes.
        outputs: ``[output_words(B, k)]`` int32, rewritten by every replay.
    """

    def __init__(
        self,
        body: OriginalBody | SampledBody,
        shape: Shape,
        repeated: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self.path, self.shape, self.outputs = body.path, shape, body.packed.words
        # a recording holds addresses and no buffers: they must not be anybody else's meanwhile
        self._body = body
        self._replay = repeated(body.launch)

    @property
    def block(self) -> Captured:
        """This object: it has the outputs."""
        return self

    def replay(self) -> Captured:
        """Run it again over the inputs of its shape; -> this object."""
        self._replay()
        return self
