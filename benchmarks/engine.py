"""The mini pair decodes on one GPU: plainly, with greedy drafts and with sampled ones.

``python -m benchmarks.engine`` starts a solo worker on the first GPU, which no receipt allows
(``tests.faults.unjudged``), and decodes the documents of ``examples/mini/heldout.safetensors`` from
their middles on, several keys each.  At T = 0 every text has to equal plain decoding's first, and
with ``--eager-target`` plain decoding by a target that is launched operator by operator has to give
the same texts at every T.  One JSON document per line.  Seconds are those of a reference engine;
what they compare is one run.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from examples.mini.sizes import MINI
from pp4.engine.adapters.handshake import Wanted
from pp4.engine.decoding import Engine
from pp4.engine.drafts import Drafts
from pp4.engine.replay.reading import read_heldout
from pp4.engine.requests import Request
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load
from pp4.engine.target.recording import Plain
from pp4.worker.gpus import read_gpus
from tests.faults.workers import Worker

PAIR = Path(__file__).parents[1] / "examples" / "mini"
TAPS, DEPTH, CONTEXT = MINI.drafter.target_layers, MINI.drafter.block, MINI.context
TEMPERATURES = (0.0, 0.7, 1.0)


def requests_of(temperature, keys, limit):
    """Requests over every document, each with keys of its own."""
    held = read_heldout(PAIR / "heldout.safetensors")
    starts, tokens = held.starts.tolist(), held.tokens.tolist()
    prompts = [tokens[first : (first + last) // 2] for first, last in itertools.pairwise(starts)]
    return [
        Request(prompt, limit, temperature, 1000 * number + key)
        for number, prompt in enumerate(prompts)
        for key in range(keys)
    ]


def decoded(target, socket, requests, sampled):
    """Decode; -> (texts, facts of it)."""
    drafts = None
    if sampled is not None:
        wanted = Wanted.of(depth=DEPTH, vocab=target.vocab, block=DEPTH, sampled=sampled)
        drafts = Drafts(socket, target, wanted)
    engine = Engine(target, drafts)
    numbers = [engine.submit(request) for request in requests]
    began, steps = time.monotonic(), []
    for step in engine.steps():
        steps.append(step)
    seconds = time.monotonic() - began
    if drafts is not None:
        drafts.disconnect()
    texts = {one.request: one.tokens for step in steps for one in step.finished}
    counted = engine.as_dict()
    rows = counted["drafted_rows"] + counted["plain_rows"]
    milliseconds = {
        name: round(statistics.median(getattr(step, f"{name}_s") for step in steps) * 1e3, 3)
        for name in ("draft", "target", "verify")
    }
    facts = {
        "rows": rows,
        "tokens": counted["tokens"],
        "tokens_per_row": round(counted["tokens"] / rows, 4),
        "accepted_per_draft": round(counted["accepted"] / max(1, counted["drafted_rows"]), 4),
        "steps": counted["steps"],
        "seconds": round(seconds, 3),
        "ms_of_a_prompt": round(sum(step.begin_s for step in steps) / len(requests) * 1e3, 3),
        "tokens_per_second": round(counted["tokens"] / seconds),
        "median_ms_of_a_step": milliseconds,
        "plain_rows": {k: v for k, v in counted.items() if k.startswith("plain_") and v},
    }
    return [texts[number] for number in numbers], facts


def run(given, socket, target, eager):
    ways = [("plain", target, None), ("off", target, False), ("on", target, True)]
    if eager is not None:
        ways.insert(1, ("plain, eager target", eager, None))
    wrong = []
    for temperature in TEMPERATURES:
        plain = None
        for way, used, sampled in ways:
            requests = requests_of(temperature, given.keys, given.tokens)
            texts, facts = decoded(used, socket, requests, sampled)
            plain = texts if plain is None else plain
            if temperature == 0 or sampled is None:
                facts["as_plain"] = texts == plain
                wrong += [] if texts == plain else [f"{way} at {temperature}"]
            print(json.dumps({"temperature": temperature, "drafts": way, **facts}), flush=True)
    print(json.dumps({"another_text_than_plain": wrong}))
    return 1 if wrong else 0


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=4, help="requests of a document")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens of a request")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument(
        "--device", choices=("gpu", "reference"), default="gpu", help="reference times nothing"
    )
    parser.add_argument(
        "--eager-target", action="store_true", help="decode plainly without CUDA graphs too"
    )
    given = parser.parse_args(arguments)
    if given.device == "gpu" and not torch.cuda.device_count():
        print("engine: no GPU here; nothing can be measured", file=sys.stderr)
        return 3
    settings = {"device": given.device, "batches": (given.slots,), "context": CONTEXT}
    settings |= {"depths": (DEPTH,), "slots": 4 * given.slots, "solo": True}
    if given.device == "gpu":
        settings |= {"gpus": (read_gpus().gpus[0].uuid,), "cache_mib": 1}
    weights = load(PAIR / "target", "cuda" if given.device == "gpu" else "cpu")
    sizes = {"taps": TAPS, "slots": given.slots, "window": DEPTH + 1, "context": CONTEXT}
    target, eager = CausalTarget(weights, **sizes), None
    if given.eager_target:
        eager = CausalTarget(weights, **sizes, recorder=Plain(weights.device))
    with tempfile.TemporaryDirectory(prefix="pp4-engine-") as name:
        worker = Worker(
            Path(name) / "w", PAIR / "drafter", program="tests.faults.unjudged", **settings
        )
        try:
            return run(given, worker.serving().socket, target, eager)
        finally:
            worker.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
