"""An interval for a difference of means, by resampling whole documents.

Blocks of one document resemble each other, so documents are what is drawn again (a bootstrap over
clusters).  The words come raw out of NumPy's Philox, which are the same in every release.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

LEAST_DOCUMENTS: Final = 30
"""With fewer, percentiles of a bootstrap are too narrow to be printed."""
RESAMPLES: Final = 10_000
SEED: Final = 20_260_301
LEVEL: Final = 0.95


def mean_difference(documents: Sequence[int], differences: Sequence[Fraction]) -> dict[str, Any]:
    """Return the mean over all blocks, and its 95 % interval where there are documents enough.

    Args:
        documents: of each block, in rising order.
        differences: of each block.

    Returns:
        ``mean``, and ``interval``: two numbers, or None; ready for JSON.
    """
    mean = float(sum(differences, Fraction(0)) / len(differences))
    names, place = np.unique(np.asarray(documents), return_inverse=True)
    if len(names) < LEAST_DOCUMENTS:
        return {"mean": mean, "interval": None}
    sums = np.bincount(place, weights=[float(one) for one in differences])
    counts = np.bincount(place).astype(np.float64)
    generator = np.random.Philox(key=SEED)
    means = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        # a remainder of 64 bits favours no document by more than one part in 2**40
        drawn = (generator.random_raw(len(names)) % np.uint64(len(names))).astype(np.int64)
        means[index] = sums[drawn].sum() / counts[drawn].sum()
    means.sort()
    cut = round(RESAMPLES * (1 - LEVEL) / 2)
    return {"mean": mean, "interval": [float(means[cut]), float(means[-1 - cut])]}
