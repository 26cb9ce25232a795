"""The output has the target's distribution: chi-square over many steps of the vectorised verifier.

Seeds are fixed, so the results are too.  ``chances.ALPHA`` says how rarely a right implementation
would fail had they been drawn: once in 10**6.  Each control is a real bug, made here, and has to be
caught by the same test at the same threshold.
"""

import dataclasses

import numpy as np
import pytest
import torch

from pp4.errors import Code, WrongError
from pp4.kernels.purposes import DRAFT
from pp4.verifier import vectorised
from pp4.verifier import words as streams
from pp4.verifier.proposal import validated
from pp4.verifier.units import TOTAL, Mode
from tests.unit.verifier import chains
from tests.unit.verifier.cases import fields
from tests.unit.verifier.chances import ALPHA, chance

TRIALS = 1 << 17
SAMPLED = torch.full((TRIALS,), int(Mode.SAMPLED), dtype=torch.int32)


def mixed():
    """131,072 sampled rows, a quarter as many deltas and some at T = 0 among them."""
    modes = [Mode.SAMPLED] * 16 + [Mode.DELTA] * 4 + [Mode.GREEDY_T0]
    return torch.tensor(modes, dtype=torch.int32).repeat(TRIALS // 16)


CASES = [
    (1, 0.7, None, 100),
    (1, 1.0, 8, 100),
    (2, 1.0, None, 64),
    (3, 0.7, 8, 40),
    (4, 1.0, 8, 40),
    (5, 0.7, None, 40),
]
"""Depth, temperature, how many tokens the target keeps, vocabulary."""


@pytest.mark.parametrize(("depth", "temperature", "keep", "vocabulary"), CASES)
def test_the_output_is_the_target(depth, temperature, keep, vocabulary):
    made = chains.tables(depth, vocabulary, temperature, keep)
    counts = chains.counted(made, depth, mixed(), seed=depth)
    assert int(counts[Mode.SAMPLED][0].sum()) == TRIALS
    # later places are reached by fewer
    assert counts[Mode.SAMPLED][depth].sum() > TRIALS // 10
    for mode in (Mode.SAMPLED, Mode.DELTA):
        for place in counts[mode]:
            assert chance(place, made.p) > ALPHA
    largest = made.p.argmax(dim=1)
    for place in counts[Mode.GREEDY_T0]:
        assert torch.equal(place.sum(dim=1), place.gather(1, largest[:, None])[:, 0])


def test_truncated_targets_exclude_what_is_proposed():
    """What gives the cases above their edge: the drafter proposes what the target excludes."""
    for depth, temperature, keep, vocabulary in CASES:
        if keep:
            made = chains.tables(depth, vocabulary, temperature, keep)
            excluded = made.p.gather(1, made.ids.long()) == 0
            proposed = torch.where(excluded, made.tickets, 0).sum()
            assert proposed > chains.CONTEXTS * (1 << 24) // 100


def first_place(**more):
    """The chance of the first tokens of one-token drafts, with one thing changed."""
    made = more.pop("made", None) or chains.tables(7, 64, 1.0)
    return chance(chains.counted(made, 1, SAMPLED, seed=77, **more)[Mode.SAMPLED][0], made.p)


def test_what_the_controls_change_is_right_as_it_is():
    assert first_place() > ALPHA
    assert first_place(made=chains.tables(7, 64, 0.7)) > ALPHA


def drafts_words(batch):
    place = torch.arange(batch.tokens.shape[1])
    return streams._stream(batch, place, torch.full_like(place, int(DRAFT)))


def test_a_stream_that_draft_and_acceptance_share_is_caught():
    def words(batch):
        return dataclasses.replace(streams.words_of(batch), accept=drafts_words(batch))

    assert first_place(words=words) < ALPHA


def shared_residual(batch):
    """RESIDUAL words that are the DRAFT stream's; the bonus keeps its own."""
    own, drafts = streams.words_of(batch), drafts_words(batch)
    high, low = (
        torch.cat((getattr(drafts, half), getattr(own.last, half)[:, -1:]), dim=1)
        for half in ("high", "low")
    )
    return streams.Words(own.accept, streams.Word(high, low))


def test_a_stream_that_draft_and_residual_share_is_caught():
    assert first_place(words=shared_residual) < ALPHA


def test_a_shared_stream_gives_63_percent_where_60_are_right():
    """As it was seen in an engine; a draw by running sums needs these three tokens for it.

    Token 0 alone is rejected, by words below a half; those draw token 1 alone from a residual of
    0.37 and 0.03, so that it gets all 0.4 of it on top of its 0.23.
    """
    p = torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64).repeat(chains.CONTEXTS, 1)
    second = round(0.23 * (1 << 24))
    ids = torch.full((chains.CONTEXTS, 32), -1, dtype=torch.int32)
    ids[:, :3] = torch.arange(3)
    tickets = torch.zeros_like(ids)
    tickets[:, :3] = torch.tensor([1 << 23, second, (1 << 23) - second])
    made = chains.Tables(ids, tickets, p)
    deviation = (0.6 * 0.4 / TRIALS) ** 0.5
    for words, share in ((None, 0.60), (shared_residual, 0.63)):
        counts = chains.counted(made, 1, SAMPLED, seed=3, words=words)[Mode.SAMPLED][0]
        assert (chance(counts, p) > ALPHA) == (words is None)
        assert abs(float(counts[:, 1].sum()) / TRIALS - share) < 6 * deviation


def test_a_residual_over_the_32_only_is_caught(monkeypatch):
    right = vectorised._residual

    def listed_only(weights, ids, amounts):
        left = right(weights, ids, amounts)
        kept = torch.zeros_like(left).scatter_(1, ids, left.gather(1, ids))
        return torch.where((amounts > 0).any(dim=1)[:, None], kept, left)

    monkeypatch.setattr(vectorised, "_residual", listed_only)
    assert first_place() < ALPHA


def test_a_residual_that_is_not_normalised_is_caught(monkeypatch):
    right = vectorised.share
    monkeypatch.setattr(
        vectorised, "share", lambda u, total: right(u, torch.full_like(total, TOTAL))
    )
    assert first_place() < ALPHA


def test_q_of_another_tau_is_caught():
    """Drawn at 0.7 and verified as if it had been 1.0: equal ids, other tickets."""
    drawn, other = chains.tables(7, 64, 1.0), chains.tables(7, 64, 1.0, tau=1 / 0.7)

    def edit(batch):
        tickets = other.tickets[chains.ANCHOR % chains.CONTEXTS].expand_as(batch.tickets)
        return dataclasses.replace(batch, tickets=tickets)

    assert torch.equal(drawn.ids, other.ids)
    assert first_place(edit=edit) < ALPHA


def softmax_of_log(q, temperature):
    """What an engine makes of q that takes logits and divides by a temperature."""
    return (q.log() / temperature).softmax(dim=-1)


def test_a_softmax_of_log_q_at_a_temperature_is_caught():
    made = chains.tables(7, 64, 0.7)
    q = softmax_of_log(made.tickets.double() / (1 << 24), 0.7)
    tickets = (q * (1 << 24)).floor().to(torch.int32)
    tickets[:, 0] += (1 << 24) - tickets.sum(dim=1, dtype=torch.int32)

    def edit(batch):
        return dataclasses.replace(
            batch, tickets=tickets[chains.ANCHOR % chains.CONTEXTS].expand_as(batch.tickets)
        )

    # a token that has no tickets any more cannot be verified, and is refused before
    assert (tickets[made.tickets > 0] > 0).all()
    assert first_place(made=made, edit=edit) < ALPHA


def test_a_softmax_of_log_q_in_fp32_is_refused():
    """Off by 2**-24 or so, which no count of trials sees: q is no multiple of a ticket any more."""
    made = chains.tables(7, 64, 0.7)
    for ids, tickets in zip(made.ids.tolist(), made.tickets, strict=True):
        rows = [dict(zip(ids, tickets.tolist(), strict=True))]
        arguments = fields(Mode.SAMPLED, rows, [ids[0]], 64)
        validated(**arguments)
        with np.errstate(divide="ignore"):
            arguments["q"] = softmax_of_log(torch.from_numpy(arguments["q"]), 1.0).numpy()
        with pytest.raises(WrongError, match="2\\*\\*-24") as caught:
            validated(**arguments)
        assert caught.value.refusal.code is Code.BAD_PROPOSAL


def test_a_delta_that_keeps_its_token_in_the_residual_is_caught(monkeypatch):
    monkeypatch.setattr(vectorised, "_residual", lambda weights, ids, amounts: weights)
    made = chains.tables(7, 64, 1.0)
    modes = torch.full_like(SAMPLED, int(Mode.DELTA))
    counts = chains.counted(made, 1, modes, seed=77)[Mode.DELTA][0]
    assert chance(counts, made.p) < ALPHA
