"""A proposal is refused by the check that it breaks, whatever was done to it."""

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.drafter.packing import REPLY_MEMBERS, row_type
from pp4.errors import BadInputError, Code, WrongError
from pp4.kernels import sampled_fused
from pp4.verifier.proposal import mode_of, validated
from pp4.verifier.units import MAX_VOCABULARY, Mode
from pp4.wire.drafts import Drafted
from pp4.worker.proposals import proposal_of
from tests.unit.verifier.cases import MODES, any_fields, fields

ROW = {7: 1 << 23, 2: 1 << 22, 9: 1 << 22, 4: 0}
TICKET = np.float32(2.0**-24)


def good(mode=Mode.SAMPLED, **more):
    return fields(mode, [ROW, ROW], [7, 7], 10) | more


def refused(arguments):
    with pytest.raises(WrongError) as caught:
        validated(**arguments)
    assert caught.value.refusal.code is Code.BAD_PROPOSAL
    return caught.value.refusal.where.removeprefix("proposal ")


def edited(name, place, value, mode=Mode.SAMPLED):
    arguments = good(mode)
    arguments[name][place] = value
    return arguments


@pytest.mark.parametrize("mode", MODES)
def test_a_good_one_is_copied(mode):
    arguments = good(mode)
    found = validated(**arguments)
    assert found.tickets.tolist()[0][:5] == (
        [1 << 23, 1 << 22, 1 << 22, 0, 0] if mode is Mode.SAMPLED else [0] * 5
    )
    arguments["ids"][:] = 0
    arguments["tokens"][:] = 0
    assert found.ids[1, :5].tolist() == [7, 2, 9, 4, -1]
    assert found.tokens.tolist() == [7, 7]
    assert not found.ids.flags.writeable
    assert not found.tickets.flags.writeable
    assert not found.tokens.flags.writeable
    assert (found.depth, found.position, found.round, found.key) == (2, 11, 5, 2**63 + 17)
    assert (found.generation, found.slot, found.vocabulary) == (3, 1, 10)


def test_what_has_no_tickets_or_no_ids_is_good():
    assert validated(**fields(Mode.GREEDY_T0, None, [9], 10)).ids.max() == -1
    assert validated(**fields(Mode.SAMPLED, [{0: 1 << 24}], [0], 1)).tickets_of_token(0) == 1 << 24


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (edited("ids", (1, 1), 10), "ids[1, 1]"),
        (edited("ids", (1, 1), -2), "ids[1, 1]"),
        (edited("ids", (0, 2), 2), "distinct ids[0]"),
        (edited("ids", (0, 3), -1), None),
        (edited("ids", (0, 2), -1), "padding[0, 3]"),
        (edited("ids", (0, 5), 1), "padding[0, 5]"),
        (edited("q", (1, 8), TICKET), "padding[1, 8]"),
        (edited("q", (1, 0), 0.5 + 2.0**-23), "tickets[1]"),
        (edited("q", (1, 3), TICKET), "tickets[1]"),
        (edited("q", (1, 1), 0.25 - TICKET / 2), "q[1, 1]"),
        (edited("q", (0, 0), np.nan), "q[0, 0]"),
        (edited("q", (0, 0), np.inf), "q[0, 0]"),
        (edited("q", (0, 0), 1.5), "q[0, 0]"),
        (edited("q", (0, 3), -TICKET), "q[0, 3]"),
        (edited("q", (0, 3), -0.0), None),
        (edited("tokens", 1, 4), "tokens[1]"),
        (edited("tokens", 1, 1), "tokens[1]"),
        (edited("tokens", 0, -1), "tokens[0]"),
        (edited("tokens", 0, 2), None),
        (edited("q", (0, 0), 0.5, Mode.GREEDY_T0), "q[0, 0]"),
        (edited("q", (0, 0), 0.5, Mode.DELTA), "q[0, 0]"),
        (edited("tokens", 0, 2, Mode.DELTA), "tokens[0]"),
        (edited("tokens", 1, 2, Mode.GREEDY_T0), "tokens[1]"),
        (fields(Mode.DELTA, None, [10], 10), "tokens[0]"),
        (fields(Mode.GREEDY_T0, None, [-1], 10), "tokens[0]"),
        (good() | {"mode": Mode.GREEDY_T0}, "q[0, 0]"),
        (good(Mode.GREEDY_T0) | {"mode": Mode.SAMPLED}, "tickets[0]"),
        (good(mode=Mode.SAMPLED) | {"mode": Mode.INACTIVE}, "mode"),
        (good() | {"mode": 1}, "mode"),
        (good(depth=3), "ids"),
        (good(depth=1), "ids"),
        (good(depth=0), "depth"),
        (good(depth=True), "depth"),
        (good(definition="dyadic24-floor-first-v2"), "definition"),
        (good(vocabulary=9), "ids[0, 2]"),
        (good(vocabulary=0), "vocabulary"),
        (good(vocabulary=MAX_VOCABULARY + 1), "vocabulary"),
        (good(generation=1 << 64), "generation"),
        (good(generation=1.0), "generation"),
        (good(slot=1 << 32), "slot"),
        (good(round=-1), "round"),
        (good(round=1 << 32), "round"),
        (good(key=1 << 64), "key"),
        (good(key=-1), "key"),
        # the bonus token's position has to fit too
        (good(position=(1 << 32) - 2), "position"),
        (good(position=(1 << 32) - 3), None),
        (good(errors=np.array([0, 2], np.int32)), "errors[1]"),
        (good(errors=np.zeros(2, np.int32)), None),
        (good(errors=np.zeros(3, np.int32)), "errors"),
        (good(ids=np.zeros((2, 32), np.int64)), "ids"),
        (good(ids=np.zeros((2, 31), np.int32)), "ids"),
        (good(q=np.zeros((2, 32))), "q"),
        (good(tokens=[7, 7]), "tokens"),
        (good(tokens=np.zeros((2, 1), np.int32)), "tokens"),
    ],
)
def test_each_check_has_its_refusal(arguments, where):
    if where is None:
        validated(**arguments)
    else:
        assert refused(arguments) == where


def well_formed(arguments):
    """The definition of a proposal once more, in plain Python."""
    ids, q = arguments["ids"].tolist(), arguments["q"].astype(np.float64).tolist()
    for row, shares, token in zip(ids, q, arguments["tokens"].tolist(), strict=True):
        listed = [one for one in row if one != -1]
        if row != listed + [-1] * (32 - len(listed)) or len(set(listed)) != len(listed):
            return False
        if not all(0 <= one < arguments["vocabulary"] for one in listed):
            return False
        if not all((share * 2**24).is_integer() and share >= 0 for share in shares):
            return False
        if any(shares[len(listed) :]):
            return False
        if arguments["mode"] is Mode.SAMPLED:
            if sum(shares) != 1 or token not in listed or not shares[listed.index(token)]:
                return False
        elif (
            any(shares)
            or not 0 <= token < arguments["vocabulary"]
            or (listed or [token])[0] != token
        ):
            return False
    return True


any_id = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 12)
any_q = st.floats(width=32) | st.integers(0, 2**25).map(lambda one: one * 2.0**-24)


@given(st.integers(0, 2**32), st.sampled_from(MODES), st.data())
def test_any_damage_is_refused_or_leaves_a_proposal(seed, mode, data):
    arguments = any_fields(np.random.default_rng(seed), 12, 2, mode)
    assert well_formed(arguments)
    validated(**arguments)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(["ids", "q", "tokens", "mode", "swap"]))
        row, column, other = (data.draw(st.integers(0, end)) for end in (1, 31, 31))
        if name == "mode":
            arguments["mode"] = data.draw(st.sampled_from(MODES))
        elif name == "tokens":
            arguments["tokens"][row] = data.draw(any_id)
        elif name == "ids":
            arguments["ids"][row, column] = data.draw(any_id)
        elif name == "q":
            arguments["q"][row, column] = data.draw(any_q)
        else:
            for array in (arguments["ids"], arguments["q"]):
                array[row, [column, other]] = array[row, [other, column]]
    if well_formed(arguments):
        found = validated(**arguments)
        assert np.array_equal(found.tickets * 2.0**-24, arguments["q"])
    else:
        refused(arguments)


@given(st.sampled_from(["generation", "slot", "round", "position", "key", "vocabulary"]), st.data())
def test_any_number_is_refused_or_kept(name, data):
    bits = {"generation": 64, "key": 64, "vocabulary": 18}.get(name, 32)
    value = data.draw(st.integers(-(2**66), 2**66) | st.integers(2**bits - 4, 2**bits + 4))
    first, last = {"vocabulary": (10, 2**18), "position": (0, 2**32 - 3)}.get(
        name, (0, 2**bits - 1)
    )
    if first <= value <= last:
        assert getattr(validated(**good(**{name: value})), name) == value
    else:
        # too few tokens in the vocabulary show in the ids
        assert refused(good(**{name: value})) in (name, "ids[0, 0]", "ids[0, 2]")


def test_every_argument_was_damaged():
    known = {*good(), "errors"}
    assert known == set(inspect.signature(validated).parameters)


def test_modes():
    assert mode_of("sampled", 0.7) is Mode.SAMPLED
    assert mode_of("greedy", 0.7) is Mode.DELTA
    assert mode_of("greedy", 0) is Mode.GREEDY_T0
    with pytest.raises(WrongError, match="greedy draft at temperature 0"):
        mode_of("sampled", 0.0)
    for temperature in (-1, float("nan"), float("inf")):
        with pytest.raises(BadInputError):
            mode_of("greedy", temperature)


def test_modes_are_the_kernels_words():
    kernels = (sampled_fused.INACTIVE, sampled_fused.SAMPLED, sampled_fused.GREEDY)
    assert kernels == (Mode.INACTIVE, Mode.SAMPLED, Mode.GREEDY_T0)


def test_a_reply_of_the_worker_is_taken_as_it_is():
    """Bytes as they come over the socket: two of five positions, behind them zeros."""
    row = np.zeros(1, row_type(5))[0]
    sampled = good()
    for name, values in (("ids", "ids"), ("q", "q"), ("token", "tokens")):
        row[name][:2] = sampled[values]
    body = b"".join(row[name].tobytes() for name in REPLY_MEMBERS)
    answer = Drafted(
        sequence=1, request=1, generation=3, slot=1, round=5, position=11, mode="sampled",
        depth=2, block=5,
    )  # fmt: skip
    reply = proposal_of(answer, body)
    taken = {name: getattr(reply, name) for name in ("ids", "q", "tokens", "generation", "slot",
                                                     "round", "position")}  # fmt: skip
    found = validated(**(sampled | taken | {"mode": mode_of(reply.mode, 0.7)}))
    wanted = validated(**sampled)
    for field in dataclasses.fields(found):
        assert np.array_equal(getattr(found, field.name), getattr(wanted, field.name))
