"""Small drafters with random weights, and requests in them."""

import torch

from pp4.drafter.config import bounds_of
from pp4.drafter.model import Drafter
from pp4.drafter.weights import Weights
from tests.unit.drafter.checkpoints import random_map, random_tensors

SHARDED = ("lm_head.weight", "markov_head.markov_w2.weight")
UNREAD = ("d2t", "t2d")


def weights_of(config, tensors, rank=0, world=1, dtype=None, device="cpu"):
    """What loading would give."""
    first, last = bounds_of(config.draft_vocab, world)[rank]
    part = {
        name: (one[first:last] if name in SHARDED else one).to(device, dtype or one.dtype)
        for name, one in tensors.items()
        if name not in UNREAD
    }
    ids = random_map(config).to(device, torch.int32) if config.mapped else None
    return Weights(config, rank, world, part, ids)


def drafter_of(config, seed=0, *, slots=4, context=24, dtype=None, rank=0, world=1):
    weights = weights_of(config, random_tensors(config, seed), rank, world, dtype)
    return Drafter(weights, slots=slots, context=context)


def features_of(config, count, seed=0, dtype=torch.bfloat16):
    state = torch.Generator().manual_seed(1000 + seed)
    return torch.randn(count, config.feature_width, generator=state).to(dtype)


def filled(drafter, features):
    """Open a request for each of the features; -> their names."""
    for request, one in enumerate(features):
        drafter.cache.open(request)
        if len(one):
            drafter.cache.append(request, one)
    return list(range(len(features)))


def run(drafter, features, anchors, requests=None):
    requests = filled(drafter, features) if requests is None else requests
    return drafter.hidden(drafter.cache.rows(requests, anchors))
