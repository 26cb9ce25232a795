"""Writes a checkpoint of random weights in DeepSpec's layout, the same bytes on every machine.

Nothing in it was trained: it drafts nonsense, but of the sizes, the types and the spread of values
that a worker meets.  Each tensor has a counter of its own, Philox keyed by the seed and by its
name.  NumPy keeps the raw words of a generator the same in every release, and from there on it is a
table of 65,536 BF16 patterns that only exact or correctly rounded FP32 steps go into: no generator
of normal numbers, no library of a machine's own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from pp4.drafter.checkpoint import tensors as names
from pp4.drafter.checkpoint.bundle import CONFIG, SINGLE
from pp4.drafter.checkpoint.tensors import Wanted, wanted
from pp4.drafter.config import DrafterConfig, Layout
from pp4.errors import BadInputError, Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.kernels.reference import round_bf16

LOGITS_SPREAD: Final = 3.0
"""Standard deviation of base logits, about; the Markov bias has 1."""
_AT_ONCE: Final = 1 << 22
"""Elements that are made in one go, 8 MiB."""


def write(path: Path, config: DrafterConfig, seed: int = 0) -> None:
    """Write ``config.json`` and ``model.safetensors`` into a directory, which may exist already.

    Args:
        path: the directory.
        config: what to write, in DeepSpec's layout; sizes that do not go together are found by
            whoever loads it.
        seed: 64 bits, unsigned.

    Raises:
        BadInputError: another layout, a reduced vocabulary, or a seed of more bits.
        RefusedError: ``EXISTS``: there is such a file already; ``UNWRITABLE``: it cannot be made.
    """
    if config.layout is not Layout.DEEPSPEC or config.mapped:
        raise BadInputError.of("config", "DeepSpec's layout, all of the vocabulary", str(config))
    if not 0 <= seed < 1 << 64:
        raise BadInputError.of("seed", "64 bits, unsigned", str(seed))
    for name in (SINGLE, CONFIG):
        if (path / name).exists():
            raise RefusedError(
                Refusal(Code.EXISTS, str(path), "a directory without a checkpoint", name)
            )
    calls = list(wanted(config).values())
    try:
        path.mkdir(parents=True, exist_ok=True)
        # the config comes last: without it there is no checkpoint
        with (path / SINGLE).open("xb") as file:
            file.write(_header(calls))
            for one in calls:
                _write_tensor(file, one, seed)
        with (path / CONFIG).open("x", encoding="utf-8") as text:
            text.write(json.dumps(tree_of(config), indent=2) + "\n")
    except OSError as error:
        found, left = error.strerror or str(error), f"what was written of {SINGLE}, if anything"
        raise RefusedError(
            Refusal(Code.UNWRITABLE, str(path), "room for a checkpoint", found, left=left)
        ) from error


def _header(calls: Sequence[Wanted]) -> bytes:
    """The header of a file whose tensors follow one another in this order."""
    tree: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for one in calls:
        first, end = end, end + 2 * prod(one.shape)
        tree[one.name] = {
            "dtype": "BF16",
            "shape": list(one.shape),
            "data_offsets": [first, end],
        }
    text = json.dumps(tree, separators=(",", ":")).encode()
    # data starts on eight bytes
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _write_tensor(file: BinaryIO, one: Wanted, seed: int) -> None:
    for part in _patterns(one, seed):
        file.write(part.tobytes())


def _patterns(one: Wanted, seed: int) -> Iterator[np.ndarray[Any, Any]]:
    """BF16 patterns of a tensor, ``<u2``, some at a time."""
    table, left = _table(one), prod(one.shape)
    name = int.from_bytes(hashlib.sha256(one.name.encode()).digest()[:8], "little")
    generator = np.random.Philox(key=np.array([seed, name], np.uint64))
    while left:
        count = min(left, _AT_ONCE)
        words = generator.random_raw(-(-count // 4)).astype("<u8", copy=False)
        yield table[words.view("<u2")[:count]]
        left -= count


def _table(one: Wanted) -> np.ndarray[Any, Any]:
    """BF16 patterns by 16 random bits: evenly spread around the middle of a tensor's values."""
    middle, spread = _spread(one)
    # 16 bits are exact in FP32, and so is their distance from the middle of all
    steps = (np.arange(1 << 16, dtype=np.float32) - np.float32(32767.5)) / np.float32(32768)
    # an even spread to both sides of a deviation of 1 ends at the root of 3
    values = steps * np.float32(spread * sqrt(3)) + np.float32(middle)
    return (round_bf16(values).view(np.uint32) >> 16).astype("<u2")


def _spread(one: Wanted) -> tuple[float, float]:
    """Middle and standard deviation of a tensor's values.

    Products keep a deviation of about 1 from layer to layer, weights of norms stay near 1, base
    logits spread wider than the bias, and a confidence is neither surely 0 nor surely 1.
    """
    inputs = one.shape[-1]
    if len(one.shape) == 1:
        return (0.0, 0.1) if one.name == names.CONFIDENCE_BIAS else (1.0, 0.1)
    if one.name in (names.EMBEDDING, names.W1):
        return 0.0, 1.0
    scale = LOGITS_SPREAD if one.name == names.LM_HEAD else 1.0
    return 0.0, scale / sqrt(inputs)


def tree_of(config: DrafterConfig) -> dict[str, Any]:
    """What ``config.json`` says, as DeepSpec writes it."""
    tree: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_positions,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "target_layer_ids": list(config.target_layers),
        "block_size": config.block,
        "mask_token_id": config.mask_token,
        "markov_rank": config.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": config.confidence,
        "confidence_head_with_markov": config.confidence_with_markov,
    }
    if config.softcap is not None:
        tree["final_logit_softcapping"] = config.softcap
    return tree


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pp4.drafter.checkpoint.synthetic",
        description="Write a checkpoint of random weights, the same bytes on every machine.",
    )
    parser.add_argument("path", type=Path, help="a directory without a checkpoint")
    for name, usual, what in (
        ("vocab", 4096, "tokens"),
        ("hidden", 256, "width of the hidden states"),
        ("layers", 2, "decoder layers"),
        ("heads", 4, "query heads"),
        ("kv-heads", 2, "key and value heads"),
        ("head-dim", 64, "width of a head"),
        ("intermediate", 512, "width inside the feed-forward network"),
        ("positions", 8192, "positions of the backbone"),
        ("block", 5, "queries of a block"),
        ("features", 3, "tapped layers of the target"),
        ("rank", 64, "rank of the Markov head"),
        ("seed", 0, "64 bits"),
    ):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"{what} (%(default)s)")
    parser.add_argument("--softcap", type=float, help="bound of the base logits (none)")
    return parser


def _config(given: argparse.Namespace) -> DrafterConfig:
    return DrafterConfig(
        layout=Layout.DEEPSPEC,
        hidden=given.hidden,
        layers=given.layers,
        heads=given.heads,
        kv_heads=given.kv_heads,
        head_dim=given.head_dim,
        intermediate=given.intermediate,
        norm_eps=1e-6,
        rope_theta=1e6,
        max_positions=given.positions,
        vocab=given.vocab,
        draft_vocab=given.vocab,
        block=given.block,
        mask_token=given.vocab - 1,
        target_layers=tuple(range(given.features)),
        markov_rank=given.rank,
        confidence=True,
        confidence_with_markov=True,
        softcap=given.softcap,
    )


def main(arguments: Sequence[str]) -> int:
    """Write a checkpoint, or the refusal as one JSON object; -> the exit code."""
    given = _arguments().parse_args(arguments)
    try:
        write(given.path, _config(given), given.seed)
    except Pp4Error as error:
        sys.stderr.write(json.dumps({"refusal": error.refusal.as_dict()}) + "\n")
        return int(error.exit)
    return int(Exit.DONE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
