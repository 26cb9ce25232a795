"""A held-out file of a tiny pair: what is frozen in it, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.drafter.checkpoint import synthetic
from pp4.drafter.checkpoint.load import load as load_drafter
from pp4.drafter.model import Drafter
from pp4.engine.interface import Row
from pp4.engine.replay.documents import Documents, read_documents, windows
from pp4.engine.replay.making import Plan, make_heldout
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load as load_target
from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels import expected as exact
from pp4.kernels.block import Request
from pp4.kernels.head import values_of
from pp4.kernels.sampled_fused import GREEDY
from pp4.receipts.digests import file_digest
from tests.unit.engine.replay.cases import DOCUMENTS, DRAFTER, PLAN, TARGET

CPU = torch.device("cpu")


def made(pair, out, plan=PLAN, **changes):
    given = {"target": pair / "target", "drafter": pair / "drafter"}
    return make_heldout(
        **{**given, "tokens": pair / "tokens.json", **changes}, out=out, plan=plan, device=CPU
    )


def test_it_is_made_the_same_again_and_read_as_it_was_written(pair, held, heldout, tmp_path):
    again = made(pair, tmp_path / "again")
    raw = heldout.read_bytes()
    assert (tmp_path / "again").read_bytes() == raw
    assert again.header == held.header
    assert again.sha256 == held.sha256 == file_digest(raw)
    assert held.header.sources.text == file_digest((pair / "tokens.json").read_bytes())
    assert (held.sizes.documents, held.sizes.blocks, held.sizes.tokens) == (2, 4, 24)


def test_blocks_stand_in_the_text(held):
    assert held.starts.tolist() == [0, 12, 24]
    # the first document is too short; the second is taken whole, of the third a window
    first, second = held.tokens[:12].tolist(), held.tokens[12:].tolist()
    assert first == DOCUMENTS[1]
    assert second in [DOCUMENTS[2][place : place + 12] for place in range(19)]
    assert held.document.tolist() == [0, 0, 1, 1]
    # anchors end the halves of a document; the first proposed token comes after
    assert held.position.tolist() == [6, 12, 6, 12]
    assert held.anchor.tolist() == [first[5], first[11], second[5], second[11]]
    assert len(set(held.key.tolist())) == len(set(held.round.tolist())) == 4


def test_chains_are_those_of_the_exact_reference(pair, held):
    weights = load_drafter(pair / "drafter", 0, 1)
    assert torch.equal(held.w1, weights.w1)
    w1, w2 = (values_of(one.view(torch.int16)) for one in (held.w1, held.w2))
    base = values_of(held.base.view(torch.int16))
    requests = [
        Request(key=key % (1 << 64), position=position, round=round, anchor=anchor)
        for key, position, round, anchor in zip(
            held.key.tolist(),
            held.position.tolist(),
            held.round.tolist(),
            held.anchor.tolist(),
            strict=True,
        )
    ]
    drawn = exact.reference_outputs(w1, w2, requests, base)
    assert held.sampled.tokens.tolist() == drawn.token.tolist()
    cold = [replace(one, mode=GREEDY) for one in requests]
    best = exact.reference_outputs(w1, w2, cold, base)
    assert held.greedy.tokens.tolist() == best.token.tolist()
    assert held.sampled.tokens.tolist() != held.greedy.tokens.tolist()


def test_targets_are_those_of_the_target_along_each_chain(pair, held):
    target = CausalTarget(
        load_target(pair / "target"),
        taps=DRAFTER.target_layers,
        slots=1,
        window=6,
        context=PLAN.length + 5,
    )
    for block in range(4):
        start = int(held.starts[held.document[block]])
        before = held.tokens[start : start + int(held.position[block]) - 1].tolist()
        features = target.prefill(0, before)
        assert torch.equal(held.features[start : start + len(before)], features)
        for chain in (held.sampled, held.greedy):
            row = [int(held.anchor[block]), *chain.tokens[block].tolist()]
            logits = target.step([Row(0, row)]).logits[0].double().numpy()
            for place, tau in enumerate((0.7, 1.0)):
                powers = np.exp((logits - logits.max(axis=1, keepdims=True)) / tau)
                wanted = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
                found = chain.targets[block, place].numpy()
                # one unit in the last place: two libraries' exponentials
                np.testing.assert_array_max_ulp(found, wanted, 1)
        assert held.argmax[block].tolist() == logits.argmax(axis=1).tolist()


def test_base_logits_are_the_drafters_on_the_features_before_the_anchor(pair, held):
    drafter = Drafter(load_drafter(pair / "drafter", 0, 1), slots=1, context=PLAN.length)
    for block in range(4):
        start = int(held.starts[held.document[block]])
        end = start + int(held.position[block]) - 1
        drafter.cache.open(7)
        drafter.cache.append(7, held.features[start:end])
        hidden = drafter.hidden(drafter.cache.rows([7], [int(held.anchor[block])]))
        assert torch.equal(held.base[block], drafter.base(hidden, 5)[0])
        drafter.cache.close(7)


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        ({"documents": 0}, "documents"),
        ({"blocks": 0}, "blocks"),
        ({"length": 1, "blocks": 1}, "length"),
        ({"length": 7, "blocks": 4}, "length"),
        ({"depth": 0}, "depth"),
    ],
)
def test_a_plan_that_makes_no_sense(plan, where):
    with pytest.raises(BadInputError) as caught:
        Plan(**plan)
    assert caught.value.refusal.where == where


@pytest.mark.parametrize(("length", "blocks"), [(2, 1), (96, 4), (9, 4), (10, 3), (12, 6)])
def test_anchors_have_a_token_before_them_and_are_distinct(length, blocks):
    places = Plan(length=length, blocks=blocks).places
    assert len(set(places)) == blocks
    assert sorted(places) == list(places)
    assert places[0] >= 1
    assert places[-1] == length - 1


def refused(pair, tmp_path, **changes):
    with pytest.raises(RefusedError) as caught:
        made(pair, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()
    return caught.value.refusal


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("no", Code.NOT_JSON, "tokens"),
        ("{}", Code.NOT_JSON, "tokens"),
        ("[1]", Code.NOT_JSON, "tokens"),
        ("[[true]]", Code.NOT_JSON, "tokens"),
        ("[[1.0]]", Code.NOT_JSON, "tokens"),
        ("[" * 100_000, Code.NOT_JSON, "tokens"),
        ("[]", Code.BAD_INPUT, "documents"),
        (json.dumps([[0] * 12, [150] * 12]), Code.BAD_INPUT, "document 1, token 0"),
        (json.dumps([[0] * 12, [-1]]), Code.BAD_INPUT, "document 1, token 0"),
    ],
)
def test_a_text_that_cannot_be_used(pair, tmp_path, text, code, where):
    path = tmp_path / "tokens"
    path.write_text(text)
    found = refused(pair, tmp_path, tokens=path)
    assert found.code is code
    assert found.where.endswith(where)


def test_files_that_are_not_there(pair, tmp_path):
    for name in ("target", "drafter", "tokens"):
        assert refused(pair, tmp_path, **{name: tmp_path / "gone"}).code is Code.UNREADABLE


def test_a_name_that_no_file_can_have(pair, tmp_path):
    with pytest.raises(RefusedError) as caught:
        made(pair, tmp_path / ("n" * 300))
    assert caught.value.refusal.code is Code.UNWRITABLE


def test_a_file_is_not_written_over(pair, tmp_path):
    (tmp_path / "a").touch()
    # seen before anything is read
    with pytest.raises(RefusedError) as caught:
        made(pair, tmp_path / "a", target=tmp_path / "gone", drafter=tmp_path / "gone")
    assert caught.value.refusal.code is Code.EXISTS
    assert (tmp_path / "a").read_bytes() == b""


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"vocab": 149, "draft_vocab": 149, "mask_token": 1}, Code.BAD_INPUT, "vocabulary"),
        ({"hidden": 32}, Code.BAD_INPUT, "feature width"),
        ({"block": 4}, Code.UNSUPPORTED_CHECKPOINT, "held-out file"),
        ({"markov_rank": 3}, Code.UNSUPPORTED_CHECKPOINT, "held-out file"),
    ],
)
def test_a_drafter_that_does_not_go_with_the_target(pair, tmp_path, changes, code, where):
    synthetic.write(tmp_path / "drafter", replace(DRAFTER, **changes))
    found = refused(pair, tmp_path, drafter=tmp_path / "drafter")
    assert found.code is code
    assert where in found.where


def test_a_context_that_the_target_does_not_have(pair, tmp_path):
    plan = Plan(documents=1, blocks=1, length=TARGET.max_positions)
    path = tmp_path / "tokens"
    path.write_text(json.dumps([[1] * TARGET.max_positions]))
    assert refused(pair, tmp_path, plan=plan, tokens=path).where == "context"


def test_windows_lie_where_the_file_says():
    documents = Documents((tuple(range(50)),) * 20, "a" * 64)
    found = windows(documents, count=20, length=8, vocabulary=50)
    assert found == windows(documents, count=20, length=8, vocabulary=50)
    assert all(one == tuple(range(one[0], one[0] + 8)) for one in found)
    assert len({one[0] for one in found}) > 10
    other = windows(replace(documents, sha256="b" * 64), count=20, length=8, vocabulary=50)
    assert other != found


def test_documents_are_read_whole(tmp_path):
    (tmp_path / "a").write_text("[[1, 2], [], [3]]")
    assert read_documents(tmp_path / "a").tokens == ((1, 2), (), (3,))
