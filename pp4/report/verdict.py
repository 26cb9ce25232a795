"""What a comparison comes to, in words and as numbers: the first thing that a reader sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pp4.receipts.runs import Measurement, Summary
from pp4.report.assembled import Comparison
from pp4.report.words import interval, percent

CONTROLLED: Final = (
    "A controlled comparison in one common pp4 runtime at fixed depth 5; it claims nothing about a "
    "production server."
)
_WHY_NOT: Final = {
    "failed_rounds_grew": "failed rounds grew over the baseline",
    "memory_grew": "memory grew past its allowance",
    "partial": "it was cut before its end",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict.

    Attributes:
        word: of the summary, or ``NO VERDICT``.
        sentence: what it says about ON.
        because: the rule by which the word was chosen, with its numbers.
        effect: ln(ON/OFF) of the primary endpoint; this and the next are None without a summary.
        low: lower end of its 95 % interval.
        high: upper end.
        drift: the half A1B1 minus the half B2A2.
        noise: the threshold, as a ratio: 0.01 is 1 %.
        endpoint: what was declared beforehand.
    """

    word: str
    sentence: str
    because: str
    effect: float | None
    low: float | None
    high: float | None
    drift: float | None
    noise: float
    endpoint: str

    @property
    def figures(self) -> str:
        """Effect with interval and drift on one line; empty without a summary."""
        if self.effect is None or self.low is None or self.high is None or self.drift is None:
            return ""
        return (
            f"{percent(self.effect)}, 95 % interval {interval(self.low, self.high)}, "
            f"drift {percent(self.drift)}"
        )


def verdict_of(comparison: Comparison) -> Verdict:
    """Say what a comparison comes to."""
    last = comparison.halves[-1].receipt
    noise = float(last.noise_threshold)
    endpoint = (
        f"tokens per second at T = {last.endpoint.temperature}, batch {last.endpoint.batch}, "
        "declared beforehand"
    )
    summary = comparison.summary
    if summary is None:
        sentence, because = _no_verdict(comparison)
        return Verdict("NO VERDICT", sentence, because, None, None, None, None, noise, endpoint)
    effect, drift = float(summary.effect), float(summary.drift)
    low, high = float(summary.interval_low), float(summary.interval_high)
    sentence = _sentence(summary.verdict, effect, noise)
    because = _because(summary, noise)
    return Verdict(summary.verdict, sentence, because, effect, low, high, drift, noise, endpoint)


def _no_verdict(comparison: Comparison) -> tuple[str, str]:
    for half in comparison.halves:
        if not half.receipt.complete:
            return f"The half {half.receipt.half} is not complete.", _cut(half.receipt)
    halves = [half.receipt.half for half in comparison.halves]
    if len(halves) == 2:
        return (
            "The second half states no summary.",
            "its receipt has none; pp4 measure summary computes one from both halves",
        )
    other = "B2A2" if halves == ["A1B1"] else "A1B1"
    return (
        f"This is one half of two: {halves[0]}.",
        f"one half cannot tell an effect from a drift; the half {other} was not given",
    )


def _cut(receipt: Measurement) -> str:
    reasons = [
        f"arm {arm.arm}: {_WHY_NOT[arm.verdict]}"
        for arm in receipt.arms
        if arm.verdict != "complete"
    ]
    return "; ".join(reasons) or f"{len(receipt.arms)} of 2 arms were measured"


def _sentence(word: str, effect: float, noise: float) -> str:
    size = percent(abs(effect)).lstrip("+")
    if word == "FASTER":
        return f"ON gives {size} more tokens per second than OFF."
    if word == "SLOWER":
        fewer = percent(effect).lstrip("-")
        return f"ON gives {fewer} fewer tokens per second than OFF."
    if word == "SAME":
        return f"ON and OFF give the same number of tokens per second, within {100 * noise:g} %."
    return "Whether ON is faster or slower than OFF is not decided."


def _because(summary: Summary, noise: float) -> str:
    effect, drift = abs(float(summary.effect)), abs(float(summary.drift))
    within = f"the noise threshold of {100 * noise:g} %"
    if summary.verdict in ("FASTER", "SLOWER"):
        return f"the whole interval lies outside of {within}"
    if summary.verdict == "SAME":
        return f"the whole interval lies inside of {within}"
    if drift >= max(effect, noise):
        return (
            f"the drift between the HOLDs, {percent(float(summary.drift))}, is at least as large "
            "as the effect and the noise threshold"
        )
    return f"the interval reaches across {within}"
