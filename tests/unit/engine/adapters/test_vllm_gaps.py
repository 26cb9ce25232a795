"""How far vLLM's rules, as they were read, take the output from the target: counted.

Every figure that pp4.engine.adapters.vllm and docs/adapters.md state is asserted here.
"""

from fractions import Fraction

import numpy as np
import pytest

from pp4.engine.adapters.vllm import V1_GAPS
from pp4.kernels.dyadic24 import TICKETS, allocate
from pp4.verifier.reference import accepts, quantised
from pp4.verifier.units import TICKET_WEIGHT
from tests.unit.engine.adapters.vllm_rules import (
    FP64_BITS,
    UNIFORMS,
    accepting,
    accepting_by_trying,
    bf16,
    distance,
    emitted,
    softmax,
)

PAIRS = 200
EFFECTS = {gap.name: gap.effect for gap in V1_GAPS}


def values(random):
    """32 logits as a drafter has them: BF16, in falling order."""
    return np.sort(bf16(random.normal(0, 3, 32)))[::-1]


def dyadic_target(random, vocabulary):
    """Multiples of 2**-24 that sum to 2**24: FP32 holds them, and pp4's quantising keeps them."""
    counts = np.floor(random.dirichlet(np.full(vocabulary, 0.3)) * TICKETS).astype(np.int64)
    counts[counts.argmax()] += TICKETS - counts.sum()
    return counts


def pairs(vocabulary=64):
    random = np.random.default_rng(1)
    for _ in range(PAIRS):
        tickets = np.zeros(vocabulary, np.int64)
        tickets[random.permutation(vocabulary)[:32]] = allocate(values(random).tolist())
        yield dyadic_target(random, vocabulary), tickets


@pytest.mark.parametrize(
    ("p", "q"), [(0.0, 1.0), (0.1, 0.7), (1 / 3, 2 / 3), (2.0**-24, 1.0), (0.3, 0.3), (0.5, 0.2)]
)
def test_counting_is_trying(p, q):
    assert accepting(p, q) == accepting_by_trying(p, q)


def test_zero_word():
    """A token with p = 0 is accepted by one word of 2**24, or of 2**53; pp4 accepts it by none."""
    for q in (2.0**-24, 0.25, 1.0):
        assert accepting(0.0, q) == accepting(0.0, q, FP64_BITS) == 1
        assert not accepts(0, weight=0, tickets=int(q * TICKETS))
    # a whole step: the drafter proposes token 1, which the target excludes
    out = emitted(np.array([0.5, 0, 0.5], np.float32), [0, TICKETS, 0])
    assert out[1] == Fraction(1, 2**24)
    assert EFFECTS["zero word"].startswith("2**-24 ")
    assert "2**-53 where it is FP64" in EFFECTS["zero word"]


def test_float_ratio():
    """An emitted token's distribution, its residual drawn without error, against the target's."""
    found, finer = [], []
    for counts, tickets in pairs():
        target = [Fraction(int(one), TICKETS) for one in counts]
        p = (counts / TICKETS).astype(np.float32)
        # the target is that of pp4's verifier, so nothing of the distance is quantising
        assert quantised(p).weights == tuple(int(one) * TICKET_WEIGHT for one in counts)
        found.append(distance(emitted(p, tickets), target))
        finer.append(distance(emitted(p, tickets, FP64_BITS), target))
    # pp4 moves a probability by at most 2**-64 a draw
    assert all(0 < one < Fraction(1, 2**23) for one in found)
    assert f"{float(sum(found) / PAIRS):.0e}" == "3e-08"
    assert EFFECTS["float ratio"].startswith("below 2**-23 in total variation for each token, 3e-8")
    # the ratio is rounded all the same
    assert all(0 < one < Fraction(1, 2**24) for one in finer)
    assert f"{float(sum(finer) / PAIRS):.0e}" == "8e-10"
    assert "below 2**-24 and 8e-10 where u is FP64" in EFFECTS["float ratio"]


def test_exact_words_would_have_no_distance():
    """The count above is of the rule: with pp4's own rule and real words the distance is none."""
    for counts, tickets in list(pairs())[:20]:
        left = [max(int(p) - int(q), 0) for p, q in zip(counts, tickets, strict=True)]
        rejected = sum(max(int(q) - int(p), 0) for p, q in zip(counts, tickets, strict=True))
        out = [
            Fraction(min(int(p), int(q)), TICKETS) + Fraction(rejected * rest, TICKETS * sum(left))
            for p, q, rest in zip(counts, tickets, left, strict=True)
        ]
        assert out == [Fraction(int(one), TICKETS) for one in counts]


def test_empty_residual():
    """Where p lies below q everywhere a rejection emits token 0, which the target excludes."""
    tickets = [0, TICKETS // 2, TICKETS // 2]
    below = np.float32(0.5)
    for _ in range(2):
        below = np.nextafter(below, np.float32(0), dtype=np.float32)
    out = emitted(np.array([0, below, 0.5], np.float32), tickets)
    assert out[0] == Fraction(1, 2) * Fraction(1, 2**24)
    # one unit in the last place is not seen by a u of 24 bits, and by one of 53
    once = np.nextafter(np.float32(0.5), np.float32(0), dtype=np.float32)
    assert emitted(np.array([0, once, 0.5], np.float32), tickets)[0] == 0
    finer = emitted(np.array([0, once, 0.5], np.float32), tickets, FP64_BITS)[0]
    assert finer == Fraction(1, 2) * (Fraction(1, 2**24) - Fraction(1, 2**53))
    # pp4 gives what p misses of 1 to its largest: token 0 keeps weight 0 and is never drawn
    assert quantised(np.array([0, below, 0.5], np.float32)).weights[0] == 0
    assert EFFECTS["empty residual"].startswith("q * 2**-24 where p is two units")


def again(logarithm, temperature):
    """q as a verifier has it that divides draft logits by the temperature and takes a softmax."""
    return softmax(logarithm / np.float32(temperature))


def off(shares, q):
    return np.abs(shares.astype(np.float64) - q).sum() / 2


@pytest.mark.parametrize(("temperature", "twice"), [(0.7, "0.10"), (1.5, "0.16")])
def test_why_v2_is_refused(temperature, twice):
    """The logits that V2 keeps: log q as it is, scaled in FP32, and scaled in BF16."""
    random = np.random.default_rng(1)
    plain, raw, scaled, rounded, whole = [], [], [], [], 0
    for _ in range(PAIRS):
        tickets = np.array(allocate(values(random).tolist()))
        q = tickets / TICKETS
        with np.errstate(divide="ignore"):
            logarithm = np.log(q.astype(np.float32))
        up = logarithm * np.float32(temperature)
        plain.append(off(again(logarithm, 1), q))
        raw.append(off(again(logarithm, temperature), q))
        scaled.append(off(again(up, temperature), q))
        rounded.append(off(again(bf16(up), temperature), q))
        for own in (again(up, temperature), again(logarithm, 1)):
            whole += np.array_equal(own.astype(np.float64) * TICKETS, tickets)
    # the request's temperature is applied to q once more
    assert f"{np.mean(raw):.2f}" == twice
    # without a temperature, or with one that is undone beforehand, it is little in FP32 and not in
    # BF16; no row at all is what was drawn from
    assert f"{np.mean(plain):.0e}" == f"{np.mean(scaled):.0e}" == "3e-08"
    assert f"{np.mean(rounded):.0e}" == "6e-04"
    assert whole == 0


def test_all_words_are_counted():
    assert UNIFORMS == TICKETS == 1 << 24
    assert set(EFFECTS) == {
        "zero word", "float ratio", "empty residual", "float residual", "equal at zero",
        "other words", "never run",
    }  # fmt: skip
    uncounted = [name for name, effect in EFFECTS.items() if "counted" not in effect]
    assert uncounted == ["float residual", "equal at zero", "other words", "never run"]
