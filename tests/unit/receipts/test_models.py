"""Models: strict, frozen, closed; the published schemas say the same."""

import json
from pathlib import Path

import pydantic
import pytest

from pp4.errors import Code, RefusedError
from pp4.receipts.canonical import dump
from pp4.receipts.envelope import SCHEMA
from pp4.receipts.models import KINDS, MODELS, read_model, schemas
from pp4.receipts.publish import publish
from pp4.receipts.verify import verify_bytes
from tests.unit.receipts import samples

PUBLISHED = Path(__file__).parents[3] / "schemas"


def changed(kind, change):
    tree = json.loads(samples.sample(kind))
    change(tree)
    return dump(tree)


def code_of(raw):
    with pytest.raises(RefusedError) as caught:
        read_model(raw, "here")
    return caught.value.refusal


def test_there_are_nine_kinds_and_a_sample_of_each():
    assert len(KINDS) == 9
    assert set(MODELS) == set(KINDS) == set(samples.KINDS)


@pytest.mark.parametrize("kind", samples.KINDS)
def test_a_sample_is_of_its_kind_and_reads_back(kind):
    raw = samples.sample(kind)
    model = read_model(raw, "here")
    assert type(model) is MODELS[kind]
    assert json.loads(raw) == model.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("kind", samples.KINDS)
def test_models_are_frozen(kind):
    model = read_model(samples.sample(kind), "here")
    with pytest.raises(pydantic.ValidationError):
        model.digest = "0" * 64


@pytest.mark.parametrize("kind", samples.KINDS)
def test_an_unknown_member_is_refused(kind):
    refusal = code_of(changed(kind, lambda tree: tree.update(note="x")))
    assert refusal.code is Code.SCHEMA
    assert "note" in refusal.found


@pytest.mark.parametrize("kind", samples.KINDS)
@pytest.mark.parametrize(
    "member", ["schema", "made_at", "tool", "source", "limits", "evidence", "private", "digest"]
)
def test_every_member_of_the_envelope_is_required(kind, member):
    tree = json.loads(samples.sample(kind))
    del tree[member]
    assert member in code_of(json.dumps(tree).encode()).found


@pytest.mark.parametrize("kind", samples.KINDS)
def test_limits_cannot_be_empty(kind):
    assert "limits" in code_of(changed(kind, lambda tree: tree.update(limits=[]))).found


def set_at(tree, path, value):
    *parents, last = path
    for name in parents:
        tree = tree[name]
    tree[last] = value


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("rehearsal", ("hardware_executed",), True),
        ("rehearsal", ("verdict",), "qualified"),
        ("rehearsal", ("scope",), "solo"),
        ("qualification", ("hardware_executed",), False),
        ("qualification", ("verdict",), "rehearsed"),
        ("solo", ("hardware_executed",), False),
        ("rehearsal", ("gates", 0, "arms", 0, "repetitions"), "3"),
        ("rehearsal", ("gates", 0, "arms", 0, "repetitions"), -1),
        ("rehearsal", ("gates", 0, "arms", 0, "gating"), 1),
        ("rehearsal", ("gates", 0, "arms", 0, "found"), "caught()"),
        ("rehearsal", ("gates", 0, "arms", 0, "found"), "pass\n"),
        ("rehearsal", ("gates", 0, "arms", 0, "expected"), "failed(LEAK)"),
        ("rehearsal", ("gates", 0, "arms", 0, "elapsed_ns"), 1000),
        ("rehearsal", ("gates", 0, "arms", 0, "elapsed_ns"), "01"),
        ("rehearsal", ("gates", 0, "arms", 0, "elapsed_ns"), "18446744073709551616"),
        ("rehearsal", ("gates", 0, "arms", 0, "facts"), {"x": None}),
        ("rehearsal", ("gates", 0, "arms", 0, "facts"), {"x": {"y": 1}}),
        ("rehearsal", ("gates", 0, "gate"), 8),
        ("rehearsal", ("hold", "fence"), 7),
        ("rehearsal", ("definition", "id"), "dyadic24-floor-first-v2"),
        ("rehearsal", ("made_at",), "2026-02-31T00:00:00Z"),
        ("rehearsal", ("made_at",), "2026-03-01T12:00:00+00:00"),
        ("rehearsal", ("digest",), "A" * 64),
        ("rehearsal", ("source", "files"), []),
        ("rehearsal", ("source", "files", 0, "path"), "/etc/passwd"),
        ("rehearsal", ("tool", "name"), "pp5"),
        ("solo", ("private", "gpu.0.uuid"), {"salt": "ab", "value": "x"}),
        ("solo", ("private", "gpu.0.uuid"), {"value": "x"}),
        ("measurement", ("noise_threshold",), "1e-2"),
        ("measurement", ("controlled",), "production"),
        ("preparation", ("replacements", 0, "matches"), 2),
        ("refusal", ("exit",), 0),
    ],
)
def test_values_outside_the_model_are_refused(kind, path, value):
    refusal = code_of(changed(kind, lambda tree: set_at(tree, path, value)))
    assert refusal.code is Code.SCHEMA
    assert str(path[0]) in refusal.found


def test_a_fraction_is_no_integer_even_if_it_is_whole():
    raw = samples.sample("rehearsal").replace(b'"repetitions":3', b'"repetitions":3.0', 1)
    report = verify_bytes([("r", raw)])
    failed = {check.name: check.code for check in report.failures}
    assert failed == {"canonical-bytes": Code.NOT_CANONICAL, "schema": Code.SCHEMA}


@pytest.mark.parametrize("kind", samples.KINDS)
def test_the_published_schema_is_what_the_model_says(kind):
    # To write them anew: python -m pp4.receipts.publish schemas
    assert (PUBLISHED / f"{kind}.schema.json").read_bytes() == schemas()[kind]


def test_no_schema_is_published_without_a_model(tmp_path):
    names = {path.name for path in publish(tmp_path)}
    assert {path.name for path in PUBLISHED.iterdir()} == names


@pytest.mark.parametrize("kind", samples.KINDS)
def test_the_published_schema_is_closed_and_names_the_version(kind):
    schema = json.loads(schemas()[kind])
    assert schema["additionalProperties"] is False
    assert schema["properties"]["schema"]["const"] == SCHEMA
    assert schema["properties"]["kind"]["const"] == kind
    assert {"limits", "digest", "schema"} <= set(schema["required"])
