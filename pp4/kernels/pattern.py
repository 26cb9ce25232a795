"""The data-pattern check of a link: 256 bytes of an inbox, written by the peer, read by the owner.

Reading one's own writes back proves nothing about the peer, so writer and reader are different
processes.  Only words 0 to 31 of the inbox are tried, every bit of them.  Word 32 of the reader's
inbox carries the turn, written by the writer; word 33 of the writer's inbox carries the answer,
written by the reader.  Each rank stores into the other's memory and reads its own alone, so no read
crosses the link.  Flags, acknowledgements and error words are not touched.

On GPUs one launch goes through all epochs.  Where the ranks are processes of a CPU the same steps
are plain Python: an interpreted epoch costs a rank milliseconds, one in Python some microseconds.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pp4.errors import BadInputError, Code, Refusal, TimedOutError, WrongError
from pp4.kernels.compile import Compiled
from pp4.kernels.device import pattern as device_pattern
from pp4.kernels.device.pattern import ANSWER, TURN
from pp4.kernels.faults import Fault
from pp4.kernels.link import POISON, Link
from pp4.kernels.loading import load_as_called, stand_in
from pp4.kernels.sampled_fused import interpreted

WORDS = 32
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OPTIONS = {"num_warps": 4}
_MOST_POLLS = 1 << 40

Words = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Result:
    """What one rank saw.

    Attributes:
        epochs: epochs that both ranks completed.
        mismatches: epochs whose 256 bytes were not the pattern; 0 at the writer.
    """

    epochs: int
    mismatches: int


def pattern(seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """32 words that differ in every epoch and word, all bits in use (splitmix64)."""
    with np.errstate(over="ignore"):
        state = np.uint64(seed) + _GOLDEN * np.arange(
            1 + epoch * WORDS, 1 + (epoch + 1) * WORDS, dtype=np.uint64
        )
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (state ^ (state >> np.uint64(31))).view(np.int64)


def run(
    link: Link, *, writer: bool, seed: int, epochs: int, flip_at: int = -1, limit_s: float
) -> Result:
    """Take one rank's part; both call it with the same numbers, one of them as the writer.

    The kernel must be loaded before (:func:`prime`), or the time for it counts.  Afterwards the
    words that were used are as a new workspace has them, so that checks may follow each other.

    Args:
        link: a link of a pair, whose inbox nobody else uses meanwhile.
        writer: whether this rank writes.
        seed: of the pattern, 64 bits unsigned.
        epochs: how many.
        flip_at: epoch in which the writer flips one bit on purpose, -1 for none.
        limit_s: for all epochs together, seconds.

    Raises:
        BadInputError: a number is out of range, or the link has no peer.
        TimedOutError: ``STEP_TIMEOUT``, the peer did not come in time.
        WrongError: an error word was set meanwhile, or a turn came that nobody is at.
    """
    _check(link, seed, epochs, flip_at, limit_s)
    if link.epochs.device.type == "cuda":
        return launched(
            link, writer=writer, seed=seed, epochs=epochs, flip_at=flip_at, limit_s=limit_s
        )
    own, peer = (_mapped(address) for address in (link.own_address, link.peer_address))
    deadline = time.monotonic() + limit_s
    if writer:
        _write(peer, peer[TURN:ANSWER], own[ANSWER:], seed, epochs, flip_at, deadline)
        own[ANSWER] = POISON
        return Result(epochs, 0)
    return Result(epochs, _read(own, own[TURN:ANSWER], peer[ANSWER:], seed, epochs, deadline))


def launched(
    link: Link,
    *,
    writer: bool,
    seed: int,
    epochs: int,
    flip_at: int,
    limit_s: float,
    max_polls: int = _MOST_POLLS,
) -> Result:
    """Take one rank's part by the kernel; in the interpreter ``max_polls`` is the only bound.

    Arguments and errors as for :func:`run`; synchronises with the device.
    """
    result = torch.zeros(3, dtype=torch.int64, device=link.epochs.device)
    kernel = device_pattern.exchange_pattern
    scalars = {
        "own_workspace": link.own_address,
        "peer_workspace": link.peer_address,
        "rows": link.rows,
        "writer": int(writer),
        "seed": seed - (seed >> 63 << 64),
        "epochs": epochs,
        "flip_at": flip_at,
        "budget": int(limit_s * 1e9),
        "max_polls": max_polls,
    }
    pointers = {"own_error_ptr": link.own_error, "result_ptr": result}
    kernel[(1,)](**pointers, **scalars, INTERPRETED=interpreted(kernel), **_OPTIONS)
    mismatches, done, fault = (int(word) for word in result.tolist())
    if fault == Fault.PEER_TIMEOUT:
        raise _timed_out(done + 1, f"{done} epochs in {limit_s} s")
    if fault:
        code = Code[Fault(fault).name]
        raise WrongError(Refusal(code, "data pattern", f"turn {done + 1}", code))
    return Result(done, mismatches)


def prime(device: torch.device) -> Compiled:
    """Compile and load the kernel on a GPU, launching nothing; -> what came out.

    Raises:
        BadInputError: ``device`` is no numbered GPU, or kernels are interpreted in this process.
        RefusedError: ``UNPRIMED``, it does not compile or does not load.
    """
    arguments = {
        **{name: stand_in("*i64") for name in device_pattern.POINTERS},
        **dict.fromkeys(device_pattern.SCALARS, 0),
        "INTERPRETED": False,
        **_OPTIONS,
    }
    return load_as_called(device_pattern.exchange_pattern, arguments, device=device)


def _check(link: Link, seed: int, epochs: int, flip_at: int, limit_s: float) -> None:
    if link.shards != 1:
        raise BadInputError.of("link", "a link of a pair", "solo, which has no peer")
    if not 0 <= seed < 1 << 64:
        raise BadInputError.of("seed", "64 bits, unsigned", str(seed))
    if not 0 < epochs < 1 << 40:
        raise BadInputError.of("epochs", f"1 to {(1 << 40) - 1}", str(epochs))
    if not -1 <= flip_at < epochs:
        raise BadInputError.of("flip_at", f"-1 or an epoch below {epochs}", str(flip_at))
    if not 0 < limit_s <= 3600:
        raise BadInputError.of("limit_s", "more than 0 and at most 3600 seconds", str(limit_s))


def _mapped(address: int) -> Words:
    """Words 0 to 33 of a workspace in memory of this machine."""
    words = (ctypes.c_int64 * (ANSWER + 1)).from_address(address)
    return np.frombuffer(memoryview(words), np.int64)


def _timed_out(turn: int, found: str) -> TimedOutError:
    return TimedOutError(Refusal(Code.STEP_TIMEOUT, "data pattern", f"turn {turn}", found))


def _await(word: Words, value: int, deadline: float) -> None:
    while word[0] != value:
        if time.monotonic() > deadline:
            raise _timed_out(value, f"turn {int(word[0])}")
        time.sleep(0)  # two spinning processes on one core would wait out each other's slice


def _write(
    peer: Words, turn: Words, answer: Words, seed: int, epochs: int, flip_at: int, deadline: float
) -> None:
    for epoch in range(epochs):
        words = pattern(seed, epoch)
        if epoch == flip_at:
            words[epoch % WORDS] ^= np.int64(1) << np.int64(epoch % 63)
        peer[:WORDS] = words
        turn[0] = epoch + 1
        _await(answer, epoch + 1, deadline)


def _read(
    inbox: Words,
    turn: Words,
    answer: Words,
    seed: int,
    epochs: int,
    deadline: float,
) -> int:
    wrong = 0
    for epoch in range(epochs):
        _await(turn, epoch + 1, deadline)
        wrong += not np.array_equal(inbox[:WORDS], pattern(seed, epoch))
        if epoch == epochs - 1:
            inbox[:ANSWER] = POISON
        answer[0] = epoch + 1
    return wrong
