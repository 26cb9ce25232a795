"""An adapter exists only for a worker that offers what its engine wants, to the last member."""

import copy
import dataclasses
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pp4.engine.adapters.handshake import Agreed, Wanted, agreed_on
from pp4.errors import BadInputError, Code, RefusedError
from pp4.explain import page
from pp4.kernels import dyadic24
from pp4.wire.offers import Offer
from pp4.worker.serving import starting
from tests.unit.engine.adapters.offers import DIGEST, agreed, offer, wanted

WORD = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
SIZE = st.integers(1, 1 << 20)
TAU = st.integers(1, 10**8).map(lambda one: f"{one / 10**4:.4f}".rstrip("0").rstrip("."))
PAIR = st.tuples(SIZE, SIZE)
MEMBERS = {
    "definition": WORD,
    "definition_sha256": WORD,
    "tau": TAU,
    "candidates": SIZE,
    "vocab": SIZE,
    "draft_vocab": SIZE,
    "bounds": st.tuples(PAIR, PAIR),
    "block": SIZE,
}


def refused(want, have):
    with pytest.raises(RefusedError) as caught:
        agreed_on(want, have)
    found = caught.value.refusal
    assert found.code is Code.ABI_MISMATCH
    return found


def changed(**changes):
    """An offer that differs in just that, whatever it would take to be sensible."""
    return offer().model_copy(update=changes)


def test_what_fits_is_agreed_on():
    want, have = wanted(), offer()
    found = agreed_on(want, have)
    assert (found.wanted, found.offer, found.sampled) == (want, have, True)
    assert agreed_on(wanted(depth=5), have).wanted.depth == 5
    mapped = {"vocab": 90, "draft_vocab": 41}
    assert agreed_on(wanted(**mapped), offer(**mapped)).wanted.bounds == ((0, 21), (21, 41))


def test_what_a_worker_says_of_itself_is_agreed_on():
    setup = SimpleNamespace(depths=(4, 5), context=64, slots=3, batches=(1, 2), sampled=True)
    config = SimpleNamespace(vocab=301, draft_vocab=301, block=5, feature_width=8)
    names = [SimpleNamespace(device_name="a double", device=name) for name in ("first", "second")]
    have = starting.offer(setup, config, names)
    assert agreed_on(wanted(vocab=301), have).offer is have
    assert (have.tau, have.candidates) == ("0.7", 32)


def test_the_numbers_wanted_are_those_of_the_definition():
    want = wanted()
    assert (want.abi, want.definition) == ("pp4-draft-v1", "dyadic24-floor-first-v1")
    assert (want.definition_sha256, want.tau, want.candidates) == (DIGEST, "0.7", 32)
    # the number that is told is the one that the arithmetic has: round(2**30 * log2(e) / tau)
    assert abs(dyadic24.SCALE * float(want.tau) / 2**30 - 1.4426950408889634) < 1e-9
    assert len(dyadic24.allocate([0.0] * want.candidates)) == want.candidates


@given(st.sampled_from(sorted(MEMBERS)), st.data())
def test_any_member_that_differs_is_refused_with_both_values(name, data):
    value = data.draw(MEMBERS[name].filter(lambda one: one != getattr(offer(), name)))
    found = refused(wanted(), changed(**{name: value}))
    assert found.where == f"handshake, {name}"
    assert found.expected == f"{name} {getattr(wanted(), name)!r}"
    assert found.found == f"{name} {value!r}"
    # the same where the engine is the one that is another
    found = refused(dataclasses.replace(wanted(), **{name: value}), offer())
    assert (found.expected, found.found) == (
        f"{name} {value!r}",
        f"{name} {getattr(offer(), name)!r}",
    )


@given(st.lists(SIZE, max_size=4).map(tuple), st.integers(1, 5))
def test_a_depth_that_is_not_offered_is_refused(depths, depth):
    have = changed(depths=depths)
    if depth in depths:
        assert agreed_on(wanted(depth=depth), have).wanted.depth == depth
    else:
        found = refused(wanted(depth=depth), have)
        assert (found.where, found.expected) == ("handshake, depth", f"depth {depth}")
        assert found.found == f"depth one of {depths!r}"


def test_another_abi_is_refused():
    found = refused(wanted(), changed(abi="pp4-draft-v2"))
    assert (found.expected, found.found) == ("abi 'pp4-draft-v1'", "abi 'pp4-draft-v2'")


@given(st.sets(st.sampled_from(sorted(MEMBERS)), min_size=2), st.data())
def test_one_refusal_names_everything(names, data):
    values = {
        name: data.draw(MEMBERS[name].filter(lambda one, name=name: one != getattr(offer(), name)))
        for name in names
    }
    found = refused(wanted(), changed(**values, depths=(6, 7)))
    told = found.where.removeprefix("handshake, ").split(", ")
    assert sorted(told) == sorted([*names, "depth"])
    for name, value in values.items():
        assert f"{name} {getattr(wanted(), name)!r}" in found.expected
        assert f"{name} {value!r}" in found.found
    assert found.expected.endswith("depth 4")
    assert found.found.endswith("depth one of (6, 7)")


def test_every_member_that_is_wanted_is_compared():
    """A member that is added to Wanted and not to the comparison fails here."""
    compared = {*MEMBERS, "abi", "depth"}
    assert {field.name for field in dataclasses.fields(Wanted)} == compared | {"sampled"}


def test_switches_are_no_mismatch():
    for engine in (True, False):
        for worker in (True, False):
            found = agreed(sampled=engine, on=worker)
            assert found.sampled is (engine and worker)
            # a worker that is off is asked all the same: it answers greedily
            assert found.asked_temperature(0.9) == (0.9 if engine else 0)
            assert found.asked_temperature(0) == 0


def test_only_a_handshake_makes_an_agreement():
    made = agreed()
    for attempt in (
        Agreed,
        lambda: Agreed(wanted(), offer()),
        lambda: copy.copy(made),
        lambda: copy.deepcopy(made),
        lambda: pickle.loads(pickle.dumps(made)),
        lambda: dataclasses.replace(made, wanted=wanted(depth=5)),
        lambda: type("Other", (Agreed,), {}),
    ):
        with pytest.raises(TypeError):
            attempt()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.wanted = wanted(depth=5)


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab": 1},
        {"vocab": 2**18 + 1},
        {"vocab": 40.0},
        {"draft_vocab": 41},
        {"draft_vocab": 1},
        {"block": 0},
        {"depth": 6},
        {"depth": 0},
        {"depth": True},
        {"sampled": 1},
        {"sampled": "0"},
    ],
)
def test_what_no_drafter_has_is_not_wanted(changes):
    with pytest.raises(BadInputError) as caught:
        wanted(**changes)
    assert caught.value.refusal.where == f"wanted {next(iter(changes))}"


def test_the_refusal_has_a_page():
    assert "both values" in page(Code.ABI_MISMATCH).cause


@pytest.mark.parametrize("tau", ["0.70", "00.7", ".7", "7e-1", "0.7 ", "", "-0.7", "1.", 0.7])
def test_tau_has_one_text(tau):
    """Two texts of one number would be a mismatch that is none."""
    with pytest.raises(ValidationError):
        Offer(**{**offer().model_dump(), "tau": tau})
