"""Trains the mini pair: ``python -m examples.mini.train --out DIR``.

One command does all of it: text, tokenizer, target, drafter, what the pair does on held-out text.
The target is written as soon as it is trained and the drafter's best state every minute, so a run
that is ended early leaves what it had.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from examples.mini import export, record, stages, text, tokenization
from examples.mini.drafter_model import DrafterModel
from examples.mini.fitting import Course
from examples.mini.record import RECORD, Record
from examples.mini.sizes import MINI, SMOKE, Recipe
from examples.mini.stages import Bench, Corpus
from examples.mini.target_model import TargetModel
from pp4.errors import BadInputError, Code, Exit, Pp4Error, Refusal, RefusedError

_EVALUATION_SECONDS: Final = 40.0
"""What is left of the whole for the held-out split."""


class Run:
    """One run of the command.

    Args:
        given: its options.

    Raises:
        RefusedError: ``EXISTS``: there is something that would be replaced.
        BadInputError: a device that there is not.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._started = given, time.monotonic()
        self._out: Path = given.out
        self._target = self._out / "target"
        self._drafter = self._out / "drafter"
        if not given.force:
            _require_free(self._out, given.resume_target)
        device = _device(given.device)
        _settle()
        self._bench = Bench(_recipe(given), device, given.seed)
        self._record = Record(self._out, _command(given))

    def all(self) -> None:
        """Run every stage."""
        bench, given = self._bench, self._given
        found = stages.corpus(given.text or text.standard_library())
        target = bench.new_target().eval()
        tokenizer = self._tokenizer(target, found)
        tokens = stages.streams(tokenizer, found, bench.device)
        size = self._described(found, tokens)["bytes"]
        if given.resume_target is None:
            target = self._trained(tokenizer, tokens)
        else:
            self._resumed(given.resume_target)
        self._say("sample text from the target")
        made = stages.sampled(bench, target, tokens["train"])
        self._record.add(sampled={"sequences": len(made), "tokens": made.numel()})
        drafter = self._with_drafter(target, tokens, made)
        self._say("held-out split")
        heldout = stages.evaluated(bench, target, drafter, tokens["heldout"], size)
        self._record.add(
            heldout=heldout, complete=True, seconds=round(time.monotonic() - self._started, 1)
        )
        self._say("done")

    def _tokenizer(self, target: TargetModel, found: Corpus) -> Tokenizer:
        """Train a tokenizer, or take the given target's and the target's weights."""
        vocab = self._bench.recipe.target.vocab
        if self._given.resume_target is None:
            return tokenization.trained(found.sources["train"], vocab)
        tokenizer = export.read_target(self._given.resume_target, target)
        tokenization.require(tokenizer, vocab)
        return tokenizer

    def _described(self, found: Corpus, tokens: dict[str, Tensor]) -> dict[str, Any]:
        """Begin the record; -> what it says of the held-out split."""
        described = {"python": _text_version(self._given), **found.described()}
        for split, stream in tokens.items():
            described[split]["tokens"] = len(stream)
        self._record.add(
            seed=self._bench.seed,
            machine=record.machine(self._bench.device),
            recipe=record.sizes(self._bench.recipe),
            text=described,
        )
        every = described["all"]
        self._say(f"{every['files']} files, {every['bytes']} bytes")
        self._say(", ".join(f"{split} {len(stream)} tokens" for split, stream in tokens.items()))
        heldout: dict[str, Any] = described["heldout"]
        return heldout

    def _trained(self, tokenizer: Tokenizer, tokens: dict[str, Tensor]) -> TargetModel:
        target, course = stages.fit_target(self._bench, tokens, self._given.target_seconds)
        export.write_target(self._target, target, tokenizer)
        if self._drafter.exists():
            # that of another target, which this one has replaced
            shutil.rmtree(self._drafter)
        self._record.add(
            target={
                "parameters": export.parameters(target),
                "course": record.course(course),
                "files": export.digests(self._target),
            }
        )
        self._say(f"target written, {export.parameters(target)} parameters")
        return target

    def _resumed(self, directory: Path) -> None:
        files = export.digests(directory)
        self._record.add(target=record.earlier(directory, files) or {"files": files})

    def _with_drafter(
        self, target: TargetModel, tokens: dict[str, Tensor], made: Tensor
    ) -> DrafterModel:
        gone = time.monotonic() - self._started
        left = self._given.total_seconds - gone - _EVALUATION_SECONDS
        seconds = max(1.0, min(self._given.drafter_seconds, left))
        self._say(f"train the drafter for {seconds:.0f} s")
        drafter, course = stages.fit_drafter(self._bench, target, tokens, made, seconds, self._keep)
        self._keep(drafter, course)
        self._say(f"drafter written, {export.parameters(drafter)} parameters")
        return drafter

    def _keep(self, drafter: DrafterModel, course: Course) -> None:
        export.write_drafter(self._drafter, drafter)
        self._record.add(
            drafter={
                "parameters": export.parameters(drafter),
                "course": record.course(course),
                "files": export.digests(self._drafter),
            }
        )

    def _say(self, line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self._started:6.1f} s] {line}\n")
        sys.stdout.flush()


def _require_free(out: Path, resumed: Path | None) -> None:
    """Refuse to write over what is there."""
    for name in (RECORD, "drafter", *(("target",) if resumed is None else ())):
        if (out / name).exists():
            raise RefusedError(
                Refusal(
                    Code.EXISTS,
                    str(out),
                    "a place without a pair",
                    name,
                    next="give another --out, or --force to replace it",
                )
            )


def _device(wanted: str | None) -> torch.device:
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise BadInputError.of("--device", "cpu: torch sees no GPU", wanted)
    return torch.device(wanted or ("cuda" if there else "cpu"))


def _settle() -> None:
    """Sums in full, and kernels of attention that need no search of their own."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.enable_cudnn_sdp(False)


def _recipe(given: argparse.Namespace) -> Recipe:
    recipe = SMOKE if given.smoke else MINI
    if given.dropout is not None:
        recipe = replace(recipe, dropout=given.dropout)
    if given.target_passes is not None:
        fitting = replace(recipe.fit_target, passes=given.target_passes)
        recipe = replace(recipe, fit_target=fitting)
    for name, steps in (("fit_target", given.target_steps), ("fit_drafter", given.drafter_steps)):
        if steps is not None:
            recipe = replace(recipe, **{name: replace(getattr(recipe, name), steps=steps)})
    return recipe


def _text_version(given: argparse.Namespace) -> str | None:
    """Version of Python that the text belongs to, where that is known."""
    if given.text_version is not None:
        return str(given.text_version)
    return None if given.text else sys.version.split()[0]


def _command(given: argparse.Namespace) -> str:
    """The command with the names of places left out."""
    words = ["python -m examples.mini.train"]
    for name, value in vars(given).items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, Path):
            words.append(f"{option} DIR")
        elif value is not None and value is not False:
            words.append(f"{option} {value}")
    return " ".join(words)


def _count(word: str) -> int:
    value = int(word)
    if value < 1:
        raise argparse.ArgumentTypeError("1 or more")
    return value


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.mini.train",
        description="Train a small target and its DSpark drafter on Python's standard library.",
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, help="directory for target/, drafter/, record.json")
    add("--text", type=Path, help="directory of the text (this interpreter's standard library)")
    add("--text-version", help="version of Python that a given text belongs to")
    add("--target-seconds", type=float, default=150.0, help="for the target (%(default)s)")
    add("--drafter-seconds", type=float, default=240.0, help="for the drafter (%(default)s)")
    add("--total-seconds", type=float, default=530.0, help="for everything (%(default)s)")
    add("--target-passes", type=float, help="most passes of the target over the text")
    add("--dropout", type=float, help="of the target's sublayers while it is trained")
    add("--target-steps", type=_count, help="steps of the target, whatever time they take")
    add("--drafter-steps", type=_count, help="steps of the drafter, likewise")
    add("--resume-target", type=Path, help="train the drafter alone, for this target")
    add("--seed", type=int, default=20, help="of everything that is drawn (%(default)s)")
    add("--device", choices=("cpu", "cuda"), help="where to train (a GPU if there is one)")
    add("--smoke", action="store_true", help="tiny sizes, some seconds on a CPU")
    add("--force", action="store_true", help="replace what is in the output directory")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Train the pair, or write the refusal as one JSON object; -> the exit code."""
    given = _arguments().parse_args(arguments)
    try:
        Run(given).all()
    except Pp4Error as error:
        sys.stderr.write(json.dumps({"refusal": error.refusal.as_dict()}) + "\n")
        return int(error.exit)
    return int(Exit.DONE)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
