"""One rank's drafter: shapes that are recorded once and replayed with other inputs.

A block is one replay from the inputs in their buffer to the outputs in theirs.  Which of two graphs
of a shape runs, the original selector's or the sampled one, is for :class:`pp4.drafter.heads.Heads`
to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from pp4.drafter.heads import HeadMode, Heads, Shape
from pp4.drafter.heads import missing as no_graph
from pp4.drafter.markov import MarkovCache
from pp4.drafter.model import Drafter
from pp4.drafter.sampling import geometry_of, kernel_head, require_parts
from pp4.drafter.selector import Gather
from pp4.drafter.shapes import Block, Captured, OriginalBody, Path, SampledBody, Shard, Stage
from pp4.drafter.support import unsupported
from pp4.drafter.weights import Weights
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels.block import Buffers, SampledBlock
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head
from pp4.kernels.link import Link

Repeated = Callable[[Callable[[], None]], Callable[[], None]]
"""Makes launches over fixed buffers cheap to repeat; it may make them once itself meanwhile."""


class MakeBlock(Protocol):
    """Makes the sampled block of a shape."""

    def __call__(
        self, head: Head, link: Link, *, batch: int, n_out: int, buffers: Buffers
    ) -> Block:
        """Make it; see :class:`pp4.kernels.block.SampledBlock`."""


class TPDrafter:
    """A drafter of one rank of two, or of both where one launch holds both shards.

    The backbone, the embedding, W1 and whatever else is the same on both ranks is that of the first
    part; of a second part its rows of the LM head and of W2 are kept and nothing else.

    Args:
        parts: the rank's weights in a world of two; both ranks', in order, where both shards are
            here.
        slots: requests that can be open at once.
        context: tokens that a request may have features of.
        cache_mib: MiB that rows of the Markov cache may take, those of all shards that are here.
        gather: joins the winners of the original selector; not called where both shards are here.
        repeated: records launches.  On a GPU it launches once before it captures, see
            :meth:`prepare`.
        link: the way to the peer of the sampled path; None where sampled drafting is switched off,
            and then nothing of that path is made.
        geometry: of the kernels; None for the usual tiles.
        make_block: makes a shape's sampled block.

    Raises:
        BadInputError: weights of another world or order, a link of another rank, no slot, a context
            that does not fit the backbone, or a geometry of another vocabulary.

    Attributes:
        cache: the features of open requests.
        markov: the cached bias rows, None where sampled drafting is switched off.
    """

    def __init__(
        self,
        parts: Sequence[Weights],
        *,
        slots: int,
        context: int,
        cache_mib: int,
        gather: Gather,
        repeated: Repeated,
        link: Link | None,
        geometry: Geometry | None = None,
        make_block: MakeBlock = SampledBlock,
    ) -> None:
        self.geometry = geometry or geometry_of(parts[0].config)
        require_parts(parts, self.geometry)
        self._parts = len(parts), parts[0].rank
        if link is not None:
            _check_link(link, self._parts)
        self.config = parts[0].config
        self._model = Drafter(parts[0], slots=slots, context=context)
        self.cache = self._model.cache
        self._shards = [Shard(part.head, part.w2, part.bounds[0]) for part in parts]
        self._gather, self._repeated = gather, repeated
        self._link, self._make_block = link, make_block
        self.markov: MarkovCache | None = None
        if link is not None:
            self.markov = self._markov(cache_mib)
            self._head = replace(
                kernel_head(parts, self.geometry),
                bias=self.markov.bias,
                slot_of=self.markov.slot_of,
            )
        self._stages: dict[Shape, Stage] = {}
        self._original: dict[Shape, Captured] = {}
        self._sampled: dict[Shape, Captured] | None = None if link is None else {}
        self._heads = Heads(self._original, self._sampled)

    def _markov(self, mib: int) -> MarkovCache:
        w1 = self._model.weights.w1.view(torch.int16)
        w2 = [shard.w2.view(torch.int16) for shard in self._shards]
        return MarkovCache(w1, w2, stride=self.geometry.stride, mib=mib)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """(batch, n_out) of the captured shapes, rising."""
        return tuple(sorted(self._stages))

    def prepare(self, batches: Sequence[int], depths: Sequence[int]) -> None:
        """Record every shape, the sampled graph of each beside the original one.

        Both ranks of a pair have to do this at the same time with the same arguments: recording the
        original selector gathers.  Nothing is exchanged over the link.  Where ``repeated`` launches
        before it captures, the inputs of the shape are still zero, so every row is inactive: the
        operators of torch are loaded, and the kernel leaves epochs and words of errors as they are.
        The kernel itself must have been loaded on both ranks before.

        Args:
            batches: rows.
            depths: positions, each with every batch.

        Raises:
            BadInputError: no shape, a shape twice or recorded before, a batch of no rows or with
                more than the link has, a depth that is none of the block.
            RefusedError: ``UNSUPPORTED_CHECKPOINT``, the sampled path cannot draft that deep.
        """
        shapes = sorted((batch, n_out) for batch in batches for n_out in depths)
        self._check_shapes(shapes)
        for shape in shapes:
            stage = Stage(self._model, self._shards, self.geometry.stride, shape)
            original = OriginalBody(stage, self._gather)
            self._stages[shape] = stage
            self._original[shape] = Captured(original, shape, self._repeated)
            self._record_sampled(shape)

    def relink(self, link: Link) -> None:
        """Record every sampled graph anew, over another link; features and cached rows stay.

        The addresses of a link are part of its graphs.  The original graphs stay the same objects.

        Args:
            link: the way to the peer from now on; the old one may be closed already.

        Raises:
            BadInputError: there is no sampled path, or the link is another rank's.
        """
        if self._sampled is None:
            raise BadInputError.of("link", "a drafter with a sampled path", "one without")
        _check_link(link, self._parts)
        self._link = link
        self._sampled.clear()
        for shape in self.shapes:
            self._stages[shape].inputs.words.zero_()
            self._record_sampled(shape)

    def _record_sampled(self, shape: Shape) -> None:
        if self._link is not None and self._sampled is not None:
            stage = self._stages[shape]
            body = SampledBody(stage, self._block(stage, self._link))
            self._sampled[shape] = Captured(body, shape, self._repeated)

    def _check_shapes(self, shapes: Sequence[Shape]) -> None:
        block, rows = self.config.block, None if self._link is None else self._link.rows
        if not shapes or len(set(shapes)) != len(shapes) or set(shapes) & set(self._stages):
            raise BadInputError.of("shapes", "at least one, each once", str(list(shapes)))
        for batch, n_out in shapes:
            if not 1 <= batch <= (rows or batch) or not 1 <= n_out <= block:
                most = "or more" if rows is None else f"to {rows}"
                raise BadInputError.of(
                    "shape", f"1 {most} rows, 1 to {block} positions", f"{batch}, {n_out}"
                )
            reasons = unsupported(self.config, n_out) if self._link is not None else ()
            if reasons:
                raise RefusedError(
                    Refusal(
                        Code.UNSUPPORTED_CHECKPOINT,
                        "sampled path",
                        f"a drafter that can sample {n_out} positions",
                        reasons[0],
                        next="switch sampled drafting off for this drafter",
                    )
                )

    def _block(self, stage: Stage, link: Link) -> Block:
        inputs = stage.inputs
        buffers = Buffers(
            mode=inputs.mode,
            position=inputs.position,
            round=inputs.round,
            key=inputs.key,
            logits=stage.logits,
        )
        batch, n_out = stage.shape
        return self._make_block(self._head, link, batch=batch, n_out=n_out, buffers=buffers)

    def inputs(self, shape: Shape) -> Tensor:
        """The inputs of a shape, which both of its graphs read.

        Whoever writes them has looked at every value: slot and length are
        :meth:`pp4.drafter.features.FeatureCache.place`'s, the anchor is a token of the target, and
        a row of padding is zero throughout.

        Args:
            shape: (batch, n_out).

        Returns:
            ``[input_words(B)]`` int32, see :mod:`pp4.drafter.packing`; the same tensor every time.

        Raises:
            RefusedError: ``MISSING_GRAPH``, the shape was not captured.
        """
        if shape not in self._stages:
            raise no_graph(Code.MISSING_GRAPH, shape, self._stages)
        return self._stages[shape].inputs.words

    def heads(
        self, shape: Shape, modes: Sequence[int], head_mode: HeadMode = HeadMode.DEFAULT
    ) -> Captured:
        """Run a block over the inputs of its shape; it has ended when the device is idle.

        Args:
            shape: (batch, n_out), a captured one.
            modes: mode of each row, as in the inputs; see ``kernels/sampled_fused.py``.
            head_mode: how the drafter wants its head run.

        Returns:
            What has the outputs: the same object for a shape and a path every time, and where no
            row is sampled the same one as with sampled drafting switched off.

        Raises:
            BadInputError: another number of modes.
            RefusedError: ``UNSUPPORTED_HEAD_MODE``, ``MISSING_GRAPH`` or ``MISSING_SAMPLED_GRAPH``.
        """
        if len(modes) != shape[0]:
            raise BadInputError.of("modes", f"{shape[0]}, one for each row", str(len(modes)))
        chosen = self._heads.select(shape, modes, head_mode)
        if self.markov is not None and chosen.path is Path.SAMPLED:
            self.markov.starts()
        return chosen


def _check_link(link: Link, wanted: tuple[int, int]) -> None:
    """Refuse a link that joins another rank, or another number of shards."""
    found = link.shards, link.rank
    if found != wanted:
        raise BadInputError.of(
            "link",
            f"{wanted[0]} shards, rank {wanted[1]}",
            f"{found[0]} shards, rank {found[1]}",
        )
