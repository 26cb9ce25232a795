"""Loads what an arm decodes with: the target, the drafter's config and the prompts."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pp4.drafter.checkpoint.configs import read_config as read_drafter
from pp4.drafter.config import DrafterConfig
from pp4.drafter.support import unsupported
from pp4.engine.measured.prompts import Prompts, read_prompts
from pp4.engine.measured.targets import Sized
from pp4.engine.target.config import TargetConfig
from pp4.engine.target.config import read_config as read_target
from pp4.engine.target.load import load
from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.wire.measured import Prepare
from pp4.worker.frozen_checkpoint import digest_of


@dataclass(frozen=True, slots=True)
class Pair:
    """What an arm decodes with.

    Attributes:
        asked: what was asked for.
        target: loaded.
        drafter: the config of the drafter, which the worker has.
        prompts: all of them fit.
        device: that the target runs on.
        target_sha256: of its checkpoint.
        drafter_sha256: of the drafter's.
    """

    asked: Prepare
    target: Sized
    drafter: DrafterConfig
    prompts: Prompts
    device: torch.device
    target_sha256: str
    drafter_sha256: str

    @property
    def device_name(self) -> str:
        """What the target runs on."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"

    @property
    def versions(self) -> dict[str, str]:
        """Of what decides a time, by name."""
        found = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        }
        return found if torch.version.cuda is None else {**found, "cuda": torch.version.cuda}

    @property
    def features(self) -> int:
        """Tokens that the worker has features of, at most."""
        return self.target.context - self.asked.depth - 1


def load_pair(asked: Prepare) -> Pair:
    """Load a pair; whatever does not fit is refused before weights are read.

    The context is what the longest prompt, all new tokens and one block more take, so that no
    step of any round lacks the room for a block.

    Raises:
        BadInputError: drafter, target, prompts and numbers do not fit each other.
        RefusedError: ``UNREADABLE``, ``NOT_JSON``, ``BAD_CHECKPOINT``, ``UNSUPPORTED_CHECKPOINT``;
            ``NO_GPU_PAIR``: the GPU is not there.
    """
    drafter, target = read_drafter(Path(asked.drafter)), read_target(Path(asked.target))
    _require_pair(drafter, target, asked.depth)
    prompts = read_prompts(Path(asked.prompts))
    _require_prompts(prompts, asked.slots, target.vocab)
    # a worker takes no context that is nearer than a block to the drafter's last position
    positions = min(target.max_positions, drafter.max_positions - drafter.block)
    context = _context(prompts, asked, positions)
    device = _device(asked.gpus)
    sized = Sized(
        load(asked.target, device),
        taps=drafter.target_layers,
        slots=asked.slots,
        window=asked.depth + 1,
        context=context,
    )
    digests = (digest_of(Path(path)).sha256 for path in (asked.target, asked.drafter))
    return Pair(asked, sized, drafter, prompts, device, *digests)


def _device(gpus: tuple[str, ...]) -> torch.device:
    if not gpus:
        return torch.device("cpu")
    # it brings Triton with it, which a CPU has no use for
    from pp4.worker.cuda import number_of

    device = torch.device("cuda", number_of(gpus[0]))
    torch.cuda.set_device(device)
    return device


def _require_pair(drafter: DrafterConfig, target: TargetConfig, depth: int) -> None:
    for name, expected, found in (
        ("vocabulary", drafter.vocab, target.vocab),
        ("hidden size", drafter.hidden, target.hidden),
    ):
        if found != expected:
            where = f"target, {name}"
            raise BadInputError.of(where, f"{expected}, as the drafter has", str(found))
    most = drafter.target_layers[-1]
    if most >= target.layers:
        expected_layers = f"more than {most}, since the drafter's features are of layer {most}"
        raise BadInputError.of("target, layers", expected_layers, str(target.layers))
    reasons = unsupported(drafter, depth)
    if reasons:
        expected_depth = f"a drafter that can sample {depth} positions"
        raise RefusedError(
            Refusal(Code.UNSUPPORTED_CHECKPOINT, "drafter", expected_depth, reasons[0])
        )


def _require_prompts(prompts: Prompts, slots: int, vocab: int) -> None:
    count = len(prompts.tokens)
    if count < slots:
        expected = f"at least {slots}, one for each request of the largest batch"
        raise BadInputError.of("prompts", expected, str(count))
    for number, tokens in enumerate(prompts.tokens, 1):
        wrong = next((token for token in tokens if not 0 <= token < vocab), None)
        if wrong is not None:
            where = f"prompts, line {number}"
            raise BadInputError.of(where, f"tokens from 0 to {vocab - 1}", str(wrong))


def _context(prompts: Prompts, asked: Prepare, positions: int) -> int:
    """Tokens that a sequence may have: a block has to fit behind all but the last new token."""
    behind = asked.new_tokens + asked.depth - 1
    for number, tokens in enumerate(prompts.tokens, 1):
        if len(tokens) + behind > positions:
            expected = (
                f"at most {max(0, positions - behind)} tokens: {positions} positions hold the "
                f"prompt, {asked.new_tokens} new tokens and a block of {asked.depth}"
            )
            raise BadInputError.of(f"prompts, line {number}", expected, str(len(tokens)))
    return max(map(len, prompts.tokens)) + behind
