"""What comes through an adapter is what the worker proposed, to the bit; anything else is plain."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pp4.engine.adapters.interface import Answered, EngineAdapter
from pp4.engine.adapters.reference import ReferenceAdapter
from pp4.engine.adapters.vllm import VllmV1Adapter, for_runner
from pp4.errors import BadInputError, Code
from pp4.verifier.units import Mode
from pp4.verifier.vectorised import verify
from tests.unit.engine.adapters.offers import agreed, answered, any_answered
from tests.unit.verifier.cases import MODES, any_fields, any_probabilities, fields

VOCABULARY, DEPTH = 40, 4
ADAPTERS = [ReferenceAdapter(agreed()), VllmV1Adapter(agreed())]
UNITS = 2.0**24


def steps(random, kinds):
    """A row for each kind: a mode, or None for a sequence that has no reply."""
    made = [
        (Answered(0.7, 5, None), None)
        if kind is None
        else any_answered(random, VOCABULARY, DEPTH, kind)
        for kind in kinds
    ]
    return [row for row, _ in made], [one for _, one in made]


any_step = st.tuples(
    st.integers(0, 2**32), st.lists(st.sampled_from([None, *MODES]), max_size=5)
).map(lambda one: steps(np.random.default_rng(one[0]), one[1]))


def tokens_of(one):
    return one["tokens"].tolist()


@given(any_step)
def test_the_reference_has_every_row_as_it_came(step):
    rows, wanted = step
    found = ReferenceAdapter(agreed()).convert(rows)
    batch = found.form
    assert batch.check() == (len(rows), DEPTH)
    for row, one in enumerate(wanted):
        if one is None:
            assert found.proposals[row] is None
            assert batch.mode[row] == Mode.INACTIVE
            continue
        assert batch.mode[row] == one["mode"]
        assert batch.ids[row].tolist() == one["ids"].tolist()
        assert np.array_equal(batch.tickets[row].numpy() / UNITS, one["q"].astype(np.float64))
        assert batch.tokens[row].tolist() == tokens_of(one)
        assert batch.key[row].item() % 2**64 == one["key"]
        assert (batch.position[row], batch.round[row]) == (one["position"], one["round"])
    assert found.refusals == (None,) * len(rows)


def sparse(dense):
    """Ids and tickets of a dense row, by id."""
    tickets = dense.double().numpy() * UNITS
    assert np.array_equal(tickets, np.floor(tickets))
    return {int(one): int(tickets[one]) for one in np.flatnonzero(tickets)}


@given(any_step)
def test_vllm_has_every_token_and_every_ticket(step):
    rows, wanted = step
    form = VllmV1Adapter(agreed()).convert(rows).form
    drafted = [one for one in wanted if one is not None]
    assert form.num_draft_tokens == [0 if one is None else DEPTH for one in wanted]
    assert form.cu_num_draft_tokens.tolist() == np.cumsum(form.num_draft_tokens).tolist()
    assert form.draft_token_ids.tolist() == [token for one in drafted for token in tokens_of(one)]
    dtypes = (form.draft_token_ids.dtype, form.cu_num_draft_tokens.dtype)
    assert dtypes == (torch.int32, torch.int32)
    assert all(type(count) is int for count in form.num_draft_tokens)
    if all(one["mode"] is not Mode.SAMPLED for one in drafted):
        assert form.draft_probs is None
        return
    dense = form.draft_probs
    assert (dense.dtype, dense.shape) == (torch.float32, (DEPTH * len(drafted), VOCABULARY))
    assert dense.is_contiguous()
    for number, one in enumerate(drafted):
        for place in range(DEPTH):
            row = dense[number * DEPTH + place]
            if one["mode"] is not Mode.SAMPLED:
                assert sparse(row) == {tokens_of(one)[place]: 1 << 24}
                continue
            shares = zip(one["ids"][place].tolist(), one["q"][place].tolist(), strict=True)
            assert sparse(row) == {token: int(q * UNITS) for token, q in shares if q > 0}


@given(any_step, st.randoms(use_true_random=False))
def test_a_row_of_vllm_sums_to_exactly_one_in_any_order(step, random):
    dense = VllmV1Adapter(agreed()).convert(step[0]).form.draft_probs
    if dense is None:
        return
    order = list(range(VOCABULARY))
    for row in dense:
        random.shuffle(order)
        running = np.float32(0)
        for one in row.numpy()[order]:
            running = np.float32(running + one)
        assert running == 1
    assert torch.equal(dense.sum(dim=1), torch.ones(len(dense)))


def test_a_large_vocabulary_keeps_its_last_id():
    """Places of a dense form pass 2**20, and the last row ends where the form ends."""
    large = 1 << 18
    row = {large - 1: 1 << 23, 0: (1 << 23) - 1, 77: 1}
    one = fields(Mode.SAMPLED, [row] * DEPTH, [large - 1] * DEPTH, large)
    form = VllmV1Adapter(agreed(vocab=large)).convert([answered(one)]).form
    assert sparse(form.draft_probs[DEPTH - 1]) == row
    assert form.draft_probs.count_nonzero() == 3 * DEPTH


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.name)
def test_what_is_not_a_proposal_is_decoded_plainly(adapter):
    random = np.random.default_rng(4)
    good, _ = any_answered(random, VOCABULARY, DEPTH, Mode.SAMPLED)
    broken, _ = any_answered(random, VOCABULARY, DEPTH, Mode.SAMPLED)
    broken.answer.q[2, 0] += np.float32(2.0**-24)
    missing = Answered(0.7, 9, None)
    found = adapter.convert([broken, good, missing])
    assert [one is None for one in found.proposals] == [True, False, True]
    assert [one is None for one in found.refusals] == [False, True, True]
    assert found.refusals[0].code is Code.BAD_PROPOSAL
    alone = adapter.convert([missing, good, missing])
    if isinstance(adapter, VllmV1Adapter):
        assert found.form.num_draft_tokens == [0, DEPTH, 0]
        assert found.form.cu_num_draft_tokens.tolist() == [0, DEPTH, DEPTH]
        assert torch.equal(found.form.draft_probs, alone.form.draft_probs)
    else:
        assert found.form.mode.tolist() == [Mode.INACTIVE, Mode.SAMPLED, Mode.INACTIVE]
        for field in dataclasses.fields(found.form):
            mine, theirs = (getattr(one.form, field.name) for one in (found, alone))
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.name)
def test_a_step_without_any_proposal(adapter):
    for rows in ([], [Answered(0.0, 1, None)] * 2):
        found = adapter.convert(rows)
        assert found.proposals == found.refusals == (None,) * len(rows)
        if isinstance(adapter, VllmV1Adapter):
            assert found.form.num_draft_tokens == [0] * len(rows)
            assert found.form.draft_token_ids.shape == (0,)
            assert found.form.draft_probs is None


def damaged(one, name, value):
    return dataclasses.replace(one, answer=dataclasses.replace(one.answer, **{name: value}))


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        ("mode", "Sampled", "mode"),
        ("mode", None, "mode"),
        ("mode", "greedy", "q[0, 0]"),
        ("ids", np.zeros((4, 32), np.int64), "ids"),
        ("ids", np.zeros((5, 32), np.int32), "ids"),
        ("q", np.zeros((4, 32), np.float64), "q"),
        ("q", None, "q"),
        ("tokens", np.zeros(3, np.int32), "tokens"),
        ("tokens", [1, 2, 3, 4], "tokens"),
        ("position", (1 << 32) - 4, "position"),
        ("generation", -1, "generation"),
        ("slot", 1 << 32, "slot"),
        ("round", 0.5, "round"),
    ],
)
def test_each_member_of_a_reply_can_refuse_it(adapter, name, value, where):
    row = {3: 1 << 23, 1: 1 << 23}
    good = answered(fields(Mode.SAMPLED, [row] * DEPTH, [3] * DEPTH, VOCABULARY))
    assert adapter.convert([good]).refusals == (None,)
    found = adapter.convert([damaged(good, name, value)])
    assert found.proposals == (None,)
    assert found.refusals[0].where == f"proposal {where}"


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.name)
def test_a_sampled_reply_to_a_greedy_request_is_refused(adapter):
    one, _ = any_answered(np.random.default_rng(1), VOCABULARY, DEPTH, Mode.SAMPLED)
    found = adapter.convert([dataclasses.replace(one, temperature=0.0)])
    assert found.refusals[0].where == "proposal mode"


@pytest.mark.parametrize("kind", [ReferenceAdapter, VllmV1Adapter])
@pytest.mark.parametrize("switches", [(True, False), (False, True), (False, False)])
def test_with_a_switch_off_nothing_sampled_comes_through(kind, switches):
    adapter = kind(agreed(sampled=switches[0], on=switches[1]))
    random = np.random.default_rng(2)
    rows, _ = steps(random, MODES)
    found = adapter.convert(rows)
    assert [one is None for one in found.proposals] == [True, False, False]
    assert found.refusals[0].expected == "a greedy draft while a switch is off"
    modes = [one.mode for one in found.proposals if one is not None]
    assert modes == [Mode.GREEDY_T0, Mode.DELTA]
    if kind is VllmV1Adapter:
        assert found.form.draft_probs is None


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.name)
def test_what_is_the_engines_own_mistake_is_no_plain_row(adapter):
    one, _ = any_answered(np.random.default_rng(3), VOCABULARY, DEPTH, Mode.SAMPLED)
    for change in ({"temperature": -1.0}, {"temperature": float("nan")}, {"key": 1 << 64},
                   {"key": -1}, {"key": 1.0}, {"key": True}):  # fmt: skip
        for answer in (one.answer, None, dataclasses.replace(one.answer, mode="none")):
            with pytest.raises(BadInputError):
                adapter.convert([dataclasses.replace(one, answer=answer, **change)])


def test_what_the_reference_gives_is_verified():
    """Through the adapter and beside it: the same tokens."""
    random = np.random.default_rng(8)
    rows, _ = steps(random, [Mode.SAMPLED, None, Mode.DELTA, Mode.GREEDY_T0])
    found = ReferenceAdapter(agreed()).convert(rows)
    target = torch.stack(
        [
            torch.from_numpy(
                np.stack([any_probabilities(random, VOCABULARY) for _ in range(DEPTH + 1)])
            )
            for _ in rows
        ]
    )
    verdicts = verify(target, found.form)
    assert verdicts.error.tolist() == [0, 0, 0, 0]
    assert verdicts.tokens[1].tolist() == [-1] * (DEPTH + 1)
    assert (verdicts.tokens[[0, 2, 3], 0] >= 0).all()


def test_exactness_follows_from_the_gaps():
    reference, vllm = ADAPTERS
    assert (reference.exact, reference.gaps) == (True, ())
    assert not vllm.exact
    assert [gap.name for gap in vllm.gaps] == [
        "zero word", "float ratio", "empty residual", "float residual", "equal at zero",
        "other words", "never run",
    ]  # fmt: skip
    for gap in vllm.gaps:
        assert gap.reason
        assert gap.effect
        known = ("rejection_sampler.py at ", "survey of public projects", "of this module")
        assert any(place in gap.source for place in known)
    for one in ADAPTERS:
        # not a word of the adapter's own
        assert type(one).exact is EngineAdapter.exact
        assert one.at_zero


def test_runners_of_vllm():
    assert isinstance(for_runner("v1", agreed()), VllmV1Adapter)
    for runner, told in (("v2", "another q out of logits"), ("V1", "'V1'"), ("", "''")):
        with pytest.raises(BadInputError) as caught:
            for_runner(runner, agreed())
        assert told in caught.value.refusal.found
        assert "takes probabilities" in caught.value.refusal.expected


def swapped(rows, name, first, second):
    """Rows with a member of their replies exchanged."""
    answers = [row.answer for row in rows]
    mine, theirs = getattr(answers[first], name), getattr(answers[second], name)
    answers[first] = dataclasses.replace(answers[first], **{name: theirs})
    answers[second] = dataclasses.replace(answers[second], **{name: mine})
    return [dataclasses.replace(row, answer=one) for row, one in zip(rows, answers, strict=True)]


def is_proposal(row):
    """What docs/verifier.md asks of a reply, token by token, for these bounds and dtypes."""
    answer = row.answer
    shapes = [(array.shape, array.dtype) for array in (answer.ids, answer.q, answer.tokens)]
    if shapes != [((DEPTH, 32), np.int32), ((DEPTH, 32), np.float32), ((DEPTH,), np.int32)]:
        return False
    sampled = answer.mode == "sampled"
    if sampled and row.temperature == 0:
        return False
    for ids, q, token in zip(answer.ids.tolist(), answer.q.tolist(), answer.tokens.tolist(),
                             strict=True):  # fmt: skip
        listed = ids[: ids.index(-1)] if -1 in ids else ids
        share = dict(zip(listed, q, strict=False))
        held = share.get(token, 0) > 0
        first = token in range(VOCABULARY) and listed[:1] in ([], [token])
        good = (
            all(one in range(VOCABULARY) for one in listed)
            and all(one == -1 for one in ids[len(listed) :])
            and len(share) == len(listed)
            and not any(q[len(listed) :])
            and all(one >= 0 and (one * 2**24).is_integer() for one in share.values())
            and (sum(share.values()) == 1 and held if sampled else not any(q) and first)
        )
        if not good:
            return False
    return True


def flipped(array, bit):
    """A copy with one bit of its bytes turned over."""
    raw = bytearray(np.ascontiguousarray(array).tobytes())
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    return np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)


DAMAGE = ("bits", "swap", "dtype", "shape", "mode", "row", "temperature")


@given(st.integers(0, 2**32), st.tuples(*[st.sampled_from(MODES)] * 2), st.data())
def test_any_damaged_reply_is_refused_or_comes_through_as_it_is(seed, modes, data):
    """Bits over, arrays of another row, of another dtype or shape: never a third thing."""
    random = np.random.default_rng(seed)
    rows = [answered(any_fields(random, VOCABULARY, DEPTH, mode)) for mode in modes]
    for _ in range(data.draw(st.integers(1, 3))):
        kind, name = data.draw(st.sampled_from(DAMAGE)), data.draw(
            st.sampled_from(["ids", "q", "tokens"])
        )  # fmt: skip
        array = getattr(rows[0].answer, name)
        if kind == "bits" and array.nbytes:
            bit = data.draw(st.integers(0, array.nbytes * 8 - 1))
            rows[0] = damaged(rows[0], name, flipped(array, bit))
        elif kind == "swap":
            rows = swapped(rows, name, 0, 1)
        elif kind == "dtype":
            other = data.draw(st.sampled_from([">i4", "i8", "u4", "f4", "f8", "f2"]))
            with np.errstate(all="ignore"):
                rows[0] = damaged(rows[0], name, array.astype(other))
        elif kind == "shape":
            cut = data.draw(st.sampled_from([np.s_[1:], np.s_[None], np.s_[..., :1], np.s_[:0]]))
            rows[0] = damaged(rows[0], name, array[cut])
        elif kind == "mode":
            other = data.draw(st.sampled_from(["sampled", "greedy"]))
            rows[0] = damaged(rows[0], "mode", other)
        elif kind == "row" and array.ndim and len(array) > 1:
            rows[0] = damaged(rows[0], name, np.roll(array, 1, axis=0))
        elif kind == "temperature":
            rows[0] = dataclasses.replace(rows[0], temperature=data.draw(st.sampled_from([0, 1.0])))
    for adapter in ADAPTERS:
        found = adapter.convert(rows)
        for row, proposal, refusal in zip(rows, found.proposals, found.refusals, strict=True):
            assert (proposal is None) == (refusal is not None)
            assert (proposal is not None) == is_proposal(row)
            if proposal is not None:
                assert proposal.tokens.tolist() == row.answer.tokens.tolist()
                assert proposal.ids.tolist() == row.answer.ids.tolist()
                assert (proposal.tickets / UNITS).tolist() == row.answer.q.tolist()
        if isinstance(adapter, VllmV1Adapter):
            drafted = [DEPTH if is_proposal(row) else 0 for row in rows]
            assert found.form.num_draft_tokens == drafted
