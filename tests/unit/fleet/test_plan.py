"""Plans: their times, their one file form, and everything that is no plan."""

import json

import pytest

from pp4.errors import Code, Pp4Error
from pp4.fleet.plan import read_plan
from pp4.receipts.canonical import dump
from tests.unit.fleet.fleets import plan, uuids


def test_one_after_another_each_pair_has_its_minutes():
    made = plan(8, 3, minutes=10)
    big, small = made.nodes
    assert [made.round_minutes(pairs) for pairs in big.rounds] == [40] * 7
    assert (made.node_minutes(big), made.node_minutes(small)) == (280, 30)
    assert made.total_minutes == 280
    assert made.batches(big)[:2] == ((big.pairs[0],), (big.pairs[1],))


def test_together_each_round_has_them():
    made = plan(8, minutes=10, together=True)
    (node,) = made.nodes
    assert [made.round_minutes(pairs) for pairs in node.rounds] == [10] * 7
    assert made.total_minutes == 70
    assert made.batches(node) == node.rounds


def test_a_plan_is_read_as_it_was_written(tmp_path):
    made = plan(8, 5, mode="quick", together=True)
    file = tmp_path / "plan.json"
    file.write_bytes(made.raw())
    assert read_plan(file) == made
    assert dump(json.loads(made.raw())) == made.raw()


def test_quick_says_what_it_leaves_out():
    assert any("20 pairs are not run" in note for note in plan(8, mode="quick").notes)
    assert not any("not run" in note for note in plan(8).notes)
    assert any("rehearsed" in note for note in plan(8, known=False).notes)
    assert not any("rehearsed" in note for note in plan(8).notes)


def changed(change):
    tree = json.loads(plan(4, 4).raw())
    change(tree)
    return dump(tree)


def _first_round(pairs):
    return lambda tree: tree["nodes"][0]["rounds"].__setitem__(0, pairs)


WRONG = {
    "another schema": (lambda t: t.update(schema="pp4-fleet-plan/2"), Code.UNKNOWN_VERSION),
    "no schema": (lambda t: t.pop("schema"), Code.UNKNOWN_VERSION),
    "an unknown member": (lambda t: t.update(partition="gpu"), Code.SCHEMA),
    "no nodes": (lambda t: t.update(nodes=[]), Code.SCHEMA),
    "a name that a shell reads": (lambda t: t["nodes"][0].update(name="n;id"), Code.SCHEMA),
    "a name with a line end": (lambda t: t["nodes"][0].update(name="n\n"), Code.SCHEMA),
    "a name that leads out": (lambda t: t["nodes"][0].update(name="../n"), Code.SCHEMA),
    "a digit of another script": (lambda t: t["nodes"][0].update(name="n\u0661"), Code.SCHEMA),
    "a UUID that a shell reads": (
        lambda t: t["nodes"][0]["uuids"].__setitem__(0, "$(id)"),
        Code.SCHEMA,
    ),
    "too few UUIDs": (lambda t: t["nodes"][0]["uuids"].pop(), Code.SCHEMA),
    "a node twice": (lambda t: t["nodes"][1].update(name="n1"), Code.SCHEMA),
    "a GPU in two nodes": (
        lambda t: t["nodes"][1].update(uuids=list(uuids(4))),
        Code.SCHEMA,
    ),
    "a GPU with itself": (_first_round([[1, 1]]), Code.SCHEMA),
    "a pair the other way round": (_first_round([[1, 0], [2, 3]]), Code.SCHEMA),
    "a GPU twice in a round": (
        lambda t: t["nodes"][0].update(rounds=[[[0, 1], [0, 2]]]),
        Code.SCHEMA,
    ),
    "a GPU that is not there": (_first_round([[0, 4]]), Code.SCHEMA),
    "a negative GPU": (_first_round([[-1, 0]]), Code.SCHEMA),
    "a round of nobody": (_first_round([]), Code.SCHEMA),
    "a pair twice": (
        lambda t: t["nodes"][0]["rounds"].append(t["nodes"][0]["rounds"][0]),
        Code.SCHEMA,
    ),
    "no time": (lambda t: t.update(minutes=0), Code.SCHEMA),
    "more time than a HOLD has": (lambda t: t.update(minutes=91), Code.SCHEMA),
    "minutes as text": (lambda t: t.update(minutes="15"), Code.SCHEMA),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_plan_is_refused(name, tmp_path):
    change, code = WRONG[name]
    file = tmp_path / "plan.json"
    file.write_bytes(changed(change))
    with pytest.raises(Pp4Error) as caught:
        read_plan(file)
    assert caught.value.refusal.code is code
    assert "\n" not in caught.value.refusal.found


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.NOT_JSON),
        (b"[]", Code.UNKNOWN_VERSION),
        (plan(4).raw() + b"\n", Code.NOT_CANONICAL),
        (plan(4).raw().replace(b'"minutes":15', b'"minutes":15,"minutes":15'), Code.DUPLICATE_KEY),
    ],
    ids=["empty", "a list", "a line end", "a member twice"],
)
def test_a_file_that_is_spelled_otherwise_is_refused(raw, code, tmp_path):
    file = tmp_path / "plan.json"
    file.write_bytes(raw)
    with pytest.raises(Pp4Error) as caught:
        read_plan(file)
    assert caught.value.refusal.code is code
