"""Goes on with a prompt by the mini target, with drafts of a worker or without.

    pp4 worker serve examples/mini/drafter --device reference --depths 5 --socket /tmp/pp4/socket &
    python -m examples.mini.generate --socket /tmp/pp4/socket --prompt 'def '
    python -m examples.mini.generate --plain --prompt 'def '

Needs the ``tokenizers`` package.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.mini import tokenization
from examples.mini.sizes import MINI
from pp4.config import engine_switch
from pp4.engine.adapters.handshake import Wanted
from pp4.engine.decoding import Engine
from pp4.engine.drafts import Drafts
from pp4.engine.requests import Request
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load
from pp4.errors import Exit, Pp4Error

TAPS = MINI.drafter.target_layers
"""Layers of the target whose outputs the mini drafter was trained on."""
BLOCK = DEPTH = MINI.drafter.block
"""Of the drafter: all of its block is proposed."""


def main(arguments: Sequence[str]) -> int:
    """Print the text, tokens of each step, and counters; -> the exit code."""
    given = _arguments().parse_args(arguments)
    try:
        _generate(given)
    except Pp4Error as error:
        print(error, file=sys.stderr)
        return int(error.exit)
    return int(Exit.DONE)


def _generate(given: argparse.Namespace) -> None:
    tokenizer = tokenization.read(given.target / tokenization.TOKENIZER)
    weights = load(given.target, given.device)
    target = CausalTarget(weights, taps=TAPS, slots=1, window=DEPTH + 1, context=given.context)
    with contextlib.ExitStack() as ending:
        drafts = None if given.plain else ending.enter_context(_drafts(given.socket, target))
        engine = Engine(target, drafts)
        end = tokenizer.token_to_id(tokenization.END)
        # a text begins where another one ended
        prompt = [*([] if end is None else [end]), *tokenizer.encode(given.prompt).ids]
        engine.submit(Request(prompt, given.tokens, given.temperature, given.key, end))
        emitted: list[int] = []
        sizes: list[int] = []
        for step in engine.steps():
            (row,) = step.rows
            emitted += row.tokens
            sizes.append(len(row.tokens))
        print(tokenizer.decode([*prompt, *emitted]))
        print(f"tokens per step: {len(emitted) / len(sizes):.2f} ({' '.join(map(str, sizes))})")
        for name, count in engine.as_dict().items():
            if count:
                print(f"{name}: {count}")


def _drafts(socket: Path, target: CausalTarget) -> Drafts:
    sampled = engine_switch()
    wanted = Wanted.of(vocab=target.vocab, block=BLOCK, depth=DEPTH, sampled=sampled)
    drafts = Drafts(socket, target, wanted)
    # it would go on without one; who names a socket wants to know
    drafts.connect()
    return drafts


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.mini.generate",
        description="Go on with a prompt by the mini target.",
    )
    drafted = parser.add_mutually_exclusive_group(required=True)
    drafted.add_argument("--socket", type=Path, help="of a worker that serves the mini drafter")
    drafted.add_argument("--plain", action="store_true", help="decode without a worker")
    parser.add_argument("--prompt", required=True, help="text to go on with")
    parser.add_argument("--target", type=Path, default=Path(__file__).parent / "target")
    for name, kind, usual, what in (
        ("tokens", int, 64, "new tokens at most"),
        ("temperature", float, 0.0, "0 takes the argmax"),
        ("key", int, 0, "64 bits that the draws come from"),
        ("context", int, 512, "tokens of the sequence at most"),
        ("device", str, "cpu", "of the target"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=usual, help=f"{what} (%(default)s)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
