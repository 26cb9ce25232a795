"""Writes and reads the pair: directories that are there as a whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from examples.mini import tokenization
from examples.mini.drafter_model import DrafterModel
from examples.mini.sizes import TargetSizes
from examples.mini.target_model import TargetModel
from pp4.drafter.checkpoint.bundle import CONFIG, SINGLE
from pp4.drafter.checkpoint.synthetic import tree_of
from pp4.errors import BadInputError, Code, Refusal, RefusedError


@contextmanager
def replaced(directory: Path) -> Iterator[Path]:
    """Give a directory to fill that takes the place of another one once it is full.

    What was there is moved aside first and removed last, so at no time is there half of either.
    Where the new one cannot be moved, the old one goes back.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{directory.name}-", dir=directory.parent) as beside:
        fresh, old = Path(beside, "new"), Path(beside, "old")
        fresh.mkdir()
        yield fresh
        if directory.exists():
            os.rename(directory, old)
        try:
            os.rename(fresh, directory)
        except OSError:
            if old.exists():
                os.rename(old, directory)
            raise


def write_target(directory: Path, model: TargetModel, tokenizer: Tokenizer) -> None:
    """Write a target as Hugging Face lays out a Qwen3ForCausalLM, its tokenizer beside it."""
    with replaced(directory) as fresh:
        save_file(_rounded(model), fresh / SINGLE, metadata={"format": "pt"})
        _write_json(fresh / CONFIG, target_tree(model.sizes))
        tokenizer.save(str(fresh / tokenization.TOKENIZER))


def write_drafter(directory: Path, model: DrafterModel) -> None:
    """Write a drafter in DeepSpec's layout."""
    with replaced(directory) as fresh:
        save_file(_rounded(model), fresh / SINGLE, metadata={"format": "pt"})
        _write_json(fresh / CONFIG, tree_of(model.config))


def read_target(directory: Path, model: TargetModel) -> Tokenizer:
    """Load a written target into a model of its sizes; -> its tokenizer.

    Raises:
        RefusedError: ``UNREADABLE``: a file is missing or damaged.
        BadInputError: a target of other sizes.
    """
    try:
        tree = json.loads((directory / CONFIG).read_text("utf-8"))
        state = load_file(directory / SINGLE)
    except (OSError, ValueError, SafetensorError) as error:
        raise RefusedError(
            Refusal(Code.UNREADABLE, directory.name, "a target of this program", str(error))
        ) from error
    tokenizer = tokenization.read(directory / tokenization.TOKENIZER)
    if tree != target_tree(model.sizes):
        raise BadInputError.of(f"{directory.name}/{CONFIG}", "the sizes of this recipe", "others")
    model.load_state_dict({name: value.float() for name, value in state.items()})
    return tokenizer


def target_tree(sizes: TargetSizes) -> dict[str, Any]:
    """What ``config.json`` of a target says."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": sizes.vocab,
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": sizes.positions,
        "rms_norm_eps": sizes.norm_eps,
        "rope_theta": sizes.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of every file of a directory, by name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
    }


def rounded_in_place(model: nn.Module) -> None:
    """Round the weights of a model to what is written."""
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.to(torch.bfloat16))


def parameters(model: nn.Module) -> int:
    """Numbers that a checkpoint of a model holds."""
    return sum(value.numel() for value in model.state_dict().values())


def _rounded(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
    }


def _write_json(path: Path, tree: dict[str, Any]) -> None:
    path.write_text(json.dumps(tree, indent=2, allow_nan=False) + "\n", "utf-8")
