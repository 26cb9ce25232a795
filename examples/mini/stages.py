"""The stages of a training, one after the other over what the ones before made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from examples.mini import evaluation, losses, sampled_text, text, tokenization
from examples.mini.blocks import asked, drafted, labels, last_place
from examples.mini.drafter_model import DrafterModel
from examples.mini.export import rounded_in_place
from examples.mini.fitting import Course, Fit, Ways
from examples.mini.sizes import Recipe
from examples.mini.target_model import TargetModel, text_loss
from examples.mini.windows import Windows, consecutive


@dataclass(frozen=True, slots=True)
class Bench:
    """What all stages share.

    Attributes:
        recipe: sizes and settings.
        device: where models lie.
        seed: of everything that is drawn.
    """

    recipe: Recipe
    device: torch.device
    seed: int

    def new_target(self) -> TargetModel:
        """A target with first weights."""
        recipe = self.recipe
        torch.manual_seed(self.seed)
        return TargetModel(
            recipe.target,
            context=recipe.context,
            taps=recipe.drafter.target_layers,
            dropout=recipe.dropout,
            dtype=torch.bfloat16,
            device=self.device,
        )


@dataclass(frozen=True, slots=True)
class Corpus:
    """The text.

    Attributes:
        sources: files of each split.
        left_out: paths of files that are no UTF-8.
    """

    sources: dict[str, list[text.Source]]
    left_out: list[str]

    def described(self) -> dict[str, Any]:
        """Files, bytes and digests, ready for JSON."""
        every = sorted((one for part in self.sources.values() for one in part), key=_path)
        parts = {"all": every, **self.sources}
        return {
            "not_utf8": self.left_out,
            **{
                name: {
                    "files": len(part),
                    "bytes": sum(one.size for one in part),
                    "sha256": text.digest(part),
                }
                for name, part in parts.items()
            },
        }


def corpus(directory: Path) -> Corpus:
    """Read a directory and deal its files to the splits."""
    sources, left_out = text.read(directory)
    return Corpus(text.dealt(sources), left_out)


def streams(tokenizer: Tokenizer, found: Corpus, device: torch.device) -> dict[str, Tensor]:
    """Tokens of each split; -> ``[tokens]`` int32 by split."""
    return {
        split: torch.from_numpy(tokenization.stream(tokenizer, sources)).to(device)
        for split, sources in found.sources.items()
    }


def fit_target(
    bench: Bench, tokens: dict[str, Tensor], seconds: float
) -> tuple[TargetModel, Course]:
    """Train the target; -> it with the weights that validated best, rounded to BF16."""
    recipe = bench.recipe
    model = bench.new_target().train()
    window = {"length": recipe.context + 1, "stride": recipe.context}
    batch = recipe.fit_target.batch
    windows = Windows(tokens["train"], **window, batch=batch, seed=bench.seed)
    validation = consecutive(tokens["validation"], **window)
    ways: Ways[TargetModel] = Ways(
        loss=lambda: text_loss(model, windows.next()),
        validate=lambda average: evaluation.target_loss(average, validation),
    )
    fit = Fit(
        model,
        recipe.fit_target,
        ways,
        seconds=seconds,
        tokens=batch * recipe.context,
        batches=windows.batches,
    )
    best = fit.run()
    rounded_in_place(best)
    return best, fit.course


def sampled(bench: Bench, target: TargetModel, stream: Tensor) -> Tensor:
    """Text sampled from the target after prompts of a split; -> ``[sequences, context]`` int64."""
    recipe, batch = bench.recipe, bench.recipe.sampled_batch
    generator = torch.Generator(bench.device).manual_seed(bench.seed + 2)
    starts = torch.randint(
        len(stream) - recipe.prompt,
        (recipe.sampled_rounds, batch),
        generator=generator,
        device=bench.device,
    )
    spread = torch.arange(recipe.prompt, device=bench.device)
    rounds = [
        sampled_text.continued(
            target,
            stream[row[:, None] + spread].long(),
            never=recipe.drafter.mask_token,
            warmth=sampled_text.warmths(batch, bench.device),
            generator=generator,
        )
        for row in starts
    ]
    return torch.cat(rounds)


class DrafterText:
    """Batches for the drafter: half of them real text, half sampled, and where blocks stand.

    Args:
        bench: recipe, device and seed.
        stream: of the training split.
        made: ``[sequences, context]``, sampled.
    """

    def __init__(self, bench: Bench, stream: Tensor, made: Tensor) -> None:
        recipe = bench.recipe
        self._half = recipe.fit_drafter.batch // 2
        self._made, self._anchors = made, recipe.anchors
        self._last = last_place(recipe.context, recipe.drafter.block)
        self._generator = torch.Generator().manual_seed(bench.seed + 1)
        length = recipe.context
        self._real = Windows(
            stream, length=length, stride=length, batch=self._half, seed=bench.seed + 1
        )

    @property
    def batches(self) -> int:
        """Batches of a pass over the real text, about."""
        return self._real.batches

    def next(self) -> tuple[Tensor, Tensor]:
        """Sequences ``[B, context]`` and places ``[A]`` of the anchors, the same in all."""
        rows = torch.randint(len(self._made), (self._half,), generator=self._generator)
        tokens = torch.cat([self._real.next(), self._made[rows.to(self._made.device)]])
        places = torch.randperm(self._last + 1, generator=self._generator)[: self._anchors]
        return tokens, places.sort().values.to(tokens.device)


def fit_drafter(
    bench: Bench,
    target: TargetModel,
    tokens: dict[str, Tensor],
    made: Tensor,
    seconds: float,
    keep: Callable[[DrafterModel, Course], None],
) -> tuple[DrafterModel, Course]:
    """Train the drafter; -> it with the weights that validated best, rounded to BF16."""
    recipe = bench.recipe
    block, length, fitting = recipe.drafter.block, recipe.context, recipe.fit_drafter
    torch.manual_seed(bench.seed + 1)
    embedding = target.model.embed_tokens.weight.detach()
    model = DrafterModel(
        recipe.drafter, context=length, embedding=embedding, dtype=torch.bfloat16
    ).train()
    batches = DrafterText(bench, tokens["train"], made)
    validation = consecutive(tokens["validation"], length=length, stride=length)

    def loss() -> Tensor:
        read, places = batches.next()
        features, logits = asked(target, read, places, block)
        found = drafted(model, features, read, places)
        return losses.drafter_loss(found, logits, labels(read, places, block))

    ways: Ways[DrafterModel] = Ways(
        loss=loss,
        validate=lambda average: evaluation.drafter_loss(
            average, target, validation, recipe.anchors
        ),
        keep=keep,
    )
    fit = Fit(
        model,
        fitting,
        ways,
        seconds=seconds,
        tokens=fitting.batch * length,
        batches=batches.batches,
    )
    best = fit.run()
    rounded_in_place(best)
    return best, fit.course


def evaluated(
    bench: Bench,
    target: TargetModel,
    drafter: DrafterModel,
    heldout: Tensor,
    size: int,
) -> dict[str, Any]:
    """What the pair does on the held-out split, and on text sampled after prompts of it.

    Args:
        bench: recipe and device.
        target: as written.
        drafter: as written.
        heldout: ``[tokens]`` of the split.
        size: bytes of its files.
    """
    recipe, length = bench.recipe, bench.recipe.context
    nats = evaluation.target_loss(target, consecutive(heldout, length=length + 1, stride=length))
    windows = consecutive(heldout, length=length, stride=length)
    generator = torch.Generator(bench.device).manual_seed(bench.seed + 3)
    by_warmth = {}
    for warmth in evaluation.TEMPERATURES:
        made = sampled_text.continued(
            target,
            windows[:, : recipe.prompt],
            never=recipe.drafter.mask_token,
            warmth=torch.full((len(windows),), warmth, device=bench.device),
            generator=generator,
        )
        by_warmth[f"sampled_at_{warmth}"] = evaluation.measured(
            drafter, target, made, recipe.anchors, recipe.prompt
        )
    return {
        "tokens": len(heldout),
        "bytes_per_token": round(size / len(heldout), 4),
        "target_nats_per_token": round(nats, 5),
        "target_bits_per_byte": round(evaluation.bits_per_byte(nats, len(heldout), size), 5),
        "text": evaluation.measured(drafter, target, windows, recipe.anchors),
        **by_warmth,
    }


def _path(source: text.Source) -> str:
    return source.path
