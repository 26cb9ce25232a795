"""The models that are trained compute what pp4's own drafter and a Qwen3 target compute."""

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from examples.mini import evaluation, losses, sampled_text
from examples.mini.blocks import Drafted, asked, drafted, labels, last_place, previous
from examples.mini.drafter_model import DrafterModel
from examples.mini.sizes import MINI, SMOKE
from examples.mini.stages import Bench
from examples.mini.target_model import TargetModel
from pp4.drafter.checkpoint.load import load
from pp4.drafter.model import Drafter
from pp4.drafter.weights import Weights
from pp4.engine.interface import Row
from pp4.engine.target.causal import CausalTarget
from pp4.engine.target.load import load as load_target

CPU = torch.device("cpu")
PLACES = torch.tensor([0, 1, 7, 30, 58])


def exported_target(directory, dtype, context=SMOKE.context):
    """The written target as the training has it, in a type to compute in."""
    model = TargetModel(
        SMOKE.target,
        context=context,
        taps=SMOKE.drafter.target_layers,
        dropout=SMOKE.dropout,
        dtype=dtype,
        device=CPU,
    )
    state = load_file(directory / "target" / "model.safetensors")
    model.load_state_dict({name: value.float() for name, value in state.items()})
    return model.eval()


def exported_drafter(directory, dtype):
    """The written drafter as the training has it."""
    state = load_file(directory / "drafter" / "model.safetensors")
    state = {name: value.float() for name, value in state.items()}
    model = DrafterModel(
        SMOKE.drafter,
        context=SMOKE.context,
        embedding=state["embed_tokens.weight"],
        dtype=dtype,
    )
    model.load_state_dict(state)
    return model.eval()


def own_drafter(directory, dtype):
    """The written drafter as pp4 loads it."""
    found = load(directory / "drafter", 0, 1)
    tensors = {name: value.to(dtype) for name, value in found.tensors.items()}
    weights = Weights(found.config, 0, 1, tensors)
    return Drafter(weights, slots=len(PLACES), context=SMOKE.context)


def sequence():
    """One sequence of tokens, none of them special."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(1, 319, (1, SMOKE.context), generator=generator)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def dtype(request):
    return request.param


@torch.no_grad()
def test_a_trained_block_is_what_pp4_drafts(trained, dtype):
    """The same features and anchors through both; several anchors there in one pass, here apart."""
    tokens = sequence()
    target, drafter = exported_target(trained, dtype), exported_drafter(trained, dtype)
    wanted = asked(target, tokens, PLACES, 5)
    before = previous(tokens, PLACES, 5)
    hidden = drafter.hidden(wanted.features, before[:, :, 0], PLACES)
    found = drafted(drafter, wanted.features, tokens, PLACES)

    own = own_drafter(trained, dtype)
    for request, place in enumerate(PLACES.tolist()):
        own.cache.open(request)
        if place:
            own.cache.append(request, wanted.features[0, :place])
    rows = own.cache.rows(range(len(PLACES)), before[0, :, 0].tolist())
    own_hidden = own.hidden(rows)
    # FP32 sums in another order; BF16 rounds each of some dozen steps to eight bits
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.03, "atol": 0.1}
    torch.testing.assert_close(hidden[0], own_hidden, **close)
    torch.testing.assert_close(drafter.base(hidden)[0], own.base(own_hidden, 5), **close)
    chances = own.confidence(own_hidden, before[0])
    torch.testing.assert_close(found.scores[0].sigmoid(), chances, **close)
    # what was compared has been trained: positions differ, and so do confidences
    assert chances.std() > 1e-3
    assert hidden.std() > 0.1


@torch.no_grad()
def test_conditioned_logits_are_pp4s(trained):
    drafter = exported_drafter(trained, torch.bfloat16)
    own = own_drafter(trained, torch.bfloat16)
    generator = torch.Generator().manual_seed(4)
    base = torch.randn(64, 320, generator=generator).bfloat16()
    previous = torch.randint(0, 320, (64,), generator=generator)
    patterns = own.conditioned(base, previous)
    wanted = (patterns << 16).view(torch.float32)
    found = drafter.conditioned(base, previous).float()
    # a sum in another order may round the bias the other way; the bias itself is not nothing
    torch.testing.assert_close(found, wanted, rtol=0.01, atol=0.01)
    assert (wanted - base.float()).abs().max() > 0.1


@torch.no_grad()
def test_a_block_sees_what_is_before_its_anchor_and_itself_alone(trained):
    drafter = exported_drafter(trained, torch.float32)
    generator = torch.Generator().manual_seed(5)
    width = SMOKE.drafter.feature_width
    features = torch.randn(1, SMOKE.context, width, generator=generator)
    anchors, places = torch.tensor([[5, 6, 7]]), torch.tensor([10, 12, 40])
    before = drafter.hidden(features, anchors, places)
    # a feature at position 12: seen by the block at 40, not by those at 10 and at 12
    features[0, 12] += 1
    after = drafter.hidden(features, anchors, places)
    assert torch.equal(after[0, :2], before[0, :2])
    assert not torch.allclose(after[0, 2], before[0, 2])
    # another block's anchor changes that block alone
    other = drafter.hidden(features, torch.tensor([[5, 9, 7]]), places)
    assert torch.equal(other[0, ::2], after[0, ::2])
    assert not torch.allclose(other[0, 1], after[0, 1])


def test_the_target_has_the_names_and_shapes_of_a_qwen3(trained):
    found = load_file(trained / "target" / "model.safetensors")
    hidden, queries, keys, inner = 32, 32, 16, 48
    wanted = {"model.embed_tokens.weight": (320, hidden), "model.norm.weight": (hidden,)}
    for index in range(3):
        wanted |= {
            f"model.layers.{index}.{part}.weight": shape
            for part, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "self_attn.q_norm": (8,),
                "self_attn.k_norm": (8,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }.items()
        }
    assert {name: tuple(value.shape) for name, value in found.items()} == wanted
    assert {value.dtype for value in found.values()} == {torch.bfloat16}


@torch.no_grad()
def test_the_target_is_a_causal_qwen3(trained):
    """Against attention that is written out: groups, scale, turns, norms, the tied head."""
    model, tokens = exported_target(trained, torch.float32), sequence()[:, :20]
    state = load_file(trained / "target" / "model.safetensors")
    logits, outputs = naive_qwen3({k: v.double() for k, v in state.items()}, tokens[0])
    hidden, features = model(tokens)
    torch.testing.assert_close(model.logits(hidden)[0].double(), logits, rtol=1e-4, atol=1e-4)
    taps = torch.cat([outputs[tap] for tap in SMOKE.drafter.target_layers], dim=-1)
    torch.testing.assert_close(features[0].double(), taps, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_target_is_the_one_that_pp4_runs(trained):
    """The written target in pp4's engine: logits and features of a prompt and a window after it."""
    engine = CausalTarget(
        load_target(trained / "target"),
        taps=SMOKE.drafter.target_layers,
        slots=2,
        window=6,
        context=SMOKE.context,
    )
    tokens = sequence()[:, :46]
    features = engine.prefill(1, tokens[0, :40].tolist())
    step = engine.step([Row(1, tokens[0, 40:].tolist())])
    model = exported_target(trained, torch.bfloat16)
    hidden, wanted = model(tokens)
    # BF16 rounds each of some dozen steps to eight bits, and attention is another function
    close = {"rtol": 0.03, "atol": 0.1}
    torch.testing.assert_close(torch.cat([features, step.features[0]]), wanted[0], **close)
    torch.testing.assert_close(step.logits[0], model.logits(hidden)[0, 40:], **close)
    assert wanted.std() > 0.1
    assert step.logits.std() > 1


def naive_qwen3(state, tokens):
    """A Qwen3 forward pass in FP64, one head and one query at a time."""
    sizes = SMOKE.target

    def norm(values, weight):
        return values / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    def turned(head, position):
        half = sizes.head_dim // 2
        angles = [position / 1e4 ** (2 * i / sizes.head_dim) for i in range(half)]
        cos = torch.tensor([math.cos(a) for a in angles] * 2, dtype=torch.float64)
        sin = torch.tensor([math.sin(a) for a in angles] * 2, dtype=torch.float64)
        return head * cos + torch.cat([-head[half:], head[:half]]) * sin

    embedding = state["model.embed_tokens.weight"]
    hidden, outputs = embedding[tokens], []
    for index in range(sizes.layers):

        def weight(part, index=index):
            return state[f"model.layers.{index}.{part}.weight"]

        taken = norm(hidden, weight("input_layernorm"))
        parts = {}
        for part in "qkv":
            made = (taken @ weight(f"self_attn.{part}_proj").T).unflatten(-1, (-1, sizes.head_dim))
            if part != "v":
                made = norm(made, weight(f"self_attn.{part}_norm"))
                made = torch.stack(
                    [torch.stack([turned(h, p) for h in row]) for p, row in enumerate(made)]
                )
            parts[part] = made
        rows = []
        for place in range(len(tokens)):
            heads = []
            for head in range(sizes.heads):
                shared = head // (sizes.heads // sizes.kv_heads)
                keys = parts["k"][: place + 1, shared]
                scores = keys @ parts["q"][place, head] / math.sqrt(sizes.head_dim)
                heads.append(scores.softmax(0) @ parts["v"][: place + 1, shared])
            rows.append(torch.cat(heads))
        hidden = hidden + torch.stack(rows) @ weight("self_attn.o_proj").T
        taken = norm(hidden, weight("post_attention_layernorm"))
        gate = torch.nn.functional.silu(taken @ weight("mlp.gate_proj").T)
        hidden = hidden + (gate * (taken @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
        outputs.append(hidden)
    return norm(hidden, state["model.norm.weight"]) @ embedding.T, outputs


@torch.no_grad()
def test_steps_over_kept_tokens_equal_a_whole_pass(trained):
    model = exported_target(trained, torch.float32)
    tokens = torch.cat([sequence(), sequence().flip(1)])[:, :30]
    sizes = SMOKE.target
    keys = torch.zeros(sizes.layers, 2, sizes.kv_heads, SMOKE.context, sizes.head_dim)
    values = torch.zeros_like(keys)
    found = [model.stepped(tokens[:, place], place, keys, values) for place in range(30)]
    wanted = model.logits(model(tokens)[0])
    torch.testing.assert_close(torch.stack(found, dim=1), wanted, rtol=1e-4, atol=1e-4)


def test_sampled_text_follows_the_target(trained):
    """Draws of one position against the chances that a whole pass gives; never the mask."""
    model = exported_target(trained, torch.float32, context=6)
    prompt = sequence()[:, :5]
    with torch.no_grad():
        logits = model.logits(model(prompt)[0])[0, -1]
    never = int(logits.argmax())
    logits[never] = -torch.inf
    found = sampled_text.continued(
        model,
        prompt.expand(4000, -1),
        never=never,
        warmth=torch.full((4000,), 0.7),
        generator=torch.Generator().manual_seed(6),
    )
    assert torch.equal(found[:, :-1], prompt.expand(4000, -1))
    counts = torch.bincount(found[:, -1], minlength=320).double()
    chances = (logits.double() / 0.7).softmax(-1)
    assert counts[never] == 0
    # five standard deviations of a count, one more for counts near zero
    assert bool(((counts - 4000 * chances).abs() < 5 * (4000 * chances).sqrt() + 1).all())


def test_warmths_are_1_and_a_cooler_one_in_turn():
    assert sampled_text.warmths(4, CPU).tolist() == pytest.approx([1.0, 0.7, 1.0, 0.7])


def test_the_loss_by_hand():
    """Two positions, three tokens, one block."""
    logits = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]).log()[None, None]
    target = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.2, 0.6]]).log()[None, None]
    labels = torch.tensor([[[1, 2]]])
    scores = torch.tensor([[[0.0, math.log(3)]]])
    found = losses.drafter_loss(Drafted(logits, scores), target, labels)
    near = 0.1 * -math.log(0.25) + 0.9 * 0.2 + math.log(2)
    # a chance of 3/4 where the label is 1
    far = 0.1 * -math.log(0.6) + 0.9 * 0.0 - math.log(0.75)
    first, second = 1.0, math.exp(-1 / 2)
    assert float(found) == pytest.approx((first * near + second * far) / (first + second))


def test_confidence_labels_send_no_gradient_into_the_drafts():
    logits = torch.randn(1, 1, 2, 8, requires_grad=True)
    scores = torch.randn(1, 1, 2, requires_grad=True)
    target, labels = torch.randn(1, 1, 2, 8), torch.zeros(1, 1, 2, dtype=torch.int64)
    losses.drafter_loss(Drafted(logits, scores), target, labels).backward()
    with_scores = logits.grad.clone()
    logits.grad = None
    sure = Drafted(logits, torch.zeros(1, 1, 2))
    losses.drafter_loss(sure, target, labels).backward()
    torch.testing.assert_close(logits.grad, with_scores)


def test_acceptance_against_sums_that_are_written_out():
    generator = torch.Generator().manual_seed(8)
    conditioned = torch.randn(40, generator=generator) * 2
    conditioned[3] = conditioned[17] = conditioned.sort(descending=True).values[31]
    target = torch.randn(40, generator=generator)
    order = sorted(range(40), key=lambda v: (-float(conditioned[v]), v))[:32]
    weights = {v: math.exp(float(conditioned[v]) / 0.7) for v in order}
    q = {v: weight / sum(weights.values()) for v, weight in weights.items()}
    for temperature in (0.7, 1.0):
        raised = [math.exp(float(one) / temperature) for one in target]
        wanted = sum(min(raised[v] / sum(raised), q.get(v, 0.0)) for v in range(40))
        found = evaluation.acceptance(conditioned[None], target[None], temperature)
        assert float(found) == pytest.approx(wanted, rel=1e-5)
    assert (evaluation.proposal(conditioned) > 0).nonzero()[:, 0].tolist() == sorted(order)


def test_a_drafter_that_is_sure_and_right_is_measured_so(trained):
    """Held against the target's own distribution, acceptance is one and confidence is told."""

    class Mirror(torch.nn.Module):
        config = SMOKE.drafter

    made = {}

    def told(drafter, features, tokens, places):
        return made["drafted"]

    target = exported_target(trained, torch.float32)
    windows = sequence()
    places = evaluation.spread_places(1, last_place(SMOKE.context, 5), 8, CPU)
    wanted = asked(target, windows, places, 5).logits
    made["drafted"] = Drafted(wanted, torch.full(wanted.shape[:-1], 20.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "drafted", told)
        found = evaluation.measured(Mirror(), target, windows, 8)
    assert found["blocks"] == 8
    assert found["greedy_agreement"] == [1.0] * 5
    assert found["confidence"]["mean_label"] == pytest.approx([1.0] * 5, abs=1e-5)
    assert found["confidence"]["mean_confidence"] == [1.0] * 5
    assert found["confidence"]["expected_calibration_error"] == pytest.approx(0, abs=1e-5)


def test_bits_per_byte():
    assert evaluation.bits_per_byte(math.log(2), 50, 100) == pytest.approx(0.5)


@torch.no_grad()
def test_a_position_has_the_token_before_it_its_own_and_the_targets_word(trained):
    """Position j of a block is the token j places after the anchor."""
    target, tokens = exported_target(trained, torch.float32), sequence()
    whole = target.logits(target(tokens)[0])[0]
    found = asked(target, tokens, PLACES, 5).logits[0]
    for row, place in enumerate(PLACES.tolist()):
        text = tokens[0, place : place + 6]
        assert torch.equal(previous(tokens, PLACES, 5)[0, row], text[:5])
        assert torch.equal(labels(tokens, PLACES, 5)[0, row], text[1:])
        torch.testing.assert_close(found[row], whole[place : place + 5], rtol=1e-4, atol=1e-4)


def test_the_last_anchor_has_five_tokens_after_it():
    places = torch.tensor([last_place(64, 5)])
    assert labels(torch.arange(64)[None], places, 5).tolist() == [[[59, 60, 61, 62, 63]]]


def test_the_published_sizes_are_small_enough():
    bench = Bench(replace(MINI, context=8), CPU, 0)
    target = bench.new_target()
    embedding = target.model.embed_tokens.weight.detach()
    drafter = DrafterModel(MINI.drafter, context=8, embedding=embedding, dtype=torch.bfloat16)
    counts = [sum(one.numel() for one in model.parameters()) for model in (target, drafter)]
    assert counts == [3_017_472, 1_837_121]
    assert MINI.drafter.feature_width == 768
