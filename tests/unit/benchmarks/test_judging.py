"""What is red: each way to be wrong is found, and the ways to be right are not."""

import dataclasses

import pytest
import torch

from benchmarks.racing import inputs, judging, libraries
from benchmarks.racing.contenders import Step, TopK, drawn
from benchmarks.racing.judging import Answer
from benchmarks.racing.material import Material
from benchmarks.racing.setting import Setting
from pp4.kernels import vectorised

VOCAB, BATCH = 256, 3
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def material():
    return Material(VOCAB, 8, CPU, (0, 1))


def answered(material, rows, kind="random", contender=TopK):
    """A right answer and the inputs that it is right for."""
    setting = Setting(
        material=material, rows=rows, batch=BATCH, tile={}, device=CPU, link=None,
        agree=None,
    )  # fmt: skip
    made = inputs.given(kind, 77, BATCH, VOCAB, CPU)
    prepared = contender(setting).prepare(made)
    prepared.replay()
    return prepared.answer(), made


class FlashInfer:
    """What a stand-in for FlashInfer 0.6.4 takes and gives; it draws the most likely."""

    def __init__(self):
        self.sampling = self

    @staticmethod
    def top_k(input, k, sorted=False):
        return tuple(one.flip(1) for one in torch.topk(input, k, dim=1))

    @staticmethod
    def sampling_from_probs(
        probs, indices=None, deterministic=True, generator=None, check_nan=False, seed=None,
        offset=None,
    ):  # fmt: skip
        assert (probs.dtype, seed.shape, offset.shape) == (torch.float32, (1,), (1,))
        return probs.argmax(dim=1).to(torch.int32)

    @staticmethod
    def top_k_top_p_sampling_from_logits(
        logits, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True,
        generator=None, check_nan=False, seed=None, offset=None,
    ):  # fmt: skip
        assert (logits.dtype, top_k, top_p) == (torch.float32, 32, 1.0)
        return FlashInfer.sampling_from_probs(logits, seed=seed, offset=offset)


def found(answer, made, material, rows="cached", draws="uniform"):
    return judging.rival(answer, made, material, rows, draws)


@pytest.mark.parametrize("rows", ["cached", "uncached"])
@pytest.mark.parametrize("kind", inputs.KINDS)
def test_torchs_operators_are_right(material, rows, kind):
    answer, made = answered(material, rows, kind)
    assert found(answer, made, material, rows) == []
    assert found(answer, made, material, rows, "own") == []


@pytest.mark.parametrize("rows", ["cached", "uncached"])
@pytest.mark.parametrize("contender", [libraries.TopK, libraries.Logits])
def test_flashinfers_sequences_fit_its_signatures(material, rows, contender):
    for kind in inputs.KINDS:
        answer, made = answered(material, rows, kind, lambda given: contender(given, FlashInfer()))
        assert found(answer, made, material, rows, contender.draws) == []
        assert answer.token.shape == (BATCH, 5)


def test_a_draw_beside_the_uniform_number_is_red(material):
    answer, made = answered(material, "cached")
    # the last position, so that no later one follows from the wrong token
    place = (answer.ids[0, -1] == answer.token[0, -1]).nonzero().item()
    answer.token[0, -1] = answer.ids[0, -1, (place + 1) % 32]
    assert found(answer, made, material) == ["position 4: the draw of rows [0]"]
    # by a generator of its own it could have been drawn
    assert found(answer, made, material, draws="own") == []


def test_the_interval_is_sharp(material):
    answer, made = answered(material, "cached")
    share = torch.softmax(answer.values[0, 0] / 0.7, 0)
    edge = share.cumsum(0)[2].item()
    assert answer.ids.shape == (BATCH, 5, 32)
    cut = dataclasses.replace
    first = Answer(answer.token[:, :1].clone(), answer.ids[:, :1], answer.values[:, :1])
    first.token[0, 0] = answer.ids[0, 0, 2]
    for offset, wrong in ((-1e-4, False), (5e-6, False), (1e-4, True)):
        uniform = made.uniform.clone()
        uniform[0, 0, 0] = edge + offset
        told = found(first, cut(made, uniform=uniform), material)
        assert told == (["position 0: the draw of rows [0]"] if wrong else [])


@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (lambda a: a.ids.__setitem__((1, 0, 31), a.ids[1, 0, 30]), "a candidate twice"),
        (lambda a: a.ids.__setitem__((1, 0, 31), VOCAB), "a candidate that is no column"),
        (lambda a: a.values.__setitem__((1, 0, 3), 0.01), "a value that is not its column's"),
        (lambda a: a.token.__setitem__((1, 0), -1), "tokens"),
        (lambda a: a.token.__setitem__((1, 0), VOCAB), "tokens"),
    ],
)
def test_damaged_lists_are_red(material, harm, what):
    answer, made = answered(material, "cached")
    harm(answer)
    (told,) = found(answer, made, material)
    assert what in told


@pytest.mark.parametrize("rows", ["cached", "uncached"])
def test_a_better_column_that_was_left_out_is_red(material, rows):
    answer, made = answered(material, rows)
    row = judging.Row(made.bits[:, 0], made.anchor, material, rows)
    worst = row.value[1].argmin()
    # its own value, so that only the list is wrong, and not what it says
    answer.ids[1, 0, 0], answer.values[1, 0, 0] = worst, row.value[1, worst]
    assert found(answer, made, material, rows) == ["position 0: a better column was left out"]


def test_a_tie_may_fall_either_way_but_for_the_argmax(material):
    made = inputs.given("adversarial", 77, BATCH, VOCAB, CPU)
    row = judging.Row(made.bits[:, 2], made.anchor, material, "cached")
    # row 0 of position 2 is one value throughout
    assert row.value[0].unique().numel() == 1
    ids = torch.arange(VOCAB - 32, VOCAB)[None].expand(BATCH, 32)
    values = row.value.gather(1, ids)
    token = drawn(values, ids, made.uniform[2])
    one = dataclasses.replace(made, bits=made.bits[:1, 2:3], anchor=made.anchor[:1],
                              uniform=made.uniform[2:3, :1])  # fmt: skip
    answer = Answer(token[:1, None], ids[:1, None], values[:1, None])
    assert found(answer, one, material) == []
    for greatest, told in ((0, []), (1, ["position 0: the argmax of rows [0]"])):
        answer = Answer(torch.tensor([[greatest]]))
        assert found(answer, one, material, draws="argmax") == told


@pytest.mark.parametrize("rows", ["cached", "uncached"])
@pytest.mark.parametrize("draws", ["own", "race", "argmax"])
def test_a_token_that_could_not_be_drawn_is_red(material, rows, draws):
    made = inputs.given("random", 78, BATCH, VOCAB, CPU)
    row = judging.Row(made.bits[:, 0], made.anchor, material, rows)
    worst = row.value.argmin(dim=1, keepdim=True)
    (told,) = found(Answer(worst), made, material, rows, draws)
    assert told.startswith("position 0:")
    assert told.endswith("[0, 1, 2]")


def test_the_winner_of_the_race_is_right_and_the_second_is_not(material):
    made = inputs.given("random", 79, BATCH, VOCAB, CPU)
    row = judging.Row(made.bits[:, 0], made.anchor, material, "cached")
    score = torch.softmax(row.value / 0.7, dim=1) / made.noise()[0]
    first, second = score.topk(2, dim=1).indices.unbind(1)
    assert found(Answer(first[:, None]), made, material, draws="race") == []
    assert found(Answer(second[:, None]), made, material, draws="race") != []


@pytest.mark.parametrize("rows", ["cached", "uncached"])
def test_pp4_is_held_to_the_last_bit(material, rows):
    made = inputs.given("tied", 80, BATCH, VOCAB, CPU)
    requests = made.requests
    block = vectorised.block(
        material.w1,
        material.w2,
        base=made.bits,
        mode=torch.tensor([one.mode for one in requests], dtype=torch.int32),
        key=torch.tensor([(one.key + 2**63) % 2**64 - 2**63 for one in requests]),
        position=torch.tensor([one.position for one in requests]),
        round=torch.tensor([one.round for one in requests]),
        anchor=made.anchor,
        bias_of=lambda previous: material.bias_bits(previous, rows),
    )
    assert judging.exact(block, made, material, rows) == []
    block.q[1, 4, 7] += 2.0**-24
    block.ids[0, 0, 0] += 1
    told = judging.exact(block, made, material, rows)
    assert [one.split()[0] for one in told] == ["ids", "q"]


def test_both_kinds_of_rows_are_there(material):
    previous = torch.tensor([3, 200])
    exact, near = (material.bias_bits(previous, rows) for rows in ("cached", "uncached"))
    assert torch.equal(exact, material.rows[[3, 200 % material.slots]])
    assert not torch.equal(exact, near)
    assert Step(previous).ids is None
