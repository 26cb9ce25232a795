"""What a held-out file holds: its header, its tensors, and which shapes belong together.

The inputs are frozen: base logits, the tokens of two chains and the target's distributions after
each of their tokens.  Whoever replays them needs neither the target nor the drafter, and the
numerical definition gives the same tokens on every device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from pp4.verifier.units import MAX_VOCABULARY
from pp4.wire.frames import Model

FORMAT: Final = "pp4-heldout-v1"
METADATA: Final = "pp4"
"""Key of the header among the metadata of the safetensors file."""
TEMPERATURES: Final = ("0.7", "1.0")
"""At which the target's distributions are frozen, as decimal text."""
TORCH: Final = {
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "I32": torch.int32,
    "I64": torch.int64,
}
CHAINS: Final = ("sampled", "greedy")

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Sizes(Model):
    """Sizes that the shapes of all tensors follow from.

    Attributes:
        vocab: V, tokens of the target, all of which the drafter drafts.
        depth: n, positions of a block.
        markov_rank: R, inner dimension of W1 and W2.
        feature_width: values of one token's features.
        documents: D.
        tokens: of all documents together.
        blocks: N.
    """

    vocab: int = Field(ge=2, le=MAX_VOCABULARY)
    depth: int = Field(ge=1, le=32)
    markov_rank: int = Field(ge=1, le=1 << 16)
    feature_width: int = Field(ge=1, le=1 << 24)
    documents: int = Field(ge=1, le=1 << 24)
    tokens: int = Field(ge=1, le=1 << 31)
    blocks: int = Field(ge=1, le=1 << 24)


class Sources(Model):
    """sha256 of what the file was made from: two checkpoints, and the file of token ids."""

    target: Sha256
    drafter: Sha256
    text: Sha256


class Header(Model):
    """The header of a held-out file; its one byte form is RFC 8785.

    Attributes:
        format: names the format and its version.
        definition: id of the numerical definition that the sampled chain was drawn by.
        definition_sha256: pins its constants.
        temperatures: of the target's distributions, in their order.
        sizes: of everything.
        sources: what it was made from.
        tensors: sha256 of each tensor's little-endian bytes, by name.
    """

    format: Literal["pp4-heldout-v1"]
    definition: str
    definition_sha256: Sha256
    temperatures: tuple[Literal["0.7"], Literal["1.0"]]
    sizes: Sizes
    sources: Sources
    tensors: dict[str, Sha256]


@dataclass(frozen=True, slots=True)
class Chain:
    """One chain of tokens of each block, and what the target says along it.

    Attributes:
        previous: ``[N, n]`` int32: the anchor, then the tokens but for the last.
        tokens: ``[N, n]`` int32.
        targets: ``[N, T, n + 1, V]`` float32 probabilities after the anchor and after each token,
            at each of :data:`TEMPERATURES`.
    """

    previous: Tensor
    tokens: Tensor
    targets: Tensor


@dataclass(frozen=True, slots=True)
class Heldout:
    """A held-out file in memory.

    Attributes:
        header: as it was read.
        sha256: of the whole file.
        w1: ``[V, R]`` bfloat16.
        w2: ``[V, R]`` bfloat16.
        starts: ``[D + 1]`` int64, first token of each document, and past the last.
        tokens: ``[tokens]`` int32.
        features: ``[tokens, feature width]`` bfloat16, the target's, of every token.
        document: ``[N]`` int32, falling never.
        position: ``[N]`` int64, in the document, of the first proposed token; the anchor stands
            before it.
        anchor: ``[N]`` int32.
        key: ``[N]`` int64; the sign bit is the key's top bit.
        round: ``[N]`` int64.
        base: ``[N, n, V]`` bfloat16, the drafter's base logits.
        sampled: drawn by the producer from tickets of tau 0.7.
        greedy: the original selector's.
        argmax: ``[N, n + 1]`` int32, the target's, along the greedy chain.
    """

    header: Header
    sha256: str
    w1: Tensor
    w2: Tensor
    starts: Tensor
    tokens: Tensor
    features: Tensor
    document: Tensor
    position: Tensor
    anchor: Tensor
    key: Tensor
    round: Tensor
    base: Tensor
    sampled: Chain
    greedy: Chain
    argmax: Tensor

    @property
    def sizes(self) -> Sizes:
        """Of everything."""
        return self.header.sizes


def layout(sizes: Sizes) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the type, by the format's word, and the shape of every tensor of a file, by name."""
    vocab, depth, blocks = sizes.vocab, sizes.depth, sizes.blocks
    weights = ("BF16", (vocab, sizes.markov_rank))
    tensors = {
        "w1": weights,
        "w2": weights,
        "document.starts": ("I64", (sizes.documents + 1,)),
        "document.tokens": ("I32", (sizes.tokens,)),
        "document.features": ("BF16", (sizes.tokens, sizes.feature_width)),
        "block.document": ("I32", (blocks,)),
        "block.position": ("I64", (blocks,)),
        "block.anchor": ("I32", (blocks,)),
        "block.key": ("I64", (blocks,)),
        "block.round": ("I64", (blocks,)),
        "block.base": ("BF16", (blocks, depth, vocab)),
        "greedy.argmax": ("I32", (blocks, depth + 1)),
    }
    for chain in CHAINS:
        tensors[f"{chain}.previous"] = ("I32", (blocks, depth))
        tensors[f"{chain}.tokens"] = ("I32", (blocks, depth))
        tensors[f"{chain}.targets"] = ("F32", (blocks, len(TEMPERATURES), depth + 1, vocab))
    return tensors


def assembled(header: Header, sha256: str, tensors: Mapping[str, Tensor]) -> Heldout:
    """Give the tensors of a file their places; they must be those of :func:`layout`."""
    sampled, greedy = (
        Chain(*(tensors[f"{chain}.{part}"] for part in ("previous", "tokens", "targets")))
        for chain in CHAINS
    )
    return Heldout(
        header=header,
        sha256=sha256,
        w1=tensors["w1"],
        w2=tensors["w2"],
        starts=tensors["document.starts"],
        tokens=tensors["document.tokens"],
        features=tensors["document.features"],
        document=tensors["block.document"],
        position=tensors["block.position"],
        anchor=tensors["block.anchor"],
        key=tensors["block.key"],
        round=tensors["block.round"],
        base=tensors["block.base"],
        sampled=sampled,
        greedy=greedy,
        argmax=tensors["greedy.argmax"],
    )


def tensor_sha256(tensor: Tensor) -> str:
    """sha256 of a tensor's bytes, which are little-endian on every machine that torch runs on."""
    flat = tensor.detach().cpu().contiguous().view(-1)
    data: np.ndarray[tuple[int], np.dtype[np.uint8]] = flat.view(torch.uint8).numpy()
    return hashlib.sha256(data.data).hexdigest()
