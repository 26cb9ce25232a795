"""The backbone by kernels: the drafter that torch runs, on weights that are held once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.drafter import fused
from pp4.drafter.backbone import Backbone
from pp4.drafter.features import FeatureCache
from pp4.drafter.fused import FusedBackbone, backbone_of, joined
from pp4.drafter.weights import Weights
from pp4.kernels import interpreting
from tests.kernels import compiling
from tests.unit.drafter.checkpoints import SMALL, random_tensors
from tests.unit.drafter.naive import Naive
from tests.unit.drafter.running import features_of, weights_of

# as the tests of kernels do: half of the time is mapping
interpreting.repeat_nothing()

FUSED = replace(SMALL, head_dim=16)
CONTEXT, SLOTS = 140, 4
LENGTHS = (140, 0, 13)


def bits(tensor):
    return tensor.contiguous().view(torch.int16)


def off(found, expected):
    """Root of the mean square of what differs."""
    return float(np.sqrt(np.mean((found.double().numpy() - expected) ** 2)))


class Requests:
    """A backbone by kernels, and requests of some lengths in its cache."""

    def __init__(self, config, lengths, slots=SLOTS):
        self.backbone = FusedBackbone(weights_of(config, random_tensors(config)), CONTEXT)
        self.cache = FeatureCache(self.backbone, slots, self.backbone.weights.embedding)
        for request, length in enumerate(lengths):
            self.cache.open(request)
            if length:
                self.cache.append(request, features_of(config, length, request))

    def run(self, requests, anchors, by=None):
        rows = self.cache.rows(requests, anchors)
        places = rows.slots, rows.lengths
        return (by or self.backbone).run(rows.anchors, places, self.cache.keys, self.cache.values)


@pytest.fixture(scope="module")
def small():
    return Requests(FUSED, LENGTHS)


@pytest.mark.parametrize("block", [5, 7])
def test_states_are_near_the_naive_drafters_and_torchs(block):
    config = replace(FUSED, block=block, layers=3)
    small = Requests(config, LENGTHS)
    anchors = [3, 36, 0, 9]
    found = small.run([0, 1, 2, None], anchors)
    assert (found.shape, found.dtype) == ((4, block, config.hidden), torch.bfloat16)
    plain = Backbone(weights_of(config, random_tensors(config)), CONTEXT)
    by_torch = small.run([0, 1, 2, None], anchors, plain)
    naive = Naive(config, random_tensors(config))
    for row, length in enumerate((*LENGTHS, 0)):
        anchor = anchors[row] if row < len(LENGTHS) else 0
        states = naive.hidden(features_of(config, length, row), anchor)
        # of states with a mean square of 1, after some dozens of roundings to eight bits each: one
        # token at a wrong place is off by more, see below
        assert off(found[row], states) < 0.05
        assert off(by_torch[row], states) < 0.05
    elsewhere = naive.hidden(features_of(config, 13, 2).roll(1, dims=0), anchors[2])
    assert off(found[2], elsewhere) > 0.1


@pytest.mark.parametrize(
    ("requests", "place"),
    [([0], 0), ([2, 0], 1), ([None, 1, 0, None], 2), ([0, 0, 2], 0)],
)
def test_a_row_depends_on_itself_alone(small, requests, place):
    alone = small.run([0], [7])
    found = small.run(requests, [7 if one == 0 else 11 for one in requests])
    assert torch.equal(bits(found[place]), bits(alone[0]))


def test_a_row_has_the_same_bits_in_another_slot_and_beside_what_is_no_number(small):
    before = small.run([2], [5])
    other = Requests(FUSED, (0, 0, 0))
    other.cache.close(2)
    other.cache.close(1)
    for request in (7, 8):
        other.cache.open(request)
    other.cache.append(8, features_of(FUSED, 13, 2))
    assert other.cache.place(8)[0] == 2
    other.cache.close(7)
    moved = Requests(FUSED, ())
    moved.cache.open(0)
    moved.cache.append(0, features_of(FUSED, 13, 2))
    for cache, slot in ((other.cache, 2), (moved.cache, 0)):
        for kept in (cache.keys, cache.values):
            lying = kept[:, slot, :, :13].clone()
            kept.fill_(float("nan"))
            kept[:, slot, :, :13] = lying
    assert torch.equal(bits(other.run([8], [5])), bits(before))
    assert torch.equal(bits(moved.run([0], [5])), bits(before))


def test_an_inactive_row_sees_its_own_block_alone(small):
    idle, fresh = small.run([None], [0]), small.run([1], [0])
    assert torch.isfinite(idle).all()
    assert torch.equal(bits(idle), bits(fresh))


def test_every_state_depends_on_every_feature_and_on_every_query(small):
    kept = small.run([2], [5])
    other = small.run([2], [6])
    assert all((other[0, i] != kept[0, i]).any() for i in range(FUSED.block))
    for place in (0, 12):
        changed = small.cache.values[0, 2, :, place].clone()
        small.cache.values[0, 2, :, place] += 8
        found = small.run([2], [5])
        small.cache.values[0, 2, :, place] = changed
        assert all((found[0, i] != kept[0, i]).any() for i in range(FUSED.block)), place
    assert torch.equal(bits(small.run([2], [5])), bits(kept))


# -- weights --------------------------------------------------------------------------------


def test_joined_weights_are_held_once():
    weights = weights_of(FUSED, random_tensors(FUSED))
    given, qkv, gate_up = joined(weights)
    assert given.tensors.keys() == weights.tensors.keys()
    for name, one in weights.tensors.items():
        assert torch.equal(given.tensors[name], one), name
    assert given.bytes == weights.bytes
    storages = {one.untyped_storage().data_ptr(): one for one in given.tensors.values()}
    held = sum(one.untyped_storage().nbytes() for one in storages.values())
    assert held == weights.bytes
    for index in range(FUSED.layers):
        parts = [given.layer(index, f"self_attn.{one}_proj") for one in "qkv"]
        assert torch.equal(qkv[index], torch.cat(parts))
        assert qkv[index].data_ptr() == parts[0].data_ptr()
        parts = [given.layer(index, f"mlp.{one}_proj") for one in ("gate", "up")]
        assert torch.equal(gate_up[index], torch.cat(parts))


def test_features_are_projected_to_the_same_bits():
    weights = weights_of(FUSED, random_tensors(FUSED))
    features = features_of(FUSED, 70)
    positions = torch.arange(3, 73)
    kinds = (Backbone, FusedBackbone)
    ways = [kind(weights, CONTEXT).project(features, positions) for kind in kinds]
    for plain, by_kernels in zip(*ways, strict=True):
        assert torch.equal(bits(plain), bits(by_kernels))


# -- where it runs --------------------------------------------------------------------------


def on_a_gpu(monkeypatch):
    """Let weights say that they lie on a GPU, and note which backbone is made."""
    monkeypatch.setattr(Weights, "device", property(lambda _: torch.device("cuda", 0)))
    for name in ("Backbone", "FusedBackbone"):
        monkeypatch.setattr(fused, name, lambda *_, name=name: name)


@pytest.mark.parametrize(
    ("config", "dtype", "made"),
    [
        (FUSED, torch.bfloat16, "FusedBackbone"),
        (SMALL, torch.bfloat16, "Backbone"),
        (FUSED, torch.float32, "Backbone"),
    ],
)
def test_a_gpu_has_the_kernels_where_they_take_the_drafter(monkeypatch, config, dtype, made):
    weights = weights_of(config, random_tensors(config), dtype=dtype)
    on_a_gpu(monkeypatch)
    assert backbone_of(weights, CONTEXT) == made


def test_without_a_gpu_it_is_torch():
    assert type(backbone_of(weights_of(FUSED, random_tensors(FUSED)), CONTEXT)) is Backbone


@pytest.mark.parametrize("config", [SMALL, FUSED])
def test_what_is_launched_is_what_is_primed(monkeypatch, config):
    primed = []
    monkeypatch.setattr(fused.specialised, "prime", lambda *given: primed.append(given))
    fused.prime(config, torch.device("cuda", 0))
    expected = [] if config is SMALL else [(fused.sizes_of(config), torch.device("cuda", 0))]
    assert primed == expected


_ON_A_GPU = """
import sys
from dataclasses import replace
import torch
from pp4.drafter import fused
from pp4.drafter.backbone import Backbone
from pp4.kernels.graph import capture
from pp4.kernels.loading import forbid_compilation
from tests.unit.drafter.checkpoints import SMALL, random_tensors
from tests.unit.drafter.running import weights_of

device = torch.device("cuda", 0)
sizes = {"hidden": 256, "heads": 8, "head_dim": 64, "intermediate": 512}
config = replace(SMALL, max_positions=4096, **sizes)
fused.prime(config, device)
compiled = []
forbid_compilation(lambda kernel, key: compiled.append(kernel))
weights = weights_of(config, random_tensors(config), device=device)
by_kernels, by_torch = fused.backbone_of(weights, 2200), Backbone(weights, 2200)
cache = [torch.randn(2, 4, 2, 2200, 64, device=device).to(torch.bfloat16) for _ in range(2)]
slots, lengths, anchors = torch.tensor([[2, 0, 3], [2200, 0, 65], [7, 0, 30]], device=device)


def run(by=by_kernels):
    return by.run(anchors, (slots, lengths), *cache)


first = run()
torch.cuda.synchronize()
kept = []
graph = capture(lambda: kept.append(run()))
graph.replay()
off = (first.double() - run(by_torch).double()).square().mean().sqrt().item()
if type(by_kernels) is not fused.FusedBackbone or compiled or not off < 0.05:
    sys.exit(f"{type(by_kernels).__name__}, {off} off torch, compiled {compiled}")
if not torch.equal(kept[0], first):
    sys.exit("a graph gives other bits")
for one in cache:
    one[:, 1] = one[:, 3]
    one[:, 2:] = float("nan")
for one, value in ((slots, 1), (lengths, 65), (anchors, 30)):
    one.fill_(value)
graph.replay()
if not all(torch.equal(one, first[2]) for one in kept[0]):
    sys.exit("a row depends on more than itself")
"""


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    """In a process of its own: this one interprets its kernels."""
    done = compiling.python(["-c", _ON_A_GPU], tmp_path)
    assert done.returncode == 0, done.stderr
