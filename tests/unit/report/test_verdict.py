"""The first sentence, for every way in which a comparison can end."""

import pytest

from pp4.receipts.models import read_model
from pp4.receipts.runs import Summary
from pp4.report.assembled import Comparison, Half
from pp4.report.given import Given
from pp4.report.plots import verdict as verdict_plot
from pp4.report.verdict import verdict_of
from tests.unit.report.measured import made


def comparison(*names, summary=None):
    halves = []
    for name in names:
        receipt = read_model(made().files[name], name)
        if name == "B2A2":
            receipt = receipt.model_copy(update={"summary": summary})
        halves.append(Half(Given(name, "0" * 64, receipt, (), ()), receipt))
    return Comparison(tuple(halves), ())


def of(verdict, effect, low, high, drift):
    summary = Summary(
        verdict=verdict, effect=effect, interval_low=low, interval_high=high, drift=drift
    )
    return verdict_of(comparison("A1B1", "B2A2", summary=summary))


WORDS = {
    "faster": (
        ("FASTER", "0.048000", "0.042000", "0.054000", "0.001000"),
        "ON gives 4.9 % more tokens per second than OFF.",
        "the whole interval lies outside of the noise threshold of 1 %",
    ),
    "slower": (
        ("SLOWER", "-0.048000", "-0.054000", "-0.042000", "0.001000"),
        "ON gives 4.7 % fewer tokens per second than OFF.",
        "the whole interval lies outside of the noise threshold of 1 %",
    ),
    "same": (
        ("SAME", "0.001000", "-0.004000", "0.006000", "0.001000"),
        "ON and OFF give the same number of tokens per second, within 1 %.",
        "the whole interval lies inside of the noise threshold of 1 %",
    ),
    "drifted": (
        ("UNDECIDED", "0.012000", "0.011000", "0.013000", "-0.020000"),
        "Whether ON is faster or slower than OFF is not decided.",
        "the drift between the HOLDs, -2.0 %, is at least as large as the effect and the noise "
        "threshold",
    ),
    "wide, with a drift below the noise": (
        ("UNDECIDED", "0.004000", "-0.020000", "0.030000", "0.006000"),
        "Whether ON is faster or slower than OFF is not decided.",
        "the interval reaches across the noise threshold of 1 %",
    ),
    "wide": (
        ("UNDECIDED", "0.012000", "0.004000", "0.020000", "0.001000"),
        "Whether ON is faster or slower than OFF is not decided.",
        "the interval reaches across the noise threshold of 1 %",
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_each_verdict_in_words(name):
    numbers, sentence, because = WORDS[name]
    verdict = of(*numbers)
    assert (verdict.word, verdict.sentence, verdict.because) == (numbers[0], sentence, because)


def test_the_figures_are_percentages_of_the_ratio_and_not_of_its_logarithm():
    verdict = of("FASTER", "0.100000", "0.090000", "0.110000", "-0.010000")
    assert verdict.figures == "+10.5 %, 95 % interval +9.4 % to +11.6 %, drift -1.0 %"


def test_numbers_that_no_machine_has_are_told_and_drawn():
    verdict = of("FASTER", "1000000", "900000", "999999999999999999", "-999999999999999999")
    assert verdict.figures.startswith("more than +810,208 %, 95 % interval more than")
    assert verdict.figures.endswith("drift -100.0 %")
    assert verdict_plot.draw("verdict", verdict) is not None


@pytest.mark.parametrize(("name", "other"), [("A1B1", "B2A2"), ("B2A2", "A1B1")])
def test_one_half_without_a_summary_has_no_verdict(name, other):
    verdict = verdict_of(comparison(name))
    assert verdict.word == "NO VERDICT"
    assert verdict.sentence == f"This is one half of two: {name}."
    assert other in verdict.because
    assert verdict.figures == ""


def test_two_halves_without_a_summary_name_the_command_that_makes_it():
    verdict = verdict_of(comparison("A1B1", "B2A2"))
    assert verdict.word == "NO VERDICT"
    assert "pp4 measure summary" in verdict.because
