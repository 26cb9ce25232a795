"""docs/adapters.md says what there is."""

import re
from pathlib import Path

import numpy as np

from pp4.engine.adapters.handshake import Wanted
from pp4.engine.adapters.interface import Answered
from pp4.engine.adapters.vllm import V1_GAPS
from pp4.verifier.units import Mode
from tests.unit.engine.adapters.offers import agreed, any_answered, offer

TEXT = Path(__file__).parents[4].joinpath("docs", "adapters.md").read_text()
HANDSHAKE, ANOTHER = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


class Client:
    """Greets a worker of the vocabulary that the page has."""

    def hello(self, depth):
        assert depth == 4
        return offer(vocab=151936)


def test_the_handshake_of_the_page():
    names = {"client": Client()}
    exec(HANDSHAKE, names)
    assert names["adapter"].exact
    assert names["adapter"].agreed.wanted == Wanted.of(vocab=151936, block=5, depth=4, sampled=True)


def test_the_adapter_of_the_page():
    names = {"__name__": __name__}
    exec(ANOTHER, names)
    adapter = names["TokensAdapter"](agreed())
    assert not adapter.exact
    row, fields = any_answered(np.random.default_rng(6), 40, 4, Mode.SAMPLED)
    found = adapter.convert([row, Answered(0.0, 1, None)])
    assert found.form == [fields["tokens"].tolist(), []]


def test_every_gap_is_on_the_page():
    told = re.findall(r"^\| ([a-z ]+) \| .*\| ([a-z ,]+) \|$", TEXT, re.MULTILINE)
    measured = {name: how for name, how in told if how.startswith(("counted", "not", "unknown"))}
    assert list(measured) == [gap.name for gap in V1_GAPS]
    for gap in V1_GAPS:
        assert ("counted" in gap.effect) == measured[gap.name].startswith("counted")


def test_the_versions_that_were_read_are_on_the_page():
    read = {one for gap in V1_GAPS for one in re.findall(r"\bat ([0-9a-f]{12})\b", gap.source)}
    assert len(read) == 2
    assert all(re.search(rf"\b{one}[0-9a-f]{{28}}\b", TEXT) for one in read)


def test_every_member_that_is_compared_is_on_the_page():
    table = TEXT.split("## What `convert` does")[0]
    compared = {*offer().model_dump()} & {
        "abi", "definition", "definition_sha256", "tau", "candidates", "vocab", "draft_vocab",
        "bounds", "block", "depths",
    }  # fmt: skip
    assert len(compared) == 10
    assert all(f"`{name}`" in table for name in compared)
