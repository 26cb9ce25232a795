"""Numbers that follow from their place alone: every device and both ranks make the same ones."""

import torch

_MASK = 0xFFFFFFFF
# below 2**31, so that no product leaves 63 bits
_FIRST, _SECOND, _STEP = 0x7FEB352D, 0x045D9F3B, 0x1E3779B9


def hashed(seed, shape, device):
    """32-bit hashes as int64, one for each place of a shape."""
    count = 1
    for size in shape:
        count *= size
    word = torch.arange(count, dtype=torch.int64, device=device)
    word = (word + seed * _STEP) & _MASK
    for factor in (_FIRST, _SECOND, _FIRST):
        word = word ^ (word >> 16)
        word = (word * factor) & _MASK
    return (word ^ (word >> 15)).view(shape)


def normal(seed, shape, scale, device):
    """int16 BF16 patterns of normal numbers, by their quantiles."""
    steps = (torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16)
    quantiles = (torch.special.ndtri(steps) * scale).to(torch.bfloat16).view(torch.int16)
    return quantiles.to(device)[hashed(seed, shape, device) >> 16]


def uniform(seed, shape, device):
    """float32 in [0, 1) with 23 bits: times a sum near 1 it stays below that sum."""
    return (hashed(seed, shape, device) >> 9).to(torch.float32) * 2.0**-23


def exponential(seed, shape, device):
    """float32, positive and finite."""
    steps = (hashed(seed, shape, device) >> 9).to(torch.float32)
    return -torch.log((steps + 0.5) * 2.0**-23)


def tokens(seed, count, vocab, device):
    """``[count]`` int64 below ``vocab``."""
    return hashed(seed, (count,), device) % vocab
