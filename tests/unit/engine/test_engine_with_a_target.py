"""The reference target with a worker: equal greedy text, the example of the page, the script."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

from pp4.engine.decoding import Engine
from pp4.engine.drafting import Cause
from pp4.engine.requests import Request
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load
from pp4.kernels import dyadic24
from pp4.verifier.proposal import validated
from pp4.verifier.units import Mode
from tests.unit.engine.served import DEPTH, TARGET
from tests.unit.engine.target import checkpoints

ROOT = Path(__file__).parents[3]
PROMPTS = [[2, 7, 10], [5], [place % 12 for place in range(36)], [8, 8, 1, 4]]
LIMITS = [14, 22, 12, 19]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Directory of the target's checkpoint."""
    return checkpoints.write(tmp_path_factory.mktemp("pair") / "target", TARGET)


def target_of(path, slots):
    return CausalTarget(
        load(path), taps=checkpoints.TAPS, slots=slots, window=DEPTH + 1, context=512
    )


def texts(target, drafts=None):
    engine = Engine(target, drafts)
    outputs = engine.run([Request(*one) for one in zip(PROMPTS, LIMITS, strict=True)])
    return [one.tokens for one in outputs], engine.as_dict()


@pytest.fixture(scope="module")
def plain(path):
    """What the target says without drafts."""
    found, _ = texts(target_of(path, 3))
    return found


def test_greedy_text_with_a_worker_is_that_without(served, path, plain):
    target = target_of(path, 3)
    with served.drafts(target) as drafts:
        drafted, told = texts(target, drafts)
    assert drafted == plain
    assert told["plain_rows"] == 0
    assert told["drafts_unknown"] == told["drafts_invalidated"] == 0


class Knowing:
    """Drafts that know the text, up to a place in each block that a schedule names."""

    depth = DEPTH

    def __init__(self, target, known, plan, prompts=PROMPTS):
        self.target, self.known, self.plan, self.prompts = target, known, plan, prompts
        self.requests, self.turn = {}, 0

    def open(self, slot, request, key):
        self.requests[slot] = request

    def keep(self, slot, features):
        assert features.shape[1] == self.target.width

    def close(self, slot):
        del self.requests[slot]

    def as_dict(self):
        return {}

    def draft(self, wants):
        return [self._one(want) for want in wants]

    def _one(self, want):
        planned = self.plan[self.turn % len(self.plan)]
        self.turn += 1
        if isinstance(planned, Cause):
            return planned
        request = self.requests[want.slot]
        text = [*self.prompts[request], *self.known[request]][want.position :][: self.depth]
        tokens = np.array(text + [0] * (self.depth - len(text)), np.int32)
        tokens[planned:] = (tokens[planned:] + 1) % self.target.vocab
        return validated(
            ids=np.full((self.depth, 32), -1, np.int32),
            q=np.zeros((self.depth, 32), np.float32),
            tokens=tokens,
            mode=Mode.GREEDY_T0,
            depth=self.depth,
            definition=dyadic24.DEFINITION,
            vocabulary=self.target.vocab,
            generation=1,
            slot=want.slot,
            round=want.round,
            position=want.position,
            key=0,
        )


@pytest.mark.parametrize("plan", [[5], [0, 3], [5, 1, Cause.LOST, 4, Cause.TIMED_OUT]])
def test_so_it_is_where_much_is_accepted(path, plain, plan):
    target = target_of(path, 2)
    drafted, told = texts(target, Knowing(target, plain, plan))
    assert drafted == plain
    assert told["accepted"] > 0


def test_the_example_of_the_page_runs(served, path):
    text = re.search(r"```python\n(.*?)```", (ROOT / "docs/engine.md").read_text(), re.DOTALL)
    script = text.group(1)
    for old, new in (("examples/mini/target", path), ("/tmp/pp4/socket", served.socket)):
        assert old in script
        script = script.replace(old, str(new))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(script, {})
    *steps, counters = said.getvalue().splitlines()
    assert sum(" s for drafts" in line for line in steps) == steps_of(counters)
    assert sorted(line.split()[0] for line in steps if " limit " in line) == ["0", "1", "2"]
    told = eval(counters)
    assert told["tokens"] == 3 * 24
    assert told["drafted_rows"] > 0 == told["plain_rows"]


def steps_of(counters):
    return eval(counters)["steps"]


@pytest.fixture
def spoken(path):
    """The target's directory with a tokenizer: a word for each token."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab = {f"w{number}": number for number in range(TARGET.vocab)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="w0"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    file = path / "tokenizer.json"
    made.save(str(file))
    yield path
    file.unlink()


def test_the_script_goes_on_with_a_text(served, spoken, capsys):
    from examples.mini.generate import main

    common = ["--target", str(spoken), "--prompt", "w3 w9", "--tokens", "17"]
    said = []
    for way in (["--plain"], ["--socket", str(served.socket)]):
        assert main([*way, *common]) == 0
        said.append(capsys.readouterr().out.splitlines())
    plain, drafted = said
    assert plain[0] == drafted[0]
    assert plain[0].startswith("w3 w9 ")
    assert len(plain[0].split()) == 2 + 17
    assert "tokens per step: 1.00 (" in plain[1]
    assert "plain_no_drafts: 17" in plain
    assert not [line for line in drafted if line.startswith("plain")]


def test_the_script_says_what_is_in_its_way(spoken, tmp_path, capsys):
    from examples.mini.generate import main

    nobody = ["--socket", str(tmp_path / "nobody"), "--prompt", "w1", "--target", str(spoken)]
    assert main(nobody) == 3
    assert "UNREACHABLE" in capsys.readouterr().err
    for damage in ("{}", "no JSON"):
        (spoken / "tokenizer.json").write_text(damage)
        assert main(nobody) == 3
        assert "UNREADABLE" in capsys.readouterr().err
    elsewhere = ["--plain", "--prompt", "w1", "--target", str(tmp_path)]
    assert main(elsewhere) == 3
    assert "UNREADABLE" in capsys.readouterr().err
