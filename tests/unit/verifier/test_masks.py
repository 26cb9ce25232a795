"""A row that cannot be verified is masked, and its neighbours are as without it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from pp4.errors import BadInputError, WrongError
from pp4.verifier import reference, vectorised
from pp4.verifier.batch import stacked
from pp4.verifier.flaws import Flaw
from pp4.verifier.proposal import validated
from pp4.verifier.reference import quantised
from pp4.verifier.units import Mode
from tests.unit.verifier.cases import MODES, any_fields, any_probabilities, proposal
from tests.unit.verifier.test_vectorised import check, seeds, sound_case


def set_tickets(batch, *tickets):
    """Other tickets at the second position of the second row."""
    batch.tickets[1, 1, : len(tickets)] = torch.tensor(tickets, dtype=torch.int32)


DAMAGE = [
    (Flaw.MODE, lambda batch: batch.mode[1:2].fill_(4)),
    (Flaw.MODE, lambda batch: batch.mode[1:2].fill_(-1)),
    (Flaw.COUNTER, lambda batch: batch.position[1:2].fill_(2**32 - 2)),
    (Flaw.COUNTER, lambda batch: batch.round[1:2].fill_(-1)),
    (Flaw.IDS, lambda batch: batch.ids[1, 1, 2].fill_(2**31 - 1)),
    (Flaw.IDS, lambda batch: batch.ids[1, 1, 2].fill_(12)),
    (Flaw.IDS, lambda batch: batch.ids[1, 1, 31].fill_(-2)),
    (Flaw.PADDING, lambda batch: batch.ids[1, 1, 1].fill_(-1)),
    (Flaw.PADDING, lambda batch: set_tickets(batch, 1 << 23, 1 << 22, 0, 1 << 22)),
    (Flaw.DISTINCT, lambda batch: batch.ids[1, 1, 1].fill_(int(batch.ids[1, 1, 0]))),
    (Flaw.TICKETS, lambda batch: batch.tickets[1, 1, 0].add_(1)),
    (Flaw.TICKETS, lambda batch: set_tickets(batch, 3 << 23, 1 << 22, -(3 << 22))),
    (Flaw.TICKETS, lambda batch: batch.mode[1:2].fill_(int(Mode.DELTA))),
    (Flaw.TOKEN, lambda batch: batch.tokens[1, 1].fill_(-(2**31))),
    (Flaw.TOKEN, lambda batch: set_tickets(batch, 1 << 23, 0, 1 << 23)),
]
FLAWS = {flaw for flaw, _ in DAMAGE}


def neighbours_are_untouched(found, proposals, p, flaw):
    assert found.error.tolist() == [0, flaw, 0]
    assert int(found.accepted[1]) == 0
    assert found.tokens[1].tolist() == [-1] * 3
    for row in (0, 2):
        targets = [quantised(one) for one in p[row]]
        check(found, row, reference.verify(proposals[row], targets))


@pytest.mark.parametrize(("flaw", "damage"), DAMAGE)
def test_a_damaged_row_is_masked_and_its_neighbours_are_not(flaw, damage):
    proposals, p = sound_case()
    batch = stacked(proposals, 2)
    damage(batch)
    found = vectorised.verify(torch.from_numpy(p), batch)
    neighbours_are_untouched(found, proposals, p, flaw)


@pytest.mark.parametrize("mode", [Mode.GREEDY_T0, Mode.DELTA])
def test_a_greedy_token_is_the_first_where_ids_are_listed(mode):
    one = proposal(mode, [{7: 0, 2: 0}], [7], 12)
    other = dataclasses.replace(one, tokens=np.array([2], np.int32))
    unlisted = dataclasses.replace(other, ids=np.full_like(one.ids, -1))
    p = torch.full((3, 2, 12), 1 / 12)
    found = vectorised.verify(p, stacked([one, other, unlisted], 1))
    assert found.error.tolist() == [0, Flaw.TOKEN, 0]


@given(seeds)
@settings(max_examples=60)
def test_any_damage_is_flagged_or_leaves_a_proposal(seed):
    random = np.random.default_rng(seed)
    batch = stacked([validated(**any_fields(random, 12, 2, MODES[seed % 3]))] * 3, 2)
    for member in (batch.ids, batch.tickets, batch.tokens)[: random.integers(1, 4)]:
        values = [-1, 0, 5, 12, 2**31 - 1, -(2**31), int(random.integers(12))]
        flat = member[1].view(-1)
        flat[int(random.integers(len(flat)))] = values[random.integers(len(values))]
    p = torch.from_numpy(np.stack([any_probabilities(random, 12) for _ in range(9)]))
    found = vectorised.verify(p.view(3, 3, 12), batch)
    flat = {"ids": batch.ids[1].numpy(), "tokens": batch.tokens[1].numpy()}
    q = batch.tickets[1].numpy().astype(np.float32) * np.float32(2.0**-24)
    arguments = any_fields(random, 12, 2, Mode(int(batch.mode[1]))) | flat | {"q": q}
    try:
        validated(**arguments)
    except WrongError:
        assert int(found.error[1]) in FLAWS
    else:
        assert int(found.error[1]) == Flaw.NONE


@pytest.mark.parametrize(
    "column",
    [
        [np.nan, 1.0],
        [1.0, np.nan],
        [-1e-9, 1.0],
        [1.5],
        [np.inf],
        [np.inf, -np.inf],
        [0.5, 0.4999],
        [0.5, 0.5001],
        [0.0],
    ],
)
def test_a_row_without_a_distribution_is_masked(column):
    proposals, p = sound_case()
    # the last position: also where it decides nothing
    p[1, 2] = [*column, *[0.0] * (12 - len(column))]
    found = vectorised.verify(torch.from_numpy(p), stacked(proposals, 2))
    neighbours_are_untouched(found, proposals, p, Flaw.TARGET)
    with pytest.raises(BadInputError, match="target"):
        quantised(p[1, 2])


def test_a_largest_that_cannot_give_what_is_too_much_is_none():
    # each a little above its share: together more than the largest has
    column = np.full(1 << 18, 2.0**-18 * (1 + 2.0**-15))
    one = proposal(Mode.DELTA, None, [0], 1 << 18)
    p = torch.from_numpy(np.stack([column, column]))[None]
    assert vectorised.verify(p, stacked([one], 1)).error.tolist() == [Flaw.TARGET]
    with pytest.raises(BadInputError, match="sum to 1"):
        quantised(column)


def test_nothing_left_after_a_rejection_is_an_internal_error(monkeypatch):
    """Which only a wrong comparison can bring about."""
    proposals, p = sound_case()
    p[1] = 0
    p[1][:, [7, 2, 9]] = [0.5, 0.25, 0.25]
    targets = [quantised(column) for column in p[1]]
    for module in (reference, vectorised):
        monkeypatch.setattr(module, "accepts", lambda u, weight, tickets: weight != weight)
    found = vectorised.verify(torch.from_numpy(p), stacked(proposals, 2))
    assert found.error.tolist() == [0, Flaw.RESIDUAL, 0]
    assert found.tokens[1].tolist() == [-1] * 3
    with pytest.raises(WrongError, match="INTERNAL"):
        reference.verify(proposals[1], targets)


def test_a_sum_that_wraps_is_no_distribution():
    one = proposal(Mode.DELTA, None, [0], 1 << 17)
    p = torch.zeros(1, 2, 1 << 17)
    p[0, 0, : (1 << 16) + 1] = 1
    p[0, 1, 0] = 1
    assert vectorised.verify(p, stacked([one], 1)).error.tolist() == [Flaw.TARGET]


def test_a_row_without_a_proposal_means_nothing():
    proposals, p = sound_case()
    p[1] = np.nan
    found = vectorised.verify(torch.from_numpy(p), stacked([proposals[0], None, proposals[2]], 2))
    neighbours_are_untouched(found, proposals, p, Flaw.NONE)
