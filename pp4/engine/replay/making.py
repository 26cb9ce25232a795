"""Makes a held-out file: a target and a drafter meet held-out text, and all of it is frozen.

The sampled chain is drawn by the exact reference, so that a replay holds the kernel against
something that is not itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from pp4.drafter.checkpoint.load import load as load_drafter
from pp4.drafter.config import DrafterConfig
from pp4.drafter.model import Drafter
from pp4.drafter.support import unsupported
from pp4.drafter.weights import Weights
from pp4.engine.interface import Row, Target
from pp4.engine.replay.documents import Documents, read_documents, windows, words_of_block
from pp4.engine.replay.heldout import CHAINS, TEMPERATURES, Heldout, Sizes, Sources
from pp4.engine.replay.producing import greedy_tokens
from pp4.engine.replay.writing import write_heldout
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load as load_target
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels import vectorised
from pp4.kernels.sampled_fused import SAMPLED
from pp4.receipts.canonical import shown
from pp4.worker.frozen_checkpoint import digest_of

DEPTH: Final = 5
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is frozen.

    Attributes:
        documents: of the text.
        blocks: of each document.
        length: tokens of each document.
        depth: positions of a block.
    """

    documents: int = 8
    blocks: int = 4
    length: int = 96
    depth: int = DEPTH

    def __post_init__(self) -> None:
        for name, least in (("documents", 1), ("blocks", 1), ("length", 2), ("depth", 1)):
            if getattr(self, name) < least:
                raise BadInputError.of(name, f"at least {least}", str(getattr(self, name)))
        if self.length < 2 * self.blocks:
            expected = f"at least {2 * self.blocks} tokens for {self.blocks} blocks"
            raise BadInputError.of("length", expected, str(self.length))

    @property
    def places(self) -> tuple[int, ...]:
        """Where in a document the anchors stand, evenly spread; the last one ends it."""
        return tuple((number + 1) * self.length // self.blocks - 1 for number in range(self.blocks))


@dataclass(frozen=True, slots=True)
class _Block:
    """One frozen block: tensors on a CPU, shapes as in a held-out file, without the first axis."""

    base: Tensor
    chains: tuple[Tensor, Tensor]
    targets: tuple[Tensor, Tensor]
    argmax: Tensor


class Freezer:
    """A target and a drafter side by side; both keep one sequence.

    Args:
        target: of the drafter's vocabulary and feature width, with room for a block.
        weights: of the drafter, whole.
        plan: how much is frozen.

    Raises:
        BadInputError: the two do not belong together, or have no room.
        RefusedError: ``UNSUPPORTED_CHECKPOINT``: the sampled path cannot draft it.
    """

    def __init__(self, target: Target, weights: Weights, plan: Plan) -> None:
        config = weights.config
        _check_pair(target, config, plan)
        self._target, self._plan, self._weights = target, plan, weights
        self._drafter = Drafter(weights, slots=1, context=plan.length)

    def document(self, tokens: Sequence[int], words: Sequence[tuple[int, int]]) -> list[_Block]:
        """Freeze the blocks of a document.

        Args:
            tokens: as many as the plan says.
            words: key and round of each block.
        """
        cache, found = self._drafter.cache, []
        cache.open(0)
        for place, own in zip(self._plan.places, words, strict=True):
            features = self._target.prefill(0, tokens[:place])
            cache.append(0, features[cache.length(0) :].to(self._weights.device))
            found.append(self._block(tokens[place], place, own))
        cache.close(0)
        return found

    def features(self, tokens: Sequence[int]) -> Tensor:
        """``[tokens, width]`` bfloat16 on a CPU."""
        return self._target.prefill(0, tokens).cpu()

    def _block(self, anchor: int, place: int, words: tuple[int, int]) -> _Block:
        hidden = self._drafter.hidden(self._drafter.cache.rows([0], [anchor]))
        # both chains are chosen on a CPU, from what is frozen
        base = self._drafter.base(hidden, self._plan.depth).cpu()
        sampled = self._drawn(base, anchor, place, words)
        w1, w2 = (one.cpu() for one in (self._weights.w1, self._weights.w2))
        greedy = greedy_tokens(w1, w2, base, torch.tensor([anchor]))[0]
        along = [self._logits([anchor, *chain.tolist()]) for chain in (sampled, greedy)]
        # the first maximum of a mask: torch.argmax promises no order among ties
        most = along[1] == along[1].amax(dim=1, keepdim=True)
        return _Block(
            base=base[0],
            chains=(sampled, greedy),
            targets=(_probabilities(along[0]), _probabilities(along[1])),
            argmax=most.to(torch.uint8).argmax(dim=1).to(torch.int32),
        )

    def _logits(self, tokens: Sequence[int]) -> Tensor:
        """``[n + 1, V]`` float64 after each token; nothing is kept."""
        step = self._target.step([Row(0, tokens)])
        return step.logits[0, : len(tokens)].cpu().double()

    def _drawn(self, base: Tensor, anchor: int, place: int, words: tuple[int, int]) -> Tensor:
        """``[n]`` int32: what the exact reference draws."""
        key, round = words
        w1, w2 = (one.cpu().view(torch.int16) for one in (self._weights.w1, self._weights.w2))
        block = vectorised.block(
            w1,
            w2,
            base=base.view(torch.int16),
            mode=torch.tensor([SAMPLED], dtype=torch.int32),
            key=torch.tensor([_signed(key)]),
            position=torch.tensor([place + 1]),
            round=torch.tensor([round]),
            anchor=torch.tensor([anchor]),
        )
        return block.token[0]


def _signed(word: int) -> int:
    """The int64 that has the bits of a 64-bit word."""
    return word - (1 << 64) if word & _SIGN else word


def _probabilities(logits: Tensor) -> Tensor:
    """``[n + 1, V]`` float64 -> ``[T, n + 1, V]`` float32."""
    scaled = [torch.softmax(logits / float(one), dim=1) for one in TEMPERATURES]
    return torch.stack(scaled).to(torch.float32)


def _check_pair(target: Target, config: DrafterConfig, plan: Plan) -> None:
    if config.mapped:
        raise _unsupported("a drafter of the whole vocabulary", f"{config.draft_vocab} tokens")
    reasons = unsupported(config, plan.depth)
    if reasons:
        raise _unsupported(f"a drafter that can sample {plan.depth} positions", reasons[0])
    for name, found, wanted in (
        ("vocabulary", target.vocab, config.vocab),
        ("feature width", target.width, config.feature_width),
    ):
        if found != wanted:
            raise BadInputError.of(f"target: {name}", f"{wanted}, as the drafter has", str(found))
    for name, found, least in (
        ("window", target.window, plan.depth + 1),
        ("context", target.context, plan.length + plan.depth),
    ):
        if found < least:
            raise BadInputError.of(f"target: {name}", f"at least {least} tokens", str(found))


def _unsupported(expected: str, found: str) -> RefusedError:
    return RefusedError(Refusal(Code.UNSUPPORTED_CHECKPOINT, "held-out file", expected, found))


def frozen(
    target: Target, weights: Weights, documents: Documents, plan: Plan
) -> tuple[Sizes, dict[str, Tensor]]:
    """Freeze held-out text.

    Args:
        target: of the drafter's vocabulary and feature width.
        weights: of the drafter, whole.
        documents: of the text.
        plan: how much.

    Returns:
        The sizes, and the tensors of a held-out file by name.

    Raises:
        BadInputError: target, drafter, text and plan do not fit one another.
        RefusedError: ``UNSUPPORTED_CHECKPOINT``.
    """
    freezer = Freezer(target, weights, plan)
    texts = windows(documents, count=plan.documents, length=plan.length, vocabulary=target.vocab)
    words = [
        [words_of_block(documents.sha256, number, block) for block in range(plan.blocks)]
        for number in range(len(texts))
    ]
    blocks = [
        block
        for text, own in zip(texts, words, strict=True)
        for block in freezer.document(text, own)
    ]
    tokens = torch.tensor(texts, dtype=torch.int32)
    tensors = {
        "w1": weights.w1,
        "w2": weights.w2,
        "document.starts": torch.arange(len(texts) + 1) * plan.length,
        "document.tokens": tokens.flatten(),
        "document.features": torch.cat([freezer.features(text) for text in texts]),
        **_places(tokens, words, plan),
        **_stacked(blocks),
    }
    sizes = Sizes(
        vocab=target.vocab,
        depth=plan.depth,
        markov_rank=weights.config.markov_rank,
        feature_width=target.width,
        documents=len(texts),
        tokens=tokens.numel(),
        blocks=len(blocks),
    )
    anchors = tensors["block.anchor"][:, None]
    for chain in CHAINS:
        before = tensors[f"{chain}.tokens"][:, :-1]
        tensors[f"{chain}.previous"] = torch.cat([anchors, before], dim=1)
    return sizes, tensors


def _places(
    tokens: Tensor, words: Sequence[Sequence[tuple[int, int]]], plan: Plan
) -> dict[str, Tensor]:
    """Where the blocks stand, and their words."""
    documents, places = len(tokens), torch.tensor(plan.places)
    own = [one for document in words for one in document]
    return {
        "block.document": torch.arange(documents, dtype=torch.int32).repeat_interleave(plan.blocks),
        "block.position": places.repeat(documents) + 1,
        "block.anchor": tokens[:, places].flatten(),
        "block.key": torch.tensor([_signed(key) for key, _ in own]),
        "block.round": torch.tensor([round for _, round in own]),
    }


def _stacked(blocks: Sequence[_Block]) -> dict[str, Tensor]:
    found = {
        "block.base": torch.stack([one.base for one in blocks]),
        "greedy.argmax": torch.stack([one.argmax for one in blocks]),
    }
    for place, chain in enumerate(CHAINS):
        found[f"{chain}.tokens"] = torch.stack([one.chains[place] for one in blocks])
        found[f"{chain}.targets"] = torch.stack([one.targets[place] for one in blocks])
    return found


def make_heldout(
    *, target: Path, drafter: Path, tokens: Path, out: Path, plan: Plan, device: torch.device
) -> Heldout:
    """Make a held-out file of two checkpoints and held-out text.

    Args:
        target: directory of the target's checkpoint.
        drafter: directory of the drafter's checkpoint.
        tokens: a file of token ids, see :func:`pp4.engine.replay.documents.read_documents`.
        out: the file, which must not exist.
        plan: how much.
        device: where target and drafter run; chains are chosen on a CPU.

    Returns:
        What was written.

    Raises:
        BadInputError: target, drafter, text and plan do not fit one another.
        RefusedError: a file or a checkpoint that cannot be read or is not supported; ``EXISTS`` or
            ``UNWRITABLE``.
    """
    if os.path.lexists(out):
        # looked for again when it is written; here it saves the models' work
        expected, found = "no file of that name", "a file"
        raise RefusedError(Refusal(Code.EXISTS, shown(str(out)), expected, found))
    documents = read_documents(tokens)
    weights = load_drafter(drafter, 0, 1, target=target, device=device)
    sources = Sources(
        target=digest_of(target).sha256,
        drafter=digest_of(drafter).sha256,
        text=documents.sha256,
    )
    model = CausalTarget(
        load_target(target, device),
        taps=weights.config.target_layers,
        slots=1,
        window=plan.depth + 1,
        context=plan.length + plan.depth,
    )
    sizes, tensors = frozen(model, weights, documents, plan)
    return write_heldout(out, sizes, sources, tensors)
