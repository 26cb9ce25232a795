"""Chi-square: how improbable counts are under a distribution."""

import torch

TESTS = 100
"""More tests than there are, over all files."""
ALPHA = 1e-6 / TESTS
"""A right implementation fails one test or more less than once in 10**6 sets of seeds."""
LEAST = 20
"""Expected counts below this are put together, so that the chi-square distribution holds."""


def chi_square(counts, p):
    """Statistic and degrees of freedom of each row of counts ``[C, V]`` under ``p`` ``[C, V]``.

    Raises:
        AssertionError: something was counted that has no probability.
    """
    assert not counts[p == 0].any()
    statistic, freedom = 0.0, 0
    for seen, row in zip(counts.double(), p.double(), strict=True):
        expected = row * seen.sum()
        rare = expected < LEAST
        pooled = [(seen[~rare], expected[~rare])]
        if expected[rare].sum() >= LEAST:
            pooled.append((seen[rare].sum()[None], expected[rare].sum()[None]))
        elif rare.any() and (~rare).any():
            # too few for a cell of their own: they join the smallest
            seen_most, expected_most = pooled.pop()
            smallest = expected_most.argmin()
            seen_most, expected_most = seen_most.clone(), expected_most.clone()
            seen_most[smallest] += seen[rare].sum()
            expected_most[smallest] += expected[rare].sum()
            pooled.append((seen_most, expected_most))
        seen, expected = (torch.cat(parts) for parts in zip(*pooled, strict=True))
        statistic += float(((seen - expected) ** 2 / expected).sum())
        freedom += max(len(seen) - 1, 0)
    return statistic, freedom


def chance(counts, p):
    """The probability of counts that are at least as far off."""
    statistic, freedom = chi_square(counts, p)
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
