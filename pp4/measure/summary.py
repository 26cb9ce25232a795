"""What both halves say together, from their stored rounds alone."""

from __future__ import annotations

from decimal import Decimal
from importlib.util import find_spec

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.measure.declared import LEAST_ROUNDS
from pp4.receipts.checks import Check, Status
from pp4.receipts.halves import belong_together, primary_ratios
from pp4.receipts.measurement_checks import measurement_checks
from pp4.receipts.ratios import NOISE, drift_of, effect_of, spelled, verdict_of
from pp4.receipts.runs import Measurement, Summary

_WHERE = "measure summary"


def require_statistics(command: str) -> None:
    """Refuse before anything else what would lack its statistics at the end.

    Raises:
        RefusedError: ``MISSING_PACKAGE``.
    """
    if find_spec("numpy") is None:
        again = "pip install 'pp4[measure]'"
        expected = "numpy (the extra pp4[measure])"
        raise RefusedError(
            Refusal(
                Code.MISSING_PACKAGE, command, expected, "no numpy", "pyproject.toml", next=again
            )
        )


def summarise(first: Measurement, second: Measurement, first_sha256: str) -> Summary:
    """Return the summary of two halves; equal rounds give equal digits.

    Args:
        first: the half A1B1, verified.
        second: the half B2A2; it need not have its summary yet.
        first_sha256: of the file that holds the first.

    Raises:
        RefusedError: the halves may not be combined: ``WRONG_ROLE``, they are no A1B1 and B2A2;
            ``NOT_PROVEN``, one is not complete or has too few rounds; ``EVIDENCE_MISMATCH``, they
            differ in what they must share, or the second rests on another first;
            ``NOT_RESTORED``, the first HOLD was not; ``CROSS_CHECK``, one contradicts itself.
        WrongError: ``OUTPUT_MISMATCH``, greedy outputs differ.
    """
    _require(belong_together(first, second, first_sha256))
    _require([*measurement_checks(first), *measurement_checks(second)])
    halves = primary_ratios([first, second])
    fewest = min(map(len, halves))
    if fewest < LEAST_ROUNDS:
        expected = f"at least {LEAST_ROUNDS} paired rounds of the primary cell in each HOLD"
        raise RefusedError(Refusal(Code.NOT_PROVEN, _WHERE, expected, str(fewest)))
    # It brings numpy with it, which is not part of the base.
    from pp4.measure.statistics import bounds

    low, high = bounds(halves)
    effect, drift = spelled(effect_of(halves)), spelled(drift_of(halves))
    return Summary(
        verdict=verdict_of(Decimal(effect), Decimal(low), Decimal(high), Decimal(drift), NOISE),
        effect=effect,
        interval_low=low,
        interval_high=high,
        drift=drift,
    )


def require_same_summary(first: Measurement, second: Measurement, first_sha256: str) -> Summary:
    """Compute the summary anew, and return it where it is the one that the second half states.

    Raises:
        RefusedError: as :func:`summarise`; ``INCOMPLETE``: the second half has none.
        WrongError: ``CROSS_CHECK``, it states another one.
    """
    found = second.summary
    if found is None:
        expected = "a second half with its summary"
        raise RefusedError(Refusal(Code.INCOMPLETE, _WHERE, expected, "none"))
    computed = summarise(first, second, first_sha256)
    if computed != found:
        raise WrongError(Refusal(Code.CROSS_CHECK, _WHERE, _text(computed), _text(found)))
    return computed


def _text(summary: Summary) -> str:
    return (
        f"{summary.verdict}, effect {summary.effect}, "
        f"interval {summary.interval_low} to {summary.interval_high}, drift {summary.drift}"
    )


def _require(checks: list[Check]) -> None:
    for check in checks:
        if check.status is Status.FAIL:
            kind = WrongError if check.code is Code.OUTPUT_MISMATCH else RefusedError
            where = f"{_WHERE}, {check.name}"
            raise kind(Refusal(check.code, where, check.expected, check.found))
