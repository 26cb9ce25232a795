"""Runs the producer over frozen base logits: the sampled kernel, and the original selector.

Both shards are in one launch, so nothing is exchanged.  The numerical definition leaves a device no
choice, so tokens other than the frozen ones, and candidates or q other than those of the exact
reference, are an error of the producer, never noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pp4.drafter.config import split_of
from pp4.drafter.selector import Columns, OriginalSelector
from pp4.engine.replay.heldout import Heldout
from pp4.errors import BadInputError, Code, Refusal, WrongError
from pp4.kernels import vectorised
from pp4.kernels.block import Outputs, Request, SampledBlock
from pp4.kernels.faults import Fault
from pp4.kernels.geometry import Geometry
from pp4.kernels.head import Head, values_of
from pp4.kernels.link import SoloLink
from pp4.kernels.sampled_fused import INACTIVE, SAMPLED

MakeBlock = Callable[..., SampledBlock]
"""Makes the sampled block; :class:`SampledBlock` itself, or what a test puts in its place."""

_KEYS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Drafts:
    """What the producer gave for some blocks, on the host.

    Attributes:
        ids: ``[B, n, 32]`` int32, -1 where no candidate is.
        q: ``[B, n, 32]`` float32.
        tokens: ``[B, n]`` int32, drawn.
        greedy: ``[B, n]`` int32, the original selector's.
    """

    ids: NDArray[np.int32]
    q: NDArray[np.float32]
    tokens: NDArray[np.int32]
    greedy: NDArray[np.int32]


class Producer:
    """Drafts the blocks of a held-out file, a fixed number of rows at a time.

    Args:
        held: the file.
        rows: of a launch; what a last one has too many is padding.
        device: a CPU, where Triton's interpreter runs the kernel, or a GPU.
        make_block: makes the sampled block.

    Raises:
        BadInputError: no row, or a head that the kernels do not take.
    """

    def __init__(
        self,
        held: Heldout,
        *,
        rows: int,
        device: torch.device,
        make_block: MakeBlock = SampledBlock,
    ) -> None:
        sizes = held.sizes
        self._held, self.rows, self._device = held, rows, device
        geometry = Geometry(
            vocab=sizes.vocab, split=split_of(sizes.vocab), rank_dim=sizes.markov_rank
        )
        w1, w2 = (values_of(one.view(torch.int16)) for one in (held.w1, held.w2))
        # nothing is cached: the kernel computes each bias row itself
        head = Head.build(geometry, w1, w2, device=device)
        link = SoloLink(rows, device=device)
        self._block = make_block(head, link, batch=rows, n_out=sizes.depth)
        self._w1, self._w2 = held.w1.to(device), held.w2.to(device)

    def run(self, first: int, last: int) -> Drafts:
        """Draft some blocks.

        Args:
            first: of the blocks.
            last: past the last; at most ``rows`` of them.

        Returns:
            Their drafts: what the producer wrote, found equal to what is right.

        Raises:
            BadInputError: no blocks, or too many.
            WrongError: ``OUTPUT_MISMATCH``: an error word, another token than the frozen one, or
                candidates or a q that are not those of the exact reference.
        """
        if not 0 < last - first <= self.rows:
            raise BadInputError.of("blocks", f"1 to {self.rows}", str(last - first))
        count, held = last - first, self._held
        outputs = self._sampled(first, last)
        bad = np.argwhere(outputs.error[:count])
        if len(bad):
            row, index = bad[0].tolist()
            found = _fault(int(outputs.error[row, index]))
            raise _mismatch(f"block {first + row}, position {index}", "no error word", found)
        base = held.base[first:last].to(self._device)
        best = greedy_tokens(self._w1, self._w2, base, held.anchor[first:last])
        ids, q, tokens = (one[:count] for one in (outputs.ids, outputs.q, outputs.token))
        greedy = best.numpy()
        frozen = "as frozen"
        _compare("sampled token", tokens, held.sampled.tokens[first:last].numpy(), first, frozen)
        _compare("greedy token", greedy, held.greedy.tokens[first:last].numpy(), first, frozen)
        # a token can be right by a q that is not, and that q decides what is accepted
        exact = self._exact(base, first, last)
        for name, mine, wanted in (("candidate", ids, exact.ids), ("q", q, exact.q)):
            _compare(name, mine, wanted.cpu().numpy(), first, "of the exact reference")
        return Drafts(ids, q, tokens, greedy)

    def _exact(self, base: Tensor, first: int, last: int) -> vectorised.Block:
        """What the sampled path has to give, by arithmetic that the kernel has no part in."""
        held = self._held
        key, position, round, anchor = (
            one[first:last].to(self._device)
            for one in (held.key, held.position, held.round, held.anchor)
        )
        return vectorised.block(
            self._w1.view(torch.int16),
            self._w2.view(torch.int16),
            base=base.view(torch.int16),
            mode=torch.full_like(anchor, SAMPLED),
            key=key,
            position=position,
            round=round,
            anchor=anchor.long(),
        )

    def _sampled(self, first: int, last: int) -> Outputs:
        """The kernel's outputs, rows of padding behind the blocks."""
        held, spare = self._held, self.rows - (last - first)
        columns = (held.key, held.position, held.round, held.anchor)
        requests = [
            Request(key=key % _KEYS, position=position, round=round, anchor=anchor)
            for key, position, round, anchor in zip(
                *(one[first:last].tolist() for one in columns), strict=True
            )
        ]
        requests += [Request(mode=INACTIVE)] * spare
        base = held.base[first:last].view(torch.int16)
        base = torch.cat([base, base.new_zeros((spare, *base.shape[1:]))])
        self._block.load(requests, base)
        self._block.poison()
        self._block.run()
        return self._block.outputs()


def greedy_tokens(w1: Tensor, w2: Tensor, base: Tensor, anchors: Tensor) -> Tensor:
    """Run the original selector with both shards in this process.

    Args:
        w1: ``[V, R]`` bfloat16.
        w2: ``[V, R]`` bfloat16.
        base: ``[B, n, V]`` bfloat16 base logits.
        anchors: ``[B]`` integers, the tokens before the first position.

    Returns:
        ``[B, n]`` int32 tokens, on a CPU.
    """
    split = split_of(len(w2))
    selector = OriginalSelector(
        w1,
        w2[:split],
        first_id=0,
        gather=_nobody,
        batch=base.shape[0],
        n_out=base.shape[1],
        base=base[..., :split],
        beside=Columns(w2[split:], split, base[..., split:]),
    )
    selector.anchor.copy_(anchors)
    return selector.replay().token.to(torch.int32).cpu()


def _nobody(mine: Tensor) -> Tensor:
    """Both shards are here, so the selector asks nobody."""
    raise BadInputError.of("gather", "both shards in one process", f"a row of {mine.shape}")


def _compare(name: str, found: NDArray[Any], wanted: NDArray[Any], first: int, source: str) -> None:
    """Refuse at the first place that differs; blocks are counted from ``first``."""
    other = np.argwhere(found != wanted)
    if len(other):
        row, index, *rank = place = tuple(other[0].tolist())
        which = " ".join([name, *map(str, rank)])
        where = f"block {first + row}, position {index}: {which}"
        raise _mismatch(where, f"{wanted[place]!s}, {source}", str(found[place]))


def _fault(word: int) -> str:
    """What an error word is called; one that nobody has defined is told as it is."""
    try:
        return Fault(word).name
    except ValueError:
        return str(word)


def _mismatch(where: str, expected: str, found: str) -> WrongError:
    return WrongError(
        Refusal(Code.OUTPUT_MISMATCH, where, expected, found, source="docs/replay.md")
    )
