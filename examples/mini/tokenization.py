"""The tokenizer: byte-level BPE, made from the training split alone; texts as streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from examples.mini.text import Source
from pp4.errors import BadInputError, Code, Refusal, RefusedError

TOKENIZER: Final = "tokenizer.json"
"""File of a tokenizer, beside the weights of its target."""
END: Final = "<|endoftext|>"
"""Stands before every file; token 0."""
MASK: Final = "<|mask|>"
"""Stands in the drafter's queries after the anchor; the last token, never in a text."""
_ALPHABET: Final = 256
"""Every byte has a token, so there is no text without an encoding."""


def trained(sources: Sequence[Source], vocab: int) -> Tokenizer:
    """Train a tokenizer; the same texts give the same one.

    Args:
        sources: of the training split.
        vocab: tokens, the two special ones among them.

    Raises:
        BadInputError: too few tokens, a special token in a text, or so little text that there are
            no pairs left to merge.
    """
    if vocab < _ALPHABET + 2:
        raise BadInputError.of("vocabulary", f"at least {_ALPHABET + 2} tokens", str(vocab))
    _require_plain(sources)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - 1,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([source.text for source in sources], trainer)
    tokenizer.add_special_tokens([AddedToken(MASK, special=True)])
    require(tokenizer, vocab)
    return tokenizer


def read(path: Path) -> Tokenizer:
    """Read a tokenizer's file.

    Raises:
        RefusedError: ``UNREADABLE``: it is not there, or is none.
    """
    try:
        return Tokenizer.from_str(path.read_text("utf-8"))
    # the library raises nothing more particular for a text that is no tokenizer
    except Exception as error:
        where = f"{path.parent.name}/{path.name}"
        expected = "a file of the tokenizers library"
        raise RefusedError(Refusal(Code.UNREADABLE, where, expected, str(error)[:200])) from error


def require(tokenizer: Tokenizer, vocab: int) -> None:
    """Refuse a tokenizer of another vocabulary, or whose special tokens stand elsewhere.

    Raises:
        BadInputError: it is one.
    """
    found = tokenizer.get_vocab_size(), tokenizer.token_to_id(END), tokenizer.token_to_id(MASK)
    if found != (vocab, 0, vocab - 1):
        raise BadInputError.of(
            "tokenizer",
            f"{vocab} tokens, {END} the first and {MASK} the last",
            f"{found[0]} tokens, these at {found[1]} and {found[2]}",
        )


def stream(tokenizer: Tokenizer, sources: Sequence[Source]) -> NDArray[np.int32]:
    """Encode texts one after the other, the end token before each; -> ``[tokens]``.

    Raises:
        BadInputError: a special token in a text.
    """
    _require_plain(sources)
    end = np.array([tokenizer.token_to_id(END)], np.int32)
    parts: list[NDArray[np.int32]] = []
    for encoded in tokenizer.encode_batch([source.text for source in sources]):
        parts += [end, np.array(encoded.ids, np.int32)]
    return np.concatenate(parts)


def _require_plain(sources: Sequence[Source]) -> None:
    for source in sources:
        for special in (END, MASK):
            if special in source.text:
                raise BadInputError.of(source.path, "text without special tokens", special)
