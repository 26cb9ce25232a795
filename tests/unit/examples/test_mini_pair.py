"""The pair in ``examples/mini``: it is what its record and its README say, and it is trained."""

import hashlib
import json
import math
import re
from pathlib import Path

import pytest
import torch

import examples.mini
from pp4.drafter.checkpoint.load import load as load_drafter
from pp4.drafter.model import Drafter
from pp4.drafter.support import unsupported
from pp4.engine.interface import Row
from pp4.engine.replay.heldout import tensor_sha256
from pp4.engine.replay.reading import read_heldout
from pp4.engine.replay.replaying import replay
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load as load_target
from pp4.kernels.reference_block import ReferenceBlock
from pp4.worker.frozen_checkpoint import digest_of

HERE = Path(examples.mini.__file__).parent
CPU = torch.device("cpu")
MODELS = ("target", "drafter")
LEAST_AT_POSITION_1 = 0.7
"""Acceptance of a first draft at T = 0.7; a drafter of random weights has some 0.001."""


@pytest.fixture(scope="module")
def record():
    return json.loads((HERE / "record.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def readme():
    return (HERE / "README.md").read_text("utf-8")


@pytest.fixture(scope="module")
def target():
    return load_target(HERE / "target")


@pytest.fixture(scope="module")
def drafter():
    return load_drafter(HERE / "drafter", 0, 1)


@pytest.fixture(scope="module")
def held():
    return read_heldout(HERE / "heldout.safetensors")


@pytest.fixture(scope="module")
def report(held):
    return replay(held, part=32, rows=8, device=CPU, make_block=ReferenceBlock)


def rows_of(text, head):
    """Cells of the table that begins with a line; its rows alone."""
    lines = text.splitlines()
    first = lines.index(head) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_it_is_small(target, drafter, record, readme):
    counts = [sum(one.numel() for one in each.tensors.values()) for each in (target, drafter)]
    assert counts == [record[model]["parameters"] for model in MODELS]
    assert counts[0] <= 3_500_000
    assert counts[1] <= 2_000_000
    assert f"| parameters | {counts[0]:,} | {counts[1]:,}, of them 524,288 the target's |" in readme
    files = [path for model in MODELS for path in (HERE / model).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    assert (HERE / "heldout.safetensors").stat().st_size <= 12_000_000


@pytest.mark.parametrize("model", MODELS)
def test_every_file_is_the_one_that_was_recorded(record, model):
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (HERE / model).iterdir()
    }
    assert found == record[model]["files"]
    assert record["complete"] is True


def test_sizes_are_those_of_the_record(target, drafter, record):
    sizes, own = record["recipe"]["target"], target.config
    for name in ("vocab", "hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate"):
        assert getattr(own, name) == sizes[name]
    assert (own.rope_theta, own.norm_eps) == (sizes["rope_theta"], sizes["norm_eps"])
    assert (own.max_positions, own.tied) == (sizes["positions"], True)
    for name, value in record["recipe"]["drafter"].items():
        found = getattr(drafter.config, name)
        assert (list(found) if isinstance(found, tuple) else found) == value, name


def test_the_sampled_path_can_draft_it_at_both_depths(drafter):
    assert [unsupported(drafter.config, depth) for depth in (4, 5)] == [(), ()]


def test_the_drafter_has_the_targets_embedding_and_head(target, drafter):
    assert torch.equal(drafter.embedding, target.embedding)
    assert torch.equal(drafter.head, target.embedding)


def test_the_heldout_file_was_made_of_this_pair(held, drafter):
    sources = held.header.sources
    assert sources.target == digest_of(HERE / "target").sha256
    assert sources.drafter == digest_of(HERE / "drafter").sha256
    assert (tensor_sha256(drafter.w1), tensor_sha256(drafter.w2)) == tuple(
        held.header.tensors[name] for name in ("w1", "w2")
    )


@pytest.fixture(scope="module")
def whole(target, held):
    """What the target says of all held-out documents, each in one step."""
    length = int(held.starts[1])
    documents = held.tokens.view(-1, length)
    taps = (0, 1, 3)
    model = CausalTarget(target, taps=taps, slots=len(documents), window=length, context=length)
    step = model.step([Row(slot, one.tolist()) for slot, one in enumerate(documents)])
    return documents.long(), step


def test_the_target_has_learned(whole, record):
    documents, step = whole
    said = step.logits[:, :-1].double().log_softmax(-1)
    loss = -said.gather(2, documents[:, 1:, None]).mean()
    # even chances are ln 1024 = 6.93; the whole split has 1.88, these windows 1.39 of it
    assert record["heldout"]["target_nats_per_token"] < 2
    assert loss < math.log(1024) - 4


def test_the_heldout_file_is_what_this_pair_computes(whole, held, drafter):
    """Up to what BF16 rounds otherwise on another machine."""
    documents, step = whole
    features = held.features.view_as(step.features)
    apart = (step.features.float() - features.float()).norm() / features.float().norm()
    assert apart < 0.01
    for place, tau in enumerate((0.7, 1.0)):
        after = held.position - 1
        said = (step.logits[held.document.long(), after].double() / tau).softmax(-1)
        frozen = held.sampled.targets[:, place, 0].double()
        assert (said - frozen).abs().sum(1).max() / 2 < 0.05
    own = Drafter(drafter, slots=1, context=documents.shape[1])
    for block in range(0, 32, 8):
        before = features[held.document[block], : held.position[block] - 1]
        own.cache.open(0)
        own.cache.append(0, before)
        hidden = own.hidden(own.cache.rows([0], [int(held.anchor[block])]))
        base = own.base(hidden, 5)[0].float()
        assert (base - held.base[block].float()).norm() / base.norm() < 0.02
        own.cache.close(0)


def test_the_drafter_has_learned(report):
    accepted = {(arm["temperature"], arm["switch"]): arm["positions"] for arm in report["arms"]}
    for one in accepted.values():
        assert one[0]["shared"] > LEAST_AT_POSITION_1
    # and sampling drafts better than the argmax does, position by position on average
    sampled, greedy = (
        sum(place["shared"] for place in accepted["1.0", switch]) for switch in ("on", "off")
    )
    assert sampled > greedy


def test_the_readme_says_what_was_recorded(readme, record):
    heldout = record["heldout"]
    steps = [f"{record[model]['course']['taken']:,}" for model in MODELS]
    assert rows_of(readme[readme.index("## What it learned") :], "| | |") == [
        ["GPU, seconds of all", f"{record['machine']['gpu']}, {record['seconds']}"],
        ["steps of target, of drafter", ", ".join(steps)],
        [
            "held-out loss of the target, nats per token",
            f"{heldout['target_nats_per_token']:.5f}",
        ],
        ["held-out loss of the target, bits per byte", f"{heldout['target_bits_per_byte']:.5f}"],
    ]
    assert rows_of(readme, "| position | 1 | 2 | 3 | 4 | 5 |") == [
        [name, *(f"{value:.5f}" for value in heldout["text"][key])]
        for name, key in (
            ("acceptance at temperature 0.7", "acceptance_at_temperature_0.7"),
            ("acceptance at temperature 1.0", "acceptance_at_temperature_1.0"),
            ("greedy agreement", "greedy_agreement"),
        )
    ]


def test_the_readme_says_how_much_text_lies_here(readme, held):
    assert (held.sizes.documents, held.starts.diff().unique().tolist()) == (8, [96])
    assert "eight excerpts of it, of 96 tokens each" in re.sub(r"\s+", " ", readme)


def test_the_readme_names_the_text(readme, record):
    flowing = re.sub(r"\s+", " ", readme)
    assert record["text"]["package"].startswith("python3.11 3.11.2-6+deb12u6 of Debian 12")
    every = record["text"]["all"]
    assert (
        "The text is that of Debian 12's package python3.11 3.11.2-6+deb12u6 "
        f"(`/usr/lib/python3.11`): {every['files']} files, {every['bytes']:,} bytes."
    ) in flowing


def test_a_replay_gives_what_the_readme_says(readme, held, report):
    few = replay(held, part=4, rows=4, device=CPU, make_block=ReferenceBlock)
    assert rows_of(readme, "| blocks | sha256 of drafts | sha256 of verdicts |") == [
        [str(one["part"]["blocks"]), *(f"`{one['digests'][name]}`" for name in names)]
        for names in [("drafts", "verdicts")]
        for one in (few, report)
    ]
    head = "| T | switch | accepted length | averaged over words | min(P, Q) at position 1 |"
    assert rows_of(readme, head) == [
        [
            arm["temperature"],
            arm["switch"],
            f"{arm['accepted_length']:.3f}",
            f"{arm['expected_length']:.3f}",
            f"{arm['positions'][0]['shared']:.3f}",
        ]
        for arm in report["arms"]
    ]
