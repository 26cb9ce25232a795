"""A small drafter of random weights, for ranks that serve."""

from pp4.drafter.checkpoint import synthetic
from pp4.drafter.config import DrafterConfig, Layout

SMALL = DrafterConfig(
    layout=Layout.DEEPSPEC,
    hidden=32,
    layers=1,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate=32,
    norm_eps=1e-6,
    rope_theta=1e6,
    max_positions=128,
    vocab=96,
    draft_vocab=96,
    block=5,
    mask_token=95,
    target_layers=(0,),
    markov_rank=16,
    confidence=True,
    confidence_with_markov=True,
)


def write_drafter(path):
    """Write it; -> its directory."""
    synthetic.write(path, SMALL)
    return path
