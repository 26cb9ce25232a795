"""What a drafter gives fits the sampled path: head, base logits, and a block through the kernel."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pp4.drafter.sampling import geometry_of, kernel_head
from pp4.errors import BadInputError
from pp4.kernels.block import Request, SampledBlock
from pp4.kernels.expected import reference_outputs
from pp4.kernels.head import Head
from pp4.kernels.link import SoloLink
from tests.unit.drafter.checkpoints import REDUCED, SMALL, random_map, random_tensors
from tests.unit.drafter.running import drafter_of, features_of, run, weights_of

CONFIGS = {"full": SMALL, "reduced": REDUCED}


def parts_of(config, ranks):
    return [weights_of(config, random_tensors(config), rank, 2) for rank in ranks]


def whole(config):
    tensors = random_tensors(config)
    return [tensors[f"markov_head.markov_{one}.weight"].float().numpy() for one in ("w1", "w2")]


def mapped(config):
    return [int(one) for one in random_map(config)] if config.mapped else None


@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("cached", [(), (5, 0, 36)])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_head_of_parts_is_the_head_of_whole_weights(name, cached, ranks):
    config = CONFIGS[name]
    geometry = geometry_of(config, tile=32)
    found = kernel_head(parts_of(config, ranks), geometry, cached)
    expected = Head.build(
        geometry, *whole(config), cached=cached, shards=ranks, token_map=mapped(config)
    )
    assert (found.geometry, found.shards) == (expected.geometry, expected.shards)
    for member in ("w1", "w2", "bias", "slot_of", "token_map"):
        mine, theirs = getattr(found, member), getattr(expected, member)
        assert mine.dtype == theirs.dtype, member
        assert torch.equal(mine, theirs), member
        assert mine.is_contiguous(), member


@pytest.mark.parametrize("name", CONFIGS)
def test_a_block_of_both_ranks_goes_through_the_kernel(name):
    config = CONFIGS[name]
    features = [features_of(config, 5), features_of(config, 2, 1)]
    anchors = [3, 36]
    base = []
    for rank in (0, 1):
        drafter = drafter_of(config, rank=rank, world=2)
        base.append(drafter.base(run(drafter, features, anchors), 4))
    logits = torch.cat(base, dim=-1).contiguous()
    geometry = geometry_of(config, tile=32)
    head = kernel_head(parts_of(config, (0, 1)), geometry, cached=(3,))
    block = SampledBlock(head, SoloLink(2), batch=2, n_out=4)
    requests = [
        Request(key=11 + row, position=len(one) + 1, round=row, anchor=anchor)
        for row, (one, anchor) in enumerate(zip(features, anchors, strict=True))
    ]
    block.poison()
    block.load(requests, logits.view(torch.int16))
    block.run()
    outputs = block.outputs()
    w1, w2 = whole(config)
    expected = reference_outputs(w1, w2, requests, logits.float().numpy(), mapped(config))
    for member in ("ids", "q", "token", "error"):
        np.testing.assert_array_equal(getattr(outputs, member), getattr(expected, member), member)
    assert not outputs.error.any()


def bad_parts():
    one = parts_of(SMALL, (0, 1))
    alone = weights_of(SMALL, random_tensors(SMALL))
    return {"a world of one": [alone], "the wrong order": one[::-1], "twice": [one[0], one[0]]}


@pytest.mark.parametrize("name", bad_parts())
def test_parts_that_do_not_make_a_head_are_refused(name):
    with pytest.raises(BadInputError, match="world of 2"):
        kernel_head(bad_parts()[name], geometry_of(SMALL))


@pytest.mark.parametrize("cached", [(37,), (-1,), (4, 4)])
def test_cached_tokens_that_do_not_exist_are_refused(cached):
    with pytest.raises(BadInputError, match="distinct tokens below 37"):
        kernel_head(parts_of(SMALL, (0,)), geometry_of(SMALL), cached)


def test_a_geometry_of_another_vocabulary_is_refused():
    with pytest.raises(BadInputError, match="geometry"):
        kernel_head(parts_of(SMALL, (0,)), geometry_of(replace(SMALL, draft_vocab=36, vocab=36)))
