"""Whether the values of a held-out file belong together; its types and shapes fit already."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pp4.engine.replay.heldout import CHAINS, Chain, Heldout
from pp4.engine.replay.weights import target_weights
from pp4.errors import BadInputError

_AT_ONCE = 1 << 22
"""Probabilities that are looked at in one go; some 40 bytes are alive for each."""


def check_values(held: Heldout) -> None:
    """Refuse a file that the producer or the verifier could not be given.

    Raises:
        BadInputError: a value is out of range, or two of them contradict each other; the first such
            place is named.
    """
    for name, values in (
        ("w1", held.w1),
        ("w2", held.w2),
        ("document.features", held.features),
        ("block.base", held.base),
    ):
        _refuse_any(name, ~torch.isfinite(values), "finite values", values)
    _check_documents(held)
    _check_blocks(held)
    for name, chain in zip(CHAINS, (held.sampled, held.greedy), strict=True):
        _check_chain(name, chain, held)
    begins, other = (chain.targets[:, :, 0] for chain in (held.sampled, held.greedy))
    apart = (begins != other).any(dim=2)[..., None]
    expected = "what stands after the anchor of the sampled chain"
    _refuse_any("greedy.targets", apart, expected, other[..., :1])
    _check_argmax(held)


def _refuse_any(name: str, bad: Tensor, expected: str, values: Tensor) -> None:
    """Refuse at the first place that is bad."""
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        raise BadInputError.of(f"{name}{place}", expected, str(values[tuple(place)].item()))


def _below(name: str, values: Tensor, end: int) -> None:
    _refuse_any(name, (values < 0) | (values >= end), f"0 to {end - 1}", values)


def _check_documents(held: Heldout) -> None:
    starts, sizes = held.starts, held.sizes
    ends = [int(starts[0]), int(starts[-1])]
    if ends != [0, sizes.tokens]:
        raise BadInputError.of("document.starts", f"from 0 to {sizes.tokens}", str(ends))
    _refuse_any("document.starts", starts.diff() < 1, "rising", starts)
    _below("document.tokens", held.tokens, sizes.vocab)


def _check_blocks(held: Heldout) -> None:
    document, sizes = held.document.long(), held.sizes
    _below("block.document", document, sizes.documents)
    _refuse_any("block.document", document.diff() < 0, "in the order of the documents", document)
    _below("block.round", held.round, 1 << 32)
    lengths = held.starts.diff()[document]
    # so positions also fit the 31 bits of the producer: a file that large is not read
    outside = (held.position < 2) | (held.position > lengths)
    _refuse_any("block.position", outside, "an anchor in its document", held.position)
    anchors = held.tokens[held.starts[document] + held.position - 1]
    _refuse_any("block.anchor", anchors != held.anchor, "the document's token", held.anchor)


def _check_chain(name: str, chain: Chain, held: Heldout) -> None:
    _below(f"{name}.tokens", chain.tokens, held.sizes.vocab)
    before = torch.cat([held.anchor[:, None], chain.tokens[:, :-1]], dim=1)
    _refuse_any(f"{name}.previous", chain.previous != before, "the token before", chain.previous)
    flat = chain.targets.flatten(0, 2).numpy()
    rows = max(1, _AT_ONCE // flat.shape[1])
    for first in range(0, len(flat), rows):
        _check_distributions(f"{name}.targets", flat[first : first + rows], first, chain.targets)


def _check_distributions(name: str, rows: NDArray[np.float32], first: int, targets: Tensor) -> None:
    def place(row: int) -> list[Any]:
        return [int(one) for one in np.unravel_index(first + row, targets.shape[:3])]

    # a NaN compares false
    bad = np.argwhere(~((rows >= 0) & (rows <= 1)))
    if len(bad):
        row, column = bad[0].tolist()
        where = f"{name}{[*place(row), column]}"
        raise BadInputError.of(where, "a probability", str(rows[row, column]))
    sound = target_weights(rows).sound
    if not sound.all():
        row = int(np.argmin(sound))
        found = f"a sum of {float(rows[row].sum(dtype=np.float64))!r}"
        raise BadInputError.of(f"{name}{place(row)}", "a sum of 1 within 2**-14", found)


def _check_argmax(held: Heldout) -> None:
    _below("greedy.argmax", held.argmax, held.sizes.vocab)
    targets = held.greedy.targets
    own = targets.gather(3, held.argmax.long()[:, None, :, None].expand(*targets.shape[:3], 1))
    less = (own[..., 0] < targets.amax(dim=3)).any(dim=1)
    _refuse_any("greedy.argmax", less, "the most probable token", held.argmax)
