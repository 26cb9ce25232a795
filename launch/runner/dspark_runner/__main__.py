"""``python -m dspark_runner``: decode a toy sequence with drafts, or say what would be done."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dspark_runner import remote_dspark
from dspark_runner.engine import ABI, Refused, ToyEngine
from dspark_runner.runner import Runner, Settings


def main(arguments: Sequence[str]) -> int:
    """Print one line for each step, or for each thing that would be done; -> the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dspark_runner", description=__doc__)
    parser.add_argument("--socket", help="of a worker; without one nothing is connected to")
    parser.add_argument("--depth", type=int, default=4, help="drafted tokens of a step")
    parser.add_argument("--steps", type=int, default=3, help="steps to decode")
    given = parser.parse_args(arguments)
    # Read here and nowhere else; off unless a person has set it.
    sampled = os.environ.get("VLLM_DSPARK_SAMPLED_TOP32", "0") == "1"
    temperature = 0.7 if sampled else 0.0
    if given.socket is None:
        print(f"would draft {given.depth} tokens a step at temperature {temperature}")
        print(f"would ask the drafter for ABI {ABI or 'of any name'}")
        print(f"drafter: {remote_dspark.KIND}")
        return 0
    settings = Settings(given.socket, given.depth, temperature)
    try:
        with Runner.load(ToyEngine(), settings, mtp=None) as runner:
            for tokens in runner.decode(given.steps, mtp=None):
                print("step:", *tokens)
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
