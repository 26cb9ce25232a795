"""Makes or replays a held-out file: ``python -m pp4.engine.replay.program VERB ARGUMENTS``.

ARGUMENTS is one JSON object.  The answer, or the refusal, is one JSON object on standard output.
Which device the kernel runs on is chosen when Triton is imported, so whoever starts this program
sets the environment.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import torch
from pydantic import ValidationError

from pp4.engine.replay.making import Plan, make_heldout
from pp4.engine.replay.reading import read_heldout
from pp4.engine.replay.replaying import replay
from pp4.errors import BadInputError, Code, Exit, Pp4Error, Refusal, UsageError
from pp4.kernels import interpreting, sampled_fused
from pp4.wire.frames import Model, wrong_with

INTERPRETED_PART: Final = 16
"""Blocks that an interpreter replays where nobody says how many."""
_INTERPRETED_ROWS: Final = 8
_GPU_ROWS: Final = 64


class ReplayFile(Model):
    """Replay a held-out file.

    Attributes:
        heldout: path of the file.
        device: the kernel in Triton's interpreter, or on the first GPU.
        part: blocks, from the first; None for all on a GPU and a few in an interpreter.
    """

    heldout: str
    device: Literal["interpreter", "cuda"]
    part: int | None


class MakeFile(Model):
    """Make a held-out file; see :func:`pp4.engine.replay.making.make_heldout`."""

    target: str
    drafter: str
    tokens: str
    out: str
    documents: int
    blocks: int
    length: int
    device: Literal["cpu", "cuda"]


_Asked = TypeVar("_Asked", bound=Model)


def run_replay(asked: ReplayFile) -> dict[str, Any]:
    """Replay a file and say with what it was done."""
    on_gpu = asked.device == "cuda"
    device = _device("cuda" if on_gpu else "cpu")
    if sampled_fused.interpreted(sampled_fused._kernel) is on_gpu:
        expected = f"TRITON_INTERPRET={0 if on_gpu else 1} for device {asked.device}"
        raise BadInputError.of("environment", expected, "another kind of kernel")
    if not on_gpu:
        interpreting.quicken()
    held = read_heldout(Path(asked.heldout))
    whole = held.sizes.blocks
    part = asked.part
    if part is None:
        part = whole if on_gpu else min(whole, INTERPRETED_PART)
    found = replay(held, part=part, rows=_GPU_ROWS if on_gpu else _INTERPRETED_ROWS, device=device)
    name = torch.cuda.get_device_name(device) if on_gpu else "Triton's interpreter"
    with_what = {
        "device": asked.device,
        "name": name,
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
    }
    return {"file": asked.heldout, "producer": with_what, **found}


def run_make(asked: MakeFile) -> dict[str, Any]:
    """Make a file and say what is in it."""
    plan = Plan(documents=asked.documents, blocks=asked.blocks, length=asked.length)
    held = make_heldout(
        target=Path(asked.target),
        drafter=Path(asked.drafter),
        tokens=Path(asked.tokens),
        out=Path(asked.out),
        plan=plan,
        device=_device(asked.device),
    )
    return {
        "file": asked.out,
        "sha256": held.sha256,
        "bytes": Path(asked.out).stat().st_size,
        **held.sizes.model_dump(),
        **{f"{name}_sha256": one for name, one in held.header.sources.model_dump().items()},
    }


def _device(name: str) -> torch.device:
    if name == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise BadInputError.of("device", "a GPU that CUDA sees", "none")
    return torch.device("cuda", 0)


def _answer(arguments: Sequence[str]) -> dict[str, Any]:
    if len(arguments) != 2:
        raise _usage("a verb and one JSON object", f"{len(arguments)} words")
    verb, text = arguments
    if verb == "replay":
        return run_replay(_asked(ReplayFile, text))
    if verb == "make":
        return run_make(_asked(MakeFile, text))
    raise _usage("replay or make", verb)


def _asked(kind: type[_Asked], text: str) -> _Asked:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise _usage("arguments that fit", wrong_with(error)) from error


def _usage(expected: str, found: str) -> UsageError:
    return UsageError(Refusal(Code.USAGE, "replay", expected, found, next="pp4 replay --help"))


def main(arguments: Sequence[str]) -> int:
    """Write the answer or the refusal as one JSON object; -> the exit code."""
    try:
        text, status = json.dumps(_answer(arguments)), Exit.DONE
    except Pp4Error as error:
        text, status = json.dumps({"refusal": error.refusal.as_dict()}), error.exit
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
