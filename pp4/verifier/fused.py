"""The verifier on a GPU in two launches, equal by ``==`` to the operators of torch.

The first reads every probability once and leaves a sum and a largest floor for each tile.  The
second decides a row from these and reads one tile again, the one that its last token lies in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from pp4.errors import BadInputError
from pp4.kernels.compile import Compiled
from pp4.kernels.loading import load_as_called, stand_in
from pp4.verifier.batch import Batch
from pp4.verifier.device import columns, rows
from pp4.verifier.units import MAX_VOCABULARY
from pp4.verifier.vectorised import Verdicts
from pp4.verifier.words import Words

MAX_DEPTH: Final = 31
"""Deeper blocks would not fit the registers of one program."""
ALIGNMENT: Final = 16
"""Of a target that is read 16 bytes at once: its address, and in elements its strides and V."""
_KINDS: Final = {torch.float32: "*fp32", torch.float64: "*fp64"}
_TYPES: Final = {
    "sums_ptr": "*i64",
    "keys_ptr": "*i64",
    "ids_ptr": "*i32",
    "tickets_ptr": "*i32",
    "tokens_ptr": "*i32",
    "mode_ptr": "*i32",
    "key_ptr": "*i64",
    "position_ptr": "*i64",
    "round_ptr": "*i64",
    "words_ptr": "*i64",
    "accepted_ptr": "*i32",
    "emitted_ptr": "*i32",
    "error_ptr": "*i32",
}


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a distribution is cut; powers of two.

    Attributes:
        tile: ids that one program scans, at most 2**12.
        part: ids that are looked at one by one in the end, a divisor of ``tile``, at most 2**6.
        tiles: that a distribution has at most, itself at most 2**7.
        scan_warps: of a program of the scan.
        row_warps: of the program of a row.
    """

    tile: int = 4096
    part: int = 64
    tiles: int = MAX_VOCABULARY // 4096
    scan_warps: int = 4
    row_warps: int = 4


TILING: Final = Tiling()


def takes(target: Tensor, depth: int) -> bool:
    """Whether the kernels take it; what they do not, torch's operators do."""
    return target.stride(2) == 1 and depth <= MAX_DEPTH


def verify(target: Tensor, batch: Batch, words: Words | None = None) -> Verdicts:
    """Verify as :func:`pp4.verifier.vectorised.verify` does, on the current stream of a GPU.

    Args:
        target: one that :func:`takes` admits.
        batch: checked proposals; what is not contiguous is copied.
        words: as there.  Given ones make another binary, which is not primed.

    Returns:
        The verdicts.  Besides, 16 bytes are alive for each of B * (n + 1) tiles of 4096 ids.

    Raises:
        BadInputError: a proposal that lies on another device.
    """
    count, depth = batch.tokens.shape
    scripted = None if words is None else _scripted(words)
    with torch.cuda.device(target.device):
        verdicts = Verdicts(
            accepted=batch.mode.new_empty(count),
            tokens=batch.tokens.new_empty((count, depth + 1)),
            error=batch.mode.new_empty(count),
        )
        launch(target, batch, verdicts, scripted)
    return verdicts


def _scripted(words: Words) -> Tensor:
    high = torch.cat((words.accept.high, words.last.high), dim=1)
    return high << 32 | torch.cat((words.accept.low, words.last.low), dim=1)


def launch(
    target: Tensor,
    batch: Batch,
    verdicts: Verdicts,
    scripted: Tensor | None = None,
    tiling: Tiling = TILING,
) -> None:
    """Launch both kernels.

    Args:
        target: as for :func:`verify`.
        batch: likewise.
        verdicts: where they go.
        scripted: ``[B, 2 * n + 1]`` int64, words of ACCEPT, then those of the last token; the
            streams' own where there is none.
        tiling: of the distributions.
    """
    sums, keys = scan(target, batch.mode, tiling)
    given = _given(batch, target.device)
    tensors = {
        "p_ptr": target,
        "sums_ptr": sums,
        "keys_ptr": keys,
        **given,
        "words_ptr": given["key_ptr"] if scripted is None else scripted,
        "accepted_ptr": verdicts.accepted,
        "emitted_ptr": verdicts.tokens,
        "error_ptr": verdicts.error,
    }
    count, places, vocabulary = target.shape
    rows.finished[(count,)](
        **{name: tensors[name] for name in rows.POINTERS},
        vocabulary=vocabulary,
        depth=places - 1,
        tiles=sums.shape[2],
        row_stride=target.stride(0),
        place_stride=target.stride(1),
        **_finishing(tiling, places - 1, scripted is not None),
    )


def scan(target: Tensor, mode: Tensor, tiling: Tiling = TILING) -> tuple[Tensor, Tensor]:
    """Launch the first kernel.

    Args:
        target: as for :func:`verify`.
        mode: ``[B]`` int32.
        tiling: of the distributions.

    Returns:
        Sums of floors and words of the largest ones, int64 ``[B, n + 1, tiles]``; nothing is
        written for an inactive row.
    """
    count, places, vocabulary = target.shape
    tiles = -(-vocabulary // tiling.tile)
    sums, keys = target.new_empty((2, count, places, tiles), dtype=torch.int64)
    columns.scanned[(count * places * tiles,)](
        p_ptr=target,
        mode_ptr=mode.contiguous(),
        sums_ptr=sums,
        keys_ptr=keys,
        vocabulary=vocabulary,
        places=places,
        tiles=tiles,
        row_stride=target.stride(0),
        place_stride=target.stride(1),
        **_scanning(tiling, _is_wide(target)),
    )
    return sums, keys


def prime(
    depth: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[Compiled, ...]:
    """Compile and load what verifies blocks of a depth on a GPU, launching nothing.

    Args:
        depth: n, at most :data:`MAX_DEPTH`.
        device: a numbered GPU.
        dtype: of the target.

    Returns:
        What came out: the scan of aligned and of other targets, and the second kernel.

    Raises:
        BadInputError: another depth or dtype, ``device`` is no numbered GPU, or kernels are
            interpreted in this process.
        RefusedError: ``UNPRIMED``, one does not compile or does not load.
    """
    if not 1 <= depth <= MAX_DEPTH:
        raise BadInputError.of("depth", f"1 to {MAX_DEPTH}", str(depth))
    if dtype not in _KINDS:
        raise BadInputError.of("dtype", "float32 or float64", str(dtype))
    types = {**_TYPES, "p_ptr": _KINDS[dtype]}
    wanted = [
        (columns.scanned, columns, _scanning(TILING, True)),
        (columns.scanned, columns, _scanning(TILING, False)),
        (rows.finished, rows, _finishing(TILING, depth, False)),
    ]
    return tuple(
        load_as_called(
            function,
            {
                **{name: stand_in(types[name]) for name in module.POINTERS},
                **dict.fromkeys(module.SCALARS, 0),
                **constants,
            },
            device=device,
        )
        for function, module, constants in wanted
    )


def _given(batch: Batch, device: torch.device) -> dict[str, Tensor]:
    given = {
        "ids_ptr": batch.ids,
        "tickets_ptr": batch.tickets,
        "tokens_ptr": batch.tokens,
        "mode_ptr": batch.mode,
        "key_ptr": batch.key,
        "position_ptr": batch.position,
        "round_ptr": batch.round,
    }
    for name, tensor in given.items():
        if tensor.device != device:
            where = name.removesuffix("_ptr")
            raise BadInputError.of(where, f"on {device}, as the target", str(tensor.device))
    return {name: tensor.contiguous() for name, tensor in given.items()}


def _is_wide(target: Tensor) -> bool:
    numbers = (target.data_ptr(), target.stride(0), target.stride(1), target.shape[2])
    return not any(number % ALIGNMENT for number in numbers)


def _scanning(tiling: Tiling, wide: bool) -> dict[str, Any]:
    return {"TILE": tiling.tile, "WIDE": wide, **_options(tiling.scan_warps)}


def _finishing(tiling: Tiling, depth: int, scripted: bool) -> dict[str, Any]:
    return {
        "PLACES": 1 << depth.bit_length(),
        "TILES": tiling.tiles,
        "TILE": tiling.tile,
        "PART": tiling.part,
        "SCRIPTED": scripted,
        **_options(tiling.row_warps),
    }


def _options(warps: int) -> dict[str, Any]:
    return {"num_warps": warps, "enable_fp_fusion": False}
