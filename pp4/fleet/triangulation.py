"""Who is suspect, by which pairs of a node passed and which failed; pure, no files.

A pair holds two GPUs and the way between them, so a failed pair alone accuses three.  A pair that
passed clears both of its GPUs: what still fails between cleared GPUs is the way between them, and
what fails with cleared GPUs only is the GPU.  Nothing is said beyond that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal

from pp4.errors import BadInputError
from pp4.fleet.rounds import Pair

ALL: Final = Fraction(1)
"""The share of failed pairs that makes a GPU suspect which has passed with nobody."""
LEAST_FAILED: Final = 2
"""Pairs with cleared GPUs that have to fail before a GPU is suspect: one may be the way alone."""
LEAST_JUDGED: Final = 3
"""Pairs with cleared GPUs, before a share of them counts."""
Kind = Literal["node", "gpu", "pair", "undecided"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """What failed pairs point at.

    Attributes:
        kind: the whole node; one GPU; the way between two GPUs that are cleared; or a failed pair
            of which nothing tells whether it, or which of its GPUs, is at fault.
        gpus: numbers of the GPUs that it is about: none for a node, two for a pair.  Of an
            undecided pair, those that are not cleared.
        pairs: the failed pairs that it explains.
        why: the evidence in words.
    """

    kind: Kind
    gpus: tuple[int, ...]
    pairs: tuple[Pair, ...]
    why: str


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What was judged, looked at from each GPU."""

    passed: frozenset[Pair]
    failed: frozenset[Pair]

    def partners(self, gpu: int, pairs: Iterable[Pair]) -> list[int]:
        return sorted(sum(pair) - gpu for pair in pairs if gpu in pair)

    @property
    def cleared(self) -> frozenset[int]:
        return frozenset(gpu for pair in self.passed for gpu in pair)


def triangulate(verdicts: Mapping[Pair, bool | None], share: Fraction = ALL) -> list[Suspect]:
    """Name what the failed pairs of one node point at.

    Args:
        verdicts: of every planned pair: passed, failed, or None where nothing is known.
        share: of a GPU's pairs with cleared GPUs that are not suspect; one that fails at least so
            many, and has passed with some, is suspect too.  At 1 only one that passed with nobody.

    Returns:
        Suspects, GPUs first, then pairs, then what is undecided; each failed pair is explained by
        one of them at least.  None where nothing failed.

    Raises:
        BadInputError: a share that is no more than a half, or more than all.
    """
    if not Fraction(1, 2) < share <= 1:
        raise BadInputError.of("share", "more than 1/2, at most 1", str(share))
    evidence = _Evidence(
        frozenset(pair for pair, passed in verdicts.items() if passed is True),
        frozenset(pair for pair, passed in verdicts.items() if passed is False),
    )
    if evidence.failed and len(evidence.failed) == len(verdicts):
        return [_node(evidence)]
    gpus = _silent(evidence)
    gpus |= _frequent(evidence, gpus, share)
    named = [_gpu(evidence, gpu) for gpu in sorted(gpus)]
    left = sorted(pair for pair in evidence.failed if not gpus & set(pair))
    pairs = [_pair(evidence, pair) for pair in left]
    return [*named, *sorted(pairs, key=lambda one: one.kind)]


def _silent(evidence: _Evidence) -> frozenset[int]:
    """GPUs that passed with nobody, and failed with several that passed with others."""
    seen = {gpu for pair in evidence.failed for gpu in pair} - evidence.cleared
    return frozenset(
        gpu
        for gpu in seen
        if len(evidence.cleared.intersection(evidence.partners(gpu, evidence.failed)))
        >= LEAST_FAILED
    )


def _frequent(evidence: _Evidence, silent: frozenset[int], share: Fraction) -> frozenset[int]:
    """GPUs that passed with some, and failed with at least a share of the cleared ones.

    A partner that passed with nobody may be at fault itself, and does not count.  The GPU that
    failed most goes first: what it explains does not count against its partners.
    """
    found = silent
    while True:
        shares: dict[int, Fraction] = {}
        sound = evidence.cleared - found
        for gpu in sound:
            bad = sound.intersection(evidence.partners(gpu, evidence.failed))
            good = sound.intersection(evidence.partners(gpu, evidence.passed))
            if len(bad) >= LEAST_FAILED and len(bad) + len(good) >= LEAST_JUDGED:
                shares[gpu] = Fraction(len(bad), len(bad) + len(good))
        worst = max(shares.values(), default=Fraction(0))
        if worst < share:
            return found - silent
        found |= {min(gpu for gpu, one in shares.items() if one == worst)}


def _node(evidence: _Evidence) -> Suspect:
    pairs = tuple(sorted(evidence.failed))
    if len(pairs) == 1:
        why = "its only pair failed: the way between the GPUs, either of them, or the node"
    else:
        why = f"all of its {len(pairs)} pairs failed, so no GPU is cleared"
    return Suspect("node", (), pairs, why)


def _gpu(evidence: _Evidence, gpu: int) -> Suspect:
    pairs = tuple(sorted(pair for pair in evidence.failed if gpu in pair))
    cleared = evidence.cleared.intersection(evidence.partners(gpu, pairs))
    good = len(evidence.partners(gpu, evidence.passed))
    why = (
        f"failed {len(pairs)} of {len(pairs) + good} pairs that were judged; "
        f"{len(cleared)} of the partners passed with others"
    )
    return Suspect("gpu", (gpu,), pairs, why)


def _pair(evidence: _Evidence, pair: Pair) -> Suspect:
    open_ = tuple(gpu for gpu in pair if gpu not in evidence.cleared)
    if not open_:
        return Suspect("pair", pair, (pair,), "failed, while both GPUs passed with others")
    named = " or ".join(f"GPU {gpu}" for gpu in open_)
    why = f"too little evidence: the way between the GPUs, or {named}, which passed with nobody"
    return Suspect("undecided", open_, (pair,), why)
