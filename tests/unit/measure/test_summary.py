"""From two receipts to the summary, and which receipts have none."""

import subprocess
import sys

import pytest

from pp4.errors import Code, RefusedError, WrongError
from pp4.measure import summary
from pp4.measure.summary import require_same_summary, require_statistics, summarise
from pp4.receipts.build import build
from pp4.receipts.runs import Endpoint
from tests.unit.measure import made

PERCENT = made.BASE_NS // 100
WOBBLE = (0, 3, -2, 5, -4, 1, -3)
"""In thousandths of a percent: what neighbouring rounds differ by."""


def slower(**more):
    """Nanoseconds of each arm in percent, and a little more or less by round."""

    def slowed(arm, number):
        shift = WOBBLE[(number * 3 + len(arm) + ord(arm[0])) % len(WOBBLE)]
        return round(more.get(arm, 0) * PERCENT) + shift * PERCENT // 1000

    return slowed


@pytest.mark.parametrize(
    ("arms", "verdict"),
    [
        ({}, "SAME"),
        ({"A1": 3, "A2": 3}, "FASTER"),
        ({"B1": 3, "B2": 3}, "SLOWER"),
        # the second arm of each HOLD is slower: a bias of position
        ({"B1": 3, "A2": 3}, "UNDECIDED"),
        # in one HOLD alone
        ({"B1": 3}, "UNDECIDED"),
    ],
)
def test_the_verdict_follows_from_the_rounds(arms, verdict):
    found = summarise(*made.halves(slowed=slower(**arms)))
    assert found.verdict == verdict


def test_effect_and_drift_are_what_was_put_in():
    # ln(1.03) = 0.029559 in both halves
    def slowed(arm, number):
        return {"A1": 3, "A2": 3}.get(arm, 0) * PERCENT

    found = summarise(*made.halves(slowed=slowed))
    assert (found.effect, found.drift) == ("0.029559", "0.000000")
    assert (found.interval_low, found.interval_high) == ("0.029559", "0.029559")

    def biased(arm, number):
        return PERCENT if arm in ("B1", "A2") else 0

    found = summarise(*made.halves(slowed=biased))
    # half A1B1 is ON slower, half B2A2 is ON faster: 2 ln(1.01) between them
    assert (found.effect, found.drift, found.verdict) == ("0.000000", "-0.019901", "UNDECIDED")


def test_numbers_are_text_with_six_digits_and_go_into_a_receipt():
    first, second, sha256 = made.halves(slowed=slower(A1=3, A2=3))
    found = summarise(first, second, sha256)
    for text in (found.effect, found.interval_low, found.interval_high, found.drift):
        assert len(text.partition(".")[2]) == 6
    body = made.tree(second.model_dump_json(by_alias=True))
    whole = made.model(build({**body, "summary": found.model_dump()}))
    assert require_same_summary(first, whole, sha256) == found
    narrower = {**found.model_dump(), "interval_low": found.effect}
    other = made.model(build({**body, "summary": narrower}))
    with pytest.raises(WrongError) as caught:
        require_same_summary(first, other, sha256)
    assert caught.value.refusal.code is Code.CROSS_CHECK
    assert found.interval_low in caught.value.refusal.expected
    with pytest.raises(RefusedError) as missing:
        require_same_summary(first, second, sha256)
    assert missing.value.refusal.code is Code.INCOMPLETE


def cut(body):
    body["complete"] = False
    body["arms"][1]["verdict"] = "partial"


def refused(first, second, sha256):
    with pytest.raises((RefusedError, WrongError)) as caught:
        summarise(first, second, sha256)
    refusal = caught.value.refusal
    assert refusal.expected != refusal.found
    return refusal


def changed(half, **members):
    """A model as no builder would make it."""
    return half.model_copy(update=members)


def test_halves_are_not_combined_the_wrong_way_round():
    first, second, sha256 = made.halves()
    assert refused(second, first, sha256).code is Code.WRONG_ROLE
    assert refused(first, first, sha256).code is Code.WRONG_ROLE
    assert refused(second, second, sha256).code is Code.WRONG_ROLE


def test_a_half_that_was_cut_is_not_combined():
    assert refused(*made.halves(change=cut)).code is Code.NOT_PROVEN
    first, second, sha256 = made.halves(change_first=cut)
    assert refused(first, second, sha256).code is Code.NOT_PROVEN


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda b: b.update(model_sha256="0" * 64), "same-model-sha256"),
        (lambda b: b["settings"].update(seed=2), "same-settings"),
        (lambda b: [gpu.update(name="H100") for gpu in b["gpus"]], "same-gpu-models"),
        (lambda b: b["gpus"].reverse() or _ranks(b), "same-pair"),
        (lambda b: b["evidence"][0].update(sha256="0" * 64), "rests-on-first"),
    ],
)
def test_halves_that_differ_are_not_combined(change, where):
    refusal = refused(*made.halves(change=change))
    assert refusal.code is Code.EVIDENCE_MISMATCH
    assert refusal.where == f"measure summary, {where}"


def _ranks(body):
    for rank, gpu in enumerate(body["gpus"]):
        gpu["rank"] = rank


def test_another_source_is_not_combined():
    first, second, sha256 = made.halves()
    other = changed(second, source=changed(second.source, digest="0" * 64))
    assert refused(first, other, sha256).where == "measure summary, same-source"


@pytest.mark.parametrize(
    "members",
    [
        {"noise_threshold": "0.02"},
        {"endpoint": Endpoint(metric="tokens_per_second", temperature="0", batch=8)},
    ],
)
def test_another_endpoint_is_not_combined(members):
    first, second, sha256 = made.halves()
    refusal = refused(first, changed(second, **members), sha256)
    assert (refusal.code, refusal.where) == (
        Code.EVIDENCE_MISMATCH,
        "measure summary, same-endpoint",
    )


@pytest.mark.parametrize("state", ["failed", "not_run"])
def test_a_first_hold_that_was_not_restored_is_not_combined(state):
    first, second, sha256 = made.halves()
    closed = changed(second.first_half_closed, restore=state)
    other = changed(second, first_half_closed=closed)
    assert refused(first, other, sha256).code is Code.NOT_RESTORED


def test_wrong_answers_are_no_measurement():
    def change(body):
        for arm in body["arms"]:
            for one in arm["rounds"]:
                one["outputs_sha256"] = "0" * 64

    first, second, sha256 = made.halves(change=change)
    with pytest.raises(WrongError) as caught:
        summarise(first, second, sha256)
    assert caught.value.refusal.code is Code.OUTPUT_MISMATCH


def test_a_half_that_contradicts_itself_is_not_combined():
    first, second, sha256 = made.halves()
    arms = (second.arms[0], changed(second.arms[1], rounds=second.arms[1].rounds[:-1]))
    assert refused(first, changed(second, arms=arms), sha256).code is Code.CROSS_CHECK


def test_too_few_rounds_have_no_summary():
    refusal = refused(*made.halves(primary=23))
    assert refusal.code is Code.NOT_PROVEN
    assert (refusal.expected.split(" paired")[0], refusal.found) == ("at least 24", "23")


def test_numpy_is_loaded_by_nothing_but_the_bootstrap():
    code = (
        "import sys, pp4.measure.summary, pp4.measure.describing, pp4.receipts.verify;"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_numpy_it_is_refused_with_the_command_that_brings_it(monkeypatch):
    require_statistics("pp4 measure B2A2")
    monkeypatch.setattr(summary, "find_spec", lambda name: None)
    with pytest.raises(RefusedError) as caught:
        require_statistics("pp4 measure B2A2")
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where) == (Code.MISSING_PACKAGE, "pp4 measure B2A2")
    assert refusal.next == "pip install 'pp4[measure]'"
