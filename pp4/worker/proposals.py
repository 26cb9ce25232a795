"""What a client takes and gives: features as bytes, drafts to ask for, proposals, errors."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pp4.drafter.packing import REPLY_MEMBERS, row_type
from pp4.errors import (
    BadInputError,
    Code,
    Pp4Error,
    Refusal,
    RefusedError,
    TimedOutError,
    UncleanError,
    WrongError,
)
from pp4.wire.draft_frames import Bytes
from pp4.wire.drafts import FEATURE_BYTES, Drafted, Mode

_KINDS: Final[dict[Code, type[Pp4Error]]] = {
    Code.BAD_INPUT: BadInputError,
    Code.STEP_TIMEOUT: TimedOutError,
    Code.SURVIVOR: UncleanError,
    **dict.fromkeys(
        (
            Code.INTERNAL,
            Code.BAD_FRAME,
            Code.EMPTY_ROW,
            Code.BAD_LOGITS,
            Code.PEER_TIMEOUT,
            Code.PROTOCOL,
            Code.EPOCH_EXHAUSTED,
            Code.RANK_DIED,
            Code.RANKS_DIFFER,
            Code.INCOMPLETE,
        ),
        WrongError,
    ),
}


def error_of(refusal: Refusal) -> Pp4Error:
    """The error that a refusal of a worker is; its class decides a command's exit code."""
    return _KINDS.get(refusal.code, RefusedError)(refusal)


@dataclass(frozen=True, slots=True)
class Ask:
    """A draft to ask for.

    Attributes:
        request: an open one.
        round: above that of every draft of the request before.
        anchor: the last accepted token, which has no features yet.
        temperature: above 0 samples, 0 does not.
        generation: the caller's own, repeated in the proposal.
        slot: the caller's own, repeated in the proposal.
        position: of the first predicted token; one past the anchor where it is None.
    """

    request: int
    round: int
    anchor: int
    temperature: float = 0.0
    generation: int = 0
    slot: int = 0
    position: int | None = None

    @property
    def mode(self) -> Mode:
        """Told by the temperature."""
        return "greedy" if self.temperature == 0 else "sampled"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A block that was drafted; the arrays are views of one buffer, and not to be written.

    Attributes:
        request: whose it is.
        generation: as it was asked for.
        slot: as it was asked for.
        round: as it was asked for.
        position: absolute, of the first token.
        mode: by which it was drafted: greedy where the worker does not sample.
        ids: candidates, int32 ``[depth, 32]``; -1 where the selector lists none.  Which of both a
            greedy draft has depends on its batch, and means nothing.
        q: their probabilities, float32 ``[depth, 32]``.
        tokens: int32 ``[depth]``.
        confidence: float32 ``[depth]``.
    """

    request: int
    generation: int
    slot: int
    round: int
    position: int
    mode: Mode
    ids: NDArray[np.int32]
    q: NDArray[np.float32]
    tokens: NDArray[np.int32]
    confidence: NDArray[np.float32]


def proposal_of(answer: Drafted, body: Bytes) -> Proposal:
    """Look at a reply as arrays.

    Args:
        answer: says how many positions were asked for.
        body: of the size that the answer's block has.
    """
    whole = row_type(answer.block)
    members = np.dtype([(name, whole[name]) for name in REPLY_MEMBERS])
    row = np.frombuffer(memoryview(body).toreadonly(), members, 1)[0]
    return Proposal(
        request=answer.request,
        generation=answer.generation,
        slot=answer.slot,
        round=answer.round,
        position=answer.position,
        mode=answer.mode,
        ids=row["ids"][: answer.depth],
        q=row["q"][: answer.depth],
        tokens=row["token"][: answer.depth],
        confidence=row["confidence"][: answer.depth],
    )


def feature_bytes(features: Any, width: int) -> memoryview:
    """Features as they are sent, copied only where they do not lie in one piece.

    Args:
        features: ``[tokens, width]`` BF16: a torch tensor, a numpy array of ``uint16`` (the bits)
            or of a ``bfloat16``, or raw little-endian bytes.
        width: values of one token.

    Raises:
        BadInputError: of another type, or no whole tokens.
    """
    if isinstance(features, bytes | bytearray | memoryview):
        raw = memoryview(features).cast("B")
    else:
        raw = _bits(features, width).view(np.uint8).reshape(-1).data
    size = width * FEATURE_BYTES
    if len(raw) == 0 or len(raw) % size:
        raise BadInputError.of("features", f"tokens of {size} bytes each", f"{len(raw)} bytes")
    return raw


def _bits(features: Any, width: int) -> NDArray[np.uint16]:
    """``[tokens, width]`` as bits; torch is looked for only where its caller has it already."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(features, torch.Tensor):
        if features.dtype != torch.bfloat16:
            raise BadInputError.of("features", "bfloat16", str(features.dtype))
        features = features.detach().cpu().contiguous().view(torch.int16).numpy().view(np.uint16)
    if not isinstance(features, np.ndarray):
        raise BadInputError.of("features", "an array, a tensor or bytes", type(features).__name__)
    if features.dtype != np.uint16 and features.dtype.name != "bfloat16":
        raise BadInputError.of("features", "uint16 bits or bfloat16", str(features.dtype))
    if features.ndim != 2 or features.shape[1] != width:
        raise BadInputError.of("features", f"[tokens, {width}]", str(list(features.shape)))
    return np.ascontiguousarray(features).view(np.uint16)
