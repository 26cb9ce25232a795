"""The data-pattern check of a link: 256 bytes of an inbox, written by the peer, read by the owner.

Reading one's own writes back proves nothing about the peer, so writer and reader are different
processes.  Only words 0 to 31 of the inbox are tried, every bit of them; its words 32 and 33 carry
the turn.  The rest of the inbox, flags, acknowledgements and error words are not touched.
"""

from __future__ import annotations

import time

import numpy as np
import torch

from pp4.errors import Code, Refusal, TimedOutError

WORDS = 32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def pattern(seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """32 words that differ in every epoch and word, all bits in use (splitmix64)."""
    with np.errstate(over="ignore"):
        state = np.uint64(seed) + _GOLDEN * np.arange(
            1 + epoch * WORDS, 1 + (epoch + 1) * WORDS, dtype=np.uint64
        )
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))).view(np.int64)


def _await(word: torch.Tensor, value: int, deadline: float) -> None:
    while int(word) != value:
        if time.monotonic() > deadline:
            raise TimedOutError(
                Refusal(Code.STEP_TIMEOUT, "data pattern", f"turn {value}", f"turn {int(word)}")
            )
        time.sleep(0)  # two spinning processes on one core would wait out each other's slice


def write(
    peer: torch.Tensor, turn: torch.Tensor, seed: int, epochs: int, *, flip_at: int, limit_s: float
) -> None:
    """Write the pattern of each epoch into the peer's inbox and wait until it was read.

    Args:
        peer: the peer's inbox, at least 32 int64 words.
        turn: ``[2]`` int64 words in the peer's workspace: epochs written, epochs read.
        seed: of the pattern.
        epochs: how many.
        flip_at: epoch in which one bit is flipped on purpose, -1 for none.
        limit_s: for all epochs together.

    Raises:
        TimedOutError: the reader did not come in time.
    """
    deadline = time.monotonic() + limit_s
    for epoch in range(epochs):
        words = pattern(seed, epoch)
        if epoch == flip_at:
            words[epoch % WORDS] ^= np.int64(1) << np.int64(epoch % 63)
        peer[:WORDS] = torch.from_numpy(words)
        turn[0] = epoch + 1
        _await(turn[1], epoch + 1, deadline)


def read(inbox: torch.Tensor, turn: torch.Tensor, seed: int, epochs: int, *, limit_s: float) -> int:
    """Read the own inbox in each epoch; -> epochs whose 256 bytes were not the pattern.

    Arguments and errors as for :func:`write`; ``inbox`` and ``turn`` lie in the own workspace.
    """
    deadline = time.monotonic() + limit_s
    wrong = 0
    for epoch in range(epochs):
        _await(turn[0], epoch + 1, deadline)
        wrong += not np.array_equal(inbox[:WORDS].numpy(), pattern(seed, epoch))
        turn[1] = epoch + 1
    return wrong
