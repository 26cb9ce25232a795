"""What one input set holds, and the kinds that correctness is tried on."""

from dataclasses import dataclass

import torch

from benchmarks.racing import places
from benchmarks.racing.field import DEPTH
from pp4.kernels.block import Request
from pp4.kernels.sampled_fused import GREEDY, SAMPLED

KINDS = ("random", "tied", "adversarial")
COLD_BYTES = 120_000_000
"""Input sets of together more than this are rotated: twice the L2 cache of an H200."""
MOST_SETS, FEW_SETS = 256, 3
"""On a GPU, and on a CPU, where nothing is cold or warm."""
_MINUS_INFINITY = -0x80
_256 = 0x4380
_2_TO_14 = 0x4680
_100 = 0x42C8


@dataclass(frozen=True)
class Given:
    """One input set, the same on every rank.

    ``bits``: ``[B, DEPTH, V]`` int16 patterns of base logits; ``anchor``: ``[B]`` int64;
    ``uniform``: ``[DEPTH, B, 1]`` float32, the number that each draw is made with;
    ``requests``: what pp4 draws by in place of the uniform numbers; ``seed``: of further noise.
    """

    bits: torch.Tensor
    anchor: torch.Tensor
    uniform: torch.Tensor
    requests: tuple[Request, ...]
    seed: int

    def noise(self):
        """``[DEPTH, B, V]`` float32 exponential variates."""
        batch, depth, vocab = self.bits.shape
        return places.exponential(self.seed + 3, (depth, batch, vocab), self.bits.device)


def given(kind, seed, batch, vocab, device):
    """Make an input set of a kind; ``timed`` is ``random`` with all rows sampled."""
    bits = places.normal(seed, (batch, DEPTH, vocab), 3.0, device)
    anchor = places.tokens(seed + 1, batch, vocab, device)
    uniform = places.uniform(seed + 2, (DEPTH, batch, 1), device)
    if kind == "tied":
        # two values apart: the sum with a bias keeps a handful, thousands of columns each
        bits = (_256 + (places.hashed(seed, bits.shape, device) & 1)).to(torch.int16)
    elif kind == "adversarial":
        _spoil(bits, seed)
        anchor[0] = vocab - 1
        uniform[0], uniform[-1] = 0.0, 0.999
    requests = tuple(
        Request(
            # every second row of a check is at T = 0, which the kernel takes another way
            mode=SAMPLED if kind == "timed" or row % 2 == 0 else GREEDY,
            key=(seed * 0x9E3779B97F4A7C15 + row) % (1 << 64),
            position=100 + row,
            round=seed,
            anchor=int(token),
        )
        for row, token in enumerate(anchor.tolist())
    )
    return Given(bits, anchor, uniform, requests, seed)


def _spoil(bits, seed):
    """Make each row of each position hard in its own way."""
    batch, depth, vocab = bits.shape
    split = (vocab + 1) // 2
    rising = torch.linspace(-8, 8, vocab, device=bits.device).to(torch.bfloat16).view(torch.int16)
    signs = (places.hashed(seed, (vocab,), bits.device) & 1).to(torch.int16) * -0x8000
    for row in range(batch):
        for index in range(depth):
            line, way = bits[row, index], (row + index) % 6
            if way == 0:
                ends = [0, split - 1, split, vocab - 1]
                kept = line[ends].clone()
                line.fill_(_MINUS_INFINITY)
                line[ends] = kept
            elif way == 1:
                line[(7 * row + index) % vocab] = _100
            elif way == 2:
                line.fill_(_2_TO_14)
            elif way == 3:
                line.copy_(rising)
            elif way == 4:
                line.copy_(rising.flip(0))
            else:
                line.copy_(signs)


def cold_sets(batch, columns, most=MOST_SETS):
    """How many sets of base logits, of so many columns here, hold more than COLD_BYTES."""
    return min(most, COLD_BYTES // (batch * DEPTH * columns * 2) + 1)


class Buffers:
    """Where a captured chain of torch operators finds its inputs.

    ``base``: ``[DEPTH, B, columns here]`` BF16; ``anchor``, ``uniform`` and, where asked for,
    ``noise`` as in :class:`Given`.
    """

    def __init__(self, material, made, noise):
        self._material = material
        self.base = self._here(made)
        self.anchor, self.uniform = made.anchor.clone(), made.uniform.clone()
        self.noise = made.noise() if noise else None

    def _here(self, made):
        part = made.bits[:, :, self._material.first : self._material.last]
        return part.transpose(0, 1).contiguous().view(torch.bfloat16)

    def load(self, made):
        """Rewrite in place."""
        self.base.copy_(self._here(made))
        self.anchor.copy_(made.anchor)
        self.uniform.copy_(made.uniform)
        if self.noise is not None:
            self.noise.copy_(made.noise())
