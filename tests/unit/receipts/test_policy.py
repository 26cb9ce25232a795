"""What is asked of receipts beyond being intact: kind, source, age; and what a report says."""

import importlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pp4.errors import Code, Exit
from pp4.receipts.build import build
from pp4.receipts.digests import Source, installed_source
from pp4.receipts.verify import Policy, verify, verify_bytes
from tests.unit.receipts import samples

# The package exports a function of the same name, which hides the module.
module = importlib.import_module("pp4.receipts.verify")


def failed(report):
    return {check.name: check for check in report.failures}


def stored(tmp_path, raw, name="r.json"):
    path = tmp_path / name
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("kind", samples.KINDS)
@pytest.mark.parametrize("asked", samples.KINDS)
def test_the_kind_that_was_asked_for(kind, asked):
    report = verify_bytes([("r", samples.sample(kind))], Policy(kind=asked))
    if kind == asked:
        assert report.exit is Exit.DONE
    else:
        assert {c.code for c in report.failures} == {Code.WRONG_KIND}
        assert (failed(report)["kind"].expected, failed(report)["kind"].found) == (asked, kind)
        assert report.exit is Exit.REFUSED


def test_a_wrong_kind_lists_all_kinds_found():
    named = [(kind, samples.sample(kind)) for kind in ("solo", "rehearsal")]
    named.append(("x", b"junk"))
    report = verify_bytes(named, Policy(kind="qualification"))
    assert failed(report)["kind"].found == "solo, rehearsal, unreadable"


def test_a_kind_that_does_not_exist_lists_those_that_do():
    report = verify_bytes([("r", samples.sample("solo"))], Policy(kind="promise"))
    assert failed(report)["kind"].code is Code.UNKNOWN_KIND
    assert "whole_worker" in failed(report)["kind"].expected
    assert report.exit is Exit.REFUSED


OTHER = Source("f" * 64, (("a.py", "0" * 64),))
SAME = Source(samples.SOURCE["digest"], samples.FILES)


def test_without_flags_the_installed_source_is_never_looked_at(monkeypatch):
    monkeypatch.setattr(module, "installed_source", lambda: pytest.fail("source was read"))
    assert verify_bytes([("r", samples.sample("solo"))]).exit is Exit.DONE


def test_current_refuses_another_source_and_says_both_digests():
    report = verify_bytes([("r", samples.sample("solo"))], Policy(current=True, installed=OTHER))
    check = failed(report)["source"]
    assert check.code is Code.HISTORICAL
    assert check.expected == "f" * 64
    assert check.found == f"historical: {samples.SOURCE['digest']}"
    assert report.exit is Exit.REFUSED


def test_current_passes_the_same_source():
    policy = Policy(current=True, installed=SAME)
    assert verify_bytes([("r", samples.sample("solo"))], policy).exit is Exit.DONE


def test_current_compares_with_the_installed_source_by_default():
    body = samples.refusal()
    body["source"] = installed_source().as_dict()
    assert verify_bytes([("r", build(body))], Policy(current=True)).exit is Exit.DONE
    report = verify_bytes([("r", samples.sample("refusal"))], Policy(current=True))
    assert failed(report)["source"].code is Code.HISTORICAL


def test_history_says_historical_without_judging():
    report = verify_bytes([("r", samples.sample("solo"))], Policy(history=True, installed=OTHER))
    assert report.exit is Exit.DONE
    said = next(check for check in report.checks if check.name == "source")
    assert said.status == "skipped"
    assert said.found.startswith("historical: ")


MADE = datetime.fromisoformat(samples.MADE)


@pytest.mark.parametrize(
    ("after", "exit_code"),
    [
        (timedelta(hours=1), Exit.DONE),
        (timedelta(hours=1, seconds=1), Exit.REFUSED),
        (timedelta(minutes=-5), Exit.DONE),
        (timedelta(minutes=-6), Exit.REFUSED),
    ],
)
def test_age(after, exit_code):
    policy = Policy(max_age=timedelta(hours=1), now=MADE + after)
    report = verify_bytes([("r", samples.sample("solo"))], policy)
    assert report.exit is exit_code
    assert {check.code for check in report.failures} <= {Code.TOO_OLD}


def test_a_receipt_without_a_date_has_no_age_to_trust():
    policy = Policy(max_age=timedelta(days=10**5), now=datetime.now(UTC))
    report = verify_bytes([("r", samples.sample("preparation"))], policy)
    assert failed(report)["age"].found == "no date"


@pytest.mark.parametrize("kind", samples.KINDS)
def test_a_report_says_what_is_shown_and_what_is_not(tmp_path, kind):
    path = stored(tmp_path, samples.sample(kind))
    file = verify([path]).files[0]
    assert len(file.shows) == 1
    assert "nothing but an example" in file.does_not_show
    assert "unsigned: integrity, not authorship" in file.does_not_show


def test_a_rehearsal_says_that_no_gpu_took_part():
    file = verify_bytes([("r", samples.sample("rehearsal"))]).files[0]
    assert "nothing was executed on a GPU" in file.shows[0]


def test_as_dict_is_json_and_complete(tmp_path):
    path = stored(tmp_path, samples.sample("solo") + b" ")
    report = verify([path], Policy(kind="rehearsal"))
    told = json.loads(json.dumps(report.as_dict()))
    assert told["exit"] == 1
    assert told["files"][0]["file"] == str(path)
    names = [check["name"] for check in told["files"][0]["checks"] + told["overall"]]
    assert names == [check.name for check in report.checks]
    for check in told["files"][0]["checks"]:
        assert set(check) == {"name", "status", "code", "expected", "found", "file"}


def test_a_skipped_check_says_why():
    report = verify_bytes([("r", samples.sample("solo"))])
    quiet = [check for check in report.checks if check.status == "skipped"]
    assert {check.name for check in quiet} == {"age", "source", "signature"}
    assert all(check.found for check in quiet)


def test_policies_do_not_change(tmp_path):
    policy = Policy(kind="solo")
    assert replace(policy, kind=None) == Policy()
    with pytest.raises(AttributeError):
        policy.kind = "x"
