"""An arm's side of the engine program: what it prepares, and questions to a program in reach."""

import json
from dataclasses import replace

from pp4.drafter.checkpoint import synthetic
from pp4.engine.decoding import Engine
from pp4.engine.measured.decoding import outputs_sha256
from pp4.engine.measured.pair import load_pair
from pp4.engine.measured.program import Program
from pp4.engine.measured.prompts import prompts_of
from pp4.engine.requests import Request as Prompt
from pp4.receipts.runs import Snapshot
from pp4.wire import Request
from pp4.wire.measured import Prepare
from tests.unit.engine.served import DEPTH, DRAFTER
from tests.unit.engine.served import TARGET as TIED
from tests.unit.engine.target import checkpoints
from tests.unit.processes import LONG

TARGET = replace(TIED, tied=False)
"""Of random weights a tied one would say the last token again and again."""
PROMPTS = ([2, 7, 10], [5], [place % 12 for place in range(20)], [8, 8, 1, 4], [3, 3], [11, 0, 6])
NEW_TOKENS = 7
SLOTS = 3


def write_pair(directory, drafter=DRAFTER, prompts=PROMPTS):
    """Write a target, a drafter and prompts; -> what :func:`prepare` is told of them."""
    checkpoints.write(directory / "target", TARGET)
    synthetic.write(directory / "drafter", drafter)
    lines = "".join(f"{json.dumps(one)}\n" for one in prompts)
    (directory / "prompts.jsonl").write_text(lines)
    names = ("target", "drafter", "prompts.jsonl")
    return {name.partition(".")[0]: str(directory / name) for name in names}


def numbers(**changes):
    """The other arguments of ``prepare``."""
    usual = {"gpus": [], "slots": SLOTS, "depth": DEPTH, "new_tokens": NEW_TOKENS, "seed": 5}
    return {**usual, **changes}


class Arm:
    """Asks a program in this process.

    Args:
        pair: of :func:`write_pair`.
        sampled: what the program's own switch says.
        options: of :class:`Program`.
    """

    def __init__(self, pair, sampled=True, **options):
        self._pair, self.sampled = pair, sampled
        self.program = Program(switch=lambda: sampled, **options)
        self._sequence = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.close()

    def reply(self, verb, **arguments):
        self._sequence += 1
        request = Request(sequence=self._sequence, verb=verb, arguments=arguments)
        reply = self.program.answer(request)
        assert reply.sequence == self._sequence
        assert (reply.facts is None) != (reply.refusal is None)
        return reply

    def ask(self, verb, **arguments):
        """Facts of what has to succeed."""
        reply = self.reply(verb, **arguments)
        assert reply.facts is not None, reply.refusal
        return reply.facts

    def refused(self, verb, **arguments):
        """The refusal of what has to be refused."""
        reply = self.reply(verb, **arguments)
        assert reply.refusal is not None, reply.facts
        return reply.refusal

    def prepare(self, **changes):
        return self.ask("prepare", **self._pair, **numbers(**changes))

    def ready(self, worker, **changes):
        """Prepare and connect; -> itself."""
        self.prepare(**changes)
        self.ask("connect", **connection(worker, self.sampled))
        return self

    def look(self, label="baseline"):
        return Snapshot.model_validate_json(json.dumps(self.ask("look", label=label)))


def connection(worker, sampled, **changes):
    """Arguments of ``connect``."""
    pids = {"worker": worker.pid, "rank0": worker.ranks[0], "rank1": worker.ranks[1]}
    usual = {"socket": str(worker.socket), "sampled": sampled, "limit_s": LONG, "processes": pids}
    return {**usual, **changes}


def question(index=0, temperature="0", batch=SLOTS, phase="headline", limit_s=LONG):
    """Arguments of ``round``."""
    return {
        "phase": phase,
        "index": index,
        "batch": batch,
        "temperature": temperature,
        "limit_s": limit_s,
    }


def plain_sha256(pair, index=0, batch=SLOTS, **changes):
    """Digest of what the target says by itself at temperature 0."""
    told = numbers(**changes)
    loaded = load_pair(Prepare(**pair, **{**told, "gpus": tuple(told["gpus"])}))
    loaded.target.use(batch)
    chosen = prompts_of(index, batch, len(loaded.prompts.tokens))
    requests = [Prompt(loaded.prompts.tokens[one], told["new_tokens"]) for one in chosen]
    outputs = Engine(loaded.target).run(requests)
    return outputs_sha256([one.tokens for one in outputs])
