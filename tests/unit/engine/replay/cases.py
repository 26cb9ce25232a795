"""Small held-out files: of a tiny pair, and made by hand."""

from dataclasses import replace

import numpy as np
import torch
from safetensors.torch import load, save

from pp4.engine.replay.heldout import (
    FORMAT,
    METADATA,
    TEMPERATURES,
    Header,
    Sizes,
    Sources,
    assembled,
    tensor_sha256,
)
from pp4.engine.replay.making import Plan
from pp4.engine.replay.producing import greedy_tokens
from pp4.kernels import dyadic24, vectorised
from pp4.kernels.sampled_fused import SAMPLED
from pp4.receipts.canonical import dump, parse
from tests.unit.engine.target import checkpoints

TARGET = replace(checkpoints.SMALL, vocab=150)
DRAFTER = checkpoints.drafter_of(TARGET)
PLAN = Plan(documents=2, blocks=2, length=12)
DOCUMENTS = [
    np.random.default_rng(number).integers(0, 149, length).tolist()
    for number, length in enumerate((11, 12, 30, 40))
]
"""The first is too short to be taken."""
SOURCES = Sources(target="1" * 64, drafter="2" * 64, text="3" * 64)


def by_hand(base, keys, targets, *, argmax=None, documents=None):
    """A held-out file in memory whose bias is 0 everywhere, so that base logits are conditioned.

    Args:
        base: ``[N, n, V]``.
        keys: of each block; every anchor is token 0, positions and rounds are 2 and 0.
        targets: ``[T, n + 1, V]``, the same along every chain.
        argmax: ``[N, n + 1]``; that of the targets where None.
        documents: of each block; a document of its own where None.
    """
    base = torch.tensor(base, dtype=torch.bfloat16)
    count, depth, vocab = base.shape
    documents = list(range(count)) if documents is None else documents
    zeros = torch.zeros(vocab, 1, dtype=torch.bfloat16)
    targets = torch.tensor(targets, dtype=torch.float32).expand(count, -1, -1, -1)
    anchors = torch.zeros(count, dtype=torch.int32)
    key = torch.from_numpy(np.array(keys, np.uint64).view(np.int64))
    words = {"key": key, "position": torch.full((count,), 2), "round": torch.zeros(count).long()}
    drawn = vectorised.block(
        zeros.view(torch.int16),
        zeros.view(torch.int16),
        base=base.view(torch.int16),
        mode=torch.full((count,), SAMPLED, dtype=torch.int32),
        anchor=anchors.long(),
        **words,
    )
    chains = {"sampled": drawn.token, "greedy": greedy_tokens(zeros, zeros, base, anchors)}
    total = len(set(documents))
    tensors = {
        "w1": zeros,
        "w2": zeros,
        "document.starts": torch.arange(total + 1) * 2,
        "document.tokens": torch.zeros(2 * total, dtype=torch.int32),
        "document.features": torch.zeros(2 * total, 3, dtype=torch.bfloat16),
        "block.document": torch.tensor(documents, dtype=torch.int32),
        "block.anchor": anchors,
        "block.base": base,
        **{f"block.{name}": one for name, one in words.items()},
    }
    for name, tokens in chains.items():
        tensors[f"{name}.tokens"] = tokens
        tensors[f"{name}.previous"] = torch.cat([anchors[:, None], tokens[:, :-1]], dim=1)
        tensors[f"{name}.targets"] = targets
    if argmax is None:
        argmax = targets[:, 1].argmax(dim=2)
    tensors["greedy.argmax"] = torch.as_tensor(argmax).to(torch.int32)
    sizes = Sizes(
        vocab=vocab,
        depth=depth,
        markov_rank=1,
        feature_width=3,
        documents=total,
        tokens=2 * total,
        blocks=count,
    )
    return assembled(header_of(sizes, tensors), "0" * 64, tensors)


def header_of(sizes, tensors, sources=SOURCES):
    return Header(
        format=FORMAT,
        definition=dyadic24.DEFINITION,
        definition_sha256=dyadic24.definition_digest(),
        temperatures=TEMPERATURES,
        sizes=sizes,
        sources=sources,
        tensors={name: tensor_sha256(one) for name, one in tensors.items()},
    )


def opened(raw):
    """The header, as a tree, and the tensors of a file."""
    length = int.from_bytes(raw[:8], "little")
    outer = parse(raw[8 : 8 + length], "header")
    return parse(outer["__metadata__"][METADATA].encode(), "own"), load(raw)


def closed(header, tensors, *, seal=True):
    """The bytes of a file, digests of its tensors renewed; nothing is checked."""
    if seal:
        digests = {name: tensor_sha256(one) for name, one in tensors.items()}
        header = {**header, "tensors": digests}
    return save(tensors, metadata={METADATA: dump(header).decode()})


def cut(raw, depth):
    """The bytes of a file, its blocks cut to their first positions."""
    header, tensors = opened(raw)
    ends = {"targets": (slice(None), slice(depth + 1)), "argmax": (slice(depth + 1),)}
    ends |= dict.fromkeys(("base", "previous", "tokens"), (slice(depth),))
    for name, one in tensors.items():
        own, part = name.split(".") if "." in name else ("", name)
        if own != "document" and part in ends:
            tensors[name] = one[(slice(None), *ends[part])].contiguous()
    return closed({**header, "sizes": {**header["sizes"], "depth": depth}}, tensors)
