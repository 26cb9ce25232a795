"""The builder: fills in, seals, reads back, and builds no receipt that contradicts itself."""

import json
import re

import pytest

from pp4 import __version__
from pp4.errors import Code, RefusedError
from pp4.receipts.build import build
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples


def refusal_of(body):
    with pytest.raises(RefusedError) as caught:
        build(body)
    return caught.value.refusal


def test_it_fills_in_what_a_caller_need_not_know():
    body = samples.refusal()
    del body["made_at"]
    tree = json.loads(build(body))
    assert tree["schema"] == "pp4-receipt/1"
    assert tree["tool"] == {"name": "pp4", "version": __version__}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", tree["made_at"])
    assert tree["evidence"] == []
    assert tree["private"] == {}


def test_optional_members_are_written_out():
    body = samples.rehearsal()
    assert "topology" not in body
    assert json.loads(build(body))["topology"] == {}


def test_equal_bodies_give_equal_bytes():
    assert build(samples.preparation()) == build(samples.preparation())


def test_the_body_is_left_alone():
    body, again = samples.rehearsal(), samples.rehearsal()
    build(body)
    assert body == again


@pytest.mark.parametrize("kind", [None, "promise", 7, ["solo"]])
def test_an_unknown_kind_is_refused(kind):
    assert refusal_of({"kind": kind}).code is Code.UNKNOWN_KIND


def test_a_body_that_does_not_fit_is_refused_with_the_place():
    body = samples.rehearsal()
    del body["scope"]
    refusal = refusal_of(body)
    assert refusal.code is Code.SCHEMA
    assert "scope" in refusal.found


def test_a_body_that_contradicts_itself_is_refused_with_the_check():
    body = samples.rehearsal()
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    samples.with_journal(body)
    refusal = refusal_of(body)
    assert refusal.code is Code.CROSS_CHECK
    assert "verdict" in refusal.where


def test_what_json_cannot_hold_is_refused():
    body = samples.rehearsal()
    body["settings"]["tau"] = float("nan")
    assert refusal_of(body).code is Code.NOT_FINITE
    body["settings"]["tau"] = 0.7
    assert refusal_of(body).code is Code.SCHEMA


@pytest.mark.parametrize("kind", samples.KINDS)
def test_what_is_built_verifies(kind):
    report = verify_bytes([(kind, samples.sample(kind))])
    assert report.failures == ()
    assert report.exit == 0
