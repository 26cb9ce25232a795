"""One captured shape of the sampled path: fixed buffers, one launch per position.

Inputs are rewritten in place and outputs live as long as the block, so that a recorded graph can be
replayed with new requests.  Nothing is read back here but by :meth:`SampledBlock.outputs`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pp4.errors import BadInputError
from pp4.kernels import dyadic24, sampled_fused
from pp4.kernels.head import Head, patterns, sharded
from pp4.kernels.layout import MOST_ROWS
from pp4.kernels.link import Link
from pp4.kernels.reference import Row
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED

POISON_INT = -0x5A5A5A5B
ALIGNMENT = 16
MODES = (INACTIVE, SAMPLED, GREEDY)


@dataclass(frozen=True, slots=True)
class Request:
    """What a row brings along.

    Attributes:
        mode: ``SAMPLED``, ``GREEDY`` (T = 0) or ``INACTIVE`` (padding).
        key: the request's own 64-bit key.
        position: absolute position of the first predicted token.
        round: the request's round.
        anchor: token before the first predicted one.
    """

    mode: int = SAMPLED
    key: int = 0
    position: int = 0
    round: int = 0
    anchor: int = 0


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs of a block on the host.

    Attributes:
        ids: ``[B, n_out, 32]`` int32, -1 where no candidate is.
        q: ``[B, n_out, 32]`` float32.
        token: ``[B, n_out]`` int32, -1 on an error.
        error: ``[B, n_out]`` int32, a :class:`Fault`.
        stamp: ``[B, n_out]`` int64, the row's epoch once everything else was written.
    """

    ids: np.ndarray[Any, Any]
    q: np.ndarray[Any, Any]
    token: np.ndarray[Any, Any]
    error: np.ndarray[Any, Any]
    stamp: np.ndarray[Any, Any]

    def digest(self, row: int | None = None) -> str:
        """sha256 over ids, q, tokens and error words, of the block or of one row."""
        part = slice(None) if row is None else slice(row, row + 1)
        state = hashlib.sha256()
        for array in (self.ids, self.q, self.token, self.error):
            state.update(np.ascontiguousarray(array[part]).tobytes())
        return state.hexdigest()


@dataclass(frozen=True, slots=True)
class Buffers:
    """Inputs of a block that lie in somebody else's memory, such as one buffer for a whole batch.

    Attributes:
        mode: ``[B]`` int32.
        position: ``[B]`` int32.
        round: ``[B]`` int32.
        key: ``[B]`` int64.
        logits: ``[shards, B, n_out, stride]`` int16 BF16 patterns.
    """

    mode: torch.Tensor
    position: torch.Tensor
    round: torch.Tensor
    key: torch.Tensor
    logits: torch.Tensor


class SampledBlock:
    """Buffers and launches of one (batch, n_out) on one rank.

    Args:
        head: Markov head of the shards that are here.
        link: the way to the peer, or its stand-in.
        batch: rows, at most the link's.
        n_out: positions of the block.
        kernel: the product's kernel; a control passes its mutant.
        buffers: where the inputs lie; None for buffers of the block's own.

    Raises:
        BadInputError: head and link disagree about shards, the batch does not fit, or a buffer
            does not start where the kernel may read it.
    """

    def __init__(
        self,
        head: Head,
        link: Link,
        *,
        batch: int,
        n_out: int,
        kernel: Any = None,
        buffers: Buffers | None = None,
    ) -> None:
        if len(head.shards) != link.shards:
            raise BadInputError.of("head", f"{link.shards} shards", f"{len(head.shards)}")
        most = min(link.rows, MOST_ROWS)
        if not 1 <= batch <= most:
            raise BadInputError.of("batch", f"1 to {most} rows", str(batch))
        if n_out < 1:
            raise BadInputError.of("n_out", "at least one position", str(n_out))
        self.head, self.link, self.batch, self.n_out = head, link, batch, n_out
        self.kernel = kernel or sampled_fused._kernel
        self._allocate(head.w1.device, buffers)
        self._check_alignment()

    def _allocate(self, device: torch.device, buffers: Buffers | None) -> None:
        geometry, shards = self.head.geometry, self.link.shards
        batch, n_out = self.batch, self.n_out

        def make(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        given = buffers or Buffers(
            mode=make(batch),
            position=make(batch),
            round=make(batch),
            key=make(batch, dtype=torch.int64),
            logits=make(shards, batch, n_out, geometry.stride, dtype=torch.int16),
        )
        self._check_buffers(given, device)
        self.mode, self.position, self.round = given.mode, given.position, given.round
        self.key, self.logits = given.key, given.logits
        self.chain = make(batch, n_out + 1)
        self.ids = make(batch, n_out, dyadic24.WIDTH)
        self.q = make(batch, n_out, dyadic24.WIDTH, dtype=torch.float32)
        self.token, self.error = make(batch, n_out), make(batch, n_out)
        self.stamp, self.waited = (make(batch, n_out, dtype=torch.int64) for _ in range(2))
        scratch = geometry.scratch_words(batch, shards)
        self.candidates = make(scratch, dtype=torch.int64)
        # tiles of each row, panels of each tile of each row
        counters = batch * (1 + shards * geometry.tiles)
        self.retired = make(counters, dtype=torch.int64)

    def _check_buffers(self, given: Buffers, device: torch.device) -> None:
        """Refuse buffers that the kernel would read beyond or otherwise than they are."""
        rows = (self.batch,)
        logits = (self.link.shards, self.batch, self.n_out, self.head.geometry.stride)
        for name, shape, dtype in (
            ("mode", rows, torch.int32),
            ("position", rows, torch.int32),
            ("round", rows, torch.int32),
            ("key", rows, torch.int64),
            ("logits", logits, torch.int16),
        ):
            tensor: torch.Tensor = getattr(given, name)
            found = (tuple(tensor.shape), tensor.dtype, tensor.device)
            if found != (shape, dtype, device) or not tensor.is_contiguous():
                raise BadInputError.of(
                    name,
                    f"{dtype} {list(shape)} in one piece on {device}",
                    f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}",
                )

    def _check_alignment(self) -> None:
        """Refuse buffers that break what the kernel tells the compiler about its pointers."""
        for name, tensor in (
            ("w2", self.head.w2),
            ("bias", self.head.bias),
            ("logits", self.logits),
            ("candidates", self.candidates),
        ):
            if tensor.data_ptr() % ALIGNMENT or not tensor.is_contiguous():
                raise BadInputError.of(
                    name,
                    f"a contiguous buffer that starts on {ALIGNMENT} bytes",
                    f"{tensor.data_ptr() % ALIGNMENT} bytes off, strides {tensor.stride()}",
                )

    def load(self, requests: Sequence[Request], logits: Row | torch.Tensor) -> None:
        """Rewrite the inputs in place.

        Args:
            requests: one per row.
            logits: ``[B, n_out, V]`` base logits, NaN payloads kept: float32 that holds BF16, or
                a tensor of int16 BF16 patterns on any device.

        Raises:
            BadInputError: a count or shape does not fit, a mode or an anchor is out of range, a
                logit is not BF16.
        """
        shape = (self.batch, self.n_out, self.head.geometry.vocab)
        if len(requests) != self.batch or tuple(logits.shape) != shape:
            raise BadInputError.of(
                "block inputs",
                f"{self.batch} requests, logits {shape}",
                f"{len(requests)} requests, logits {tuple(logits.shape)}",
            )
        for row, request in enumerate(requests):
            _check_request(row, request, self.head.target_vocab)
        bits = _bits(logits).to(self.logits.device)
        self.logits.copy_(sharded(bits, self.head.geometry, self.head.shards))
        given = tensors_of(requests)
        self.mode.copy_(given["mode"])
        self.key.copy_(given["key"])
        self.position.copy_(given["position"])
        self.round.copy_(given["round"])
        self.chain[:, 0].copy_(given["anchor"])

    def poison(self) -> None:
        """Fill every output and the tokens between positions with what no kernel writes."""
        for tensor in (self.ids, self.token, self.error, self.stamp, self.waited):
            tensor.fill_(POISON_INT)
        self.q.fill_(float("nan"))
        self.chain[:, 1:].fill_(POISON_INT)

    @property
    def grid(self) -> tuple[int, int]:
        """Programs of a launch."""
        return self.head.geometry.grid(self.batch, self.link.shards)

    def arguments(self, index: int) -> dict[str, Any]:
        """Arguments of the launch of one position, by the kernel's names."""
        head, link, bounds = self.head, self.link, self.link.bounds
        geometry = head.geometry
        runtime = {
            "logits_ptr": self.logits, "w1_ptr": head.w1, "w2_ptr": head.w2, "bias_ptr": head.bias,
            "slot_ptr": head.slot_of, "map_ptr": head.token_map, "mode_ptr": self.mode,
            "key_ptr": self.key, "position_ptr": self.position, "round_ptr": self.round,
            "chain_ptr": self.chain, "ids_ptr": self.ids, "q_ptr": self.q,
            "token_ptr": self.token, "error_ptr": self.error, "stamp_ptr": self.stamp,
            "waited_ptr": self.waited,
            "candidates_ptr": self.candidates, "retired_ptr": self.retired,
            "epoch_ptr": link.epochs, "own_error_ptr": link.own_error,
            "own_workspace": link.own_address, "peer_workspace": link.peer_address,
            "rank": link.rank, "vocab": geometry.vocab, "split": geometry.split,
            "target_vocab": head.target_vocab, "slots": head.slots, "rows": link.rows,
            "batch": self.batch, "index": index, "n_out": self.n_out,
            "stride128": geometry.stride // 128,
            "budget": bounds.next_ns if index else bounds.first_ns,
            "max_polls": bounds.next_polls if index else bounds.first_polls,
            "epoch_limit": bounds.epoch_limit,
        }  # fmt: skip
        constants = geometry.constants(
            shards=link.shards, interpreted=sampled_fused.interpreted(self.kernel)
        )
        return {**runtime, **constants, **geometry.options()}

    def launch(self, index: int) -> None:
        """Launch one position on the current stream."""
        self.kernel[self.grid](**self.arguments(index))

    def run(self) -> None:
        """Launch every position in order."""
        for index in range(self.n_out):
            self.launch(index)

    def outputs(self) -> Outputs:
        """Copy the outputs to the host; synchronises with the device."""
        tensors = (self.ids, self.q, self.token, self.error, self.stamp)
        return Outputs(*(tensor.cpu().numpy().copy() for tensor in tensors))

    def waits(self) -> np.ndarray[Any, Any]:
        """Copy to the host how long each exchange waited; synchronises with the device.

        Returns:
            ``[B, n_out]`` int64, from the start of the wait for the peer's flag to its verdict:
            nanoseconds of the GPU's timer, polls in the interpreter; 0 where nothing was exchanged.
        """
        return self.waited.cpu().numpy().copy()


def tensors_of(requests: Sequence[Request]) -> dict[str, torch.Tensor]:
    """Requests by member, ``[B]`` each: ``key`` int64, the others int32; unsigned words keep bits.

    Their members must be in range; :meth:`SampledBlock.load` checks that.
    """
    words = {
        name: np.array([getattr(r, name) for r in requests], np.uint32).view(np.int32)
        for name in ("mode", "position", "round", "anchor")
    }
    keys = np.array([r.key for r in requests], np.uint64).view(np.int64)
    return {name: torch.from_numpy(array) for name, array in {**words, "key": keys}.items()}


def _bits(logits: Row | torch.Tensor) -> torch.Tensor:
    """int16 BF16 patterns of base logits."""
    if not isinstance(logits, torch.Tensor):
        return patterns(logits)
    if logits.dtype != torch.int16:
        raise BadInputError.of("logits", "int16 BF16 patterns", f"dtype {logits.dtype}")
    return logits


def _check_request(row: int, request: Request, target_vocab: int) -> None:
    if request.mode not in MODES:
        raise BadInputError.of(f"row {row}: mode", f"one of {MODES}", str(request.mode))
    if not 0 <= request.anchor < target_vocab:
        raise BadInputError.of(
            f"row {row}: anchor", f"a token below {target_vocab}", str(request.anchor)
        )
    for name, bits in (("key", 64), ("position", 31), ("round", 32)):
        value = getattr(request, name)
        if not 0 <= value < 1 << bits:
            raise BadInputError.of(f"row {row}: {name}", f"{bits} bits, unsigned", str(value))
