"""The frozen inputs: the same on every machine, and all that the issue asks to be in them."""

from dataclasses import replace

import numpy as np
import pytest

from pp4.worker import frozen_inputs
from pp4.worker.frozen_inputs import (
    PLANS,
    Piece,
    Sizes,
    depths,
    input_set_sha256,
    longest,
    scripts,
)

SIZES = Sizes(vocab=259, feature_width=64, block=5)
SETS = sorted(PLANS)
every_set = pytest.mark.parametrize("inputs", SETS)


def every_row(inputs):
    """Each row of each script with its turns."""
    for script in scripts(inputs, SIZES):
        for row in range(script.batch):
            pieces = [[one for one in turn.pieces if one.row == row] for turn in script.turns]
            yield script, row, pieces, [turn.rows[row] for turn in script.turns]


def test_the_sets_are_those_of_the_receipts():
    """Written down: a change of any input is a change of what archived receipts are about."""
    assert input_set_sha256("small", SIZES) == (
        "dec9c05073248ad510dac929d3d6f9f3472dc085be4edc6ea7ccbfbe03bd191c"
    )
    assert input_set_sha256("full", Sizes(vocab=151936, feature_width=5120, block=5)) == (
        "697cbc440dd90210cff450c315e8e8ac6775632ecf00491e96710538b6c59510"
    )


def test_the_full_set_has_what_was_asked_for():
    found = {(script.batch, script.n_out) for script in scripts("full", SIZES)}
    assert found == {(batch, n_out) for batch in (1, 3, 8) for n_out in (4, 5)}
    assert depths("full") == (4, 5)


@every_set
def test_it_has_mixed_batches_and_pure_ones_at_every_size(inputs):
    """A small set leaves batches out in which every row of several is drawn."""
    drawn, greedy, mixed = frozenset({True}), frozenset({False}), frozenset({True, False})
    for script in scripts(inputs, SIZES):
        kinds = {frozenset(asked.sampled for asked in turn.rows) for turn in script.turns}
        several = {mixed, greedy, drawn} if inputs == "full" else {mixed, greedy}
        assert kinds == ({drawn, greedy} if script.batch == 1 else several)


def test_other_rows_of_a_mixed_batch_are_drawn_each_time():
    for script in scripts("full", SIZES):
        kinds = [tuple(asked.sampled for asked in turn.rows) for turn in script.turns]
        mixed = {one for one in kinds if len(set(one)) > 1}
        assert len(mixed) == (0 if script.batch == 1 else 2)


@every_set
def test_positions_follow_from_the_features_and_rounds_rise(inputs):
    for _, _, pieces, asked in every_row(inputs):
        length = 0
        for before, one in zip(pieces, asked, strict=True):
            for piece in before:
                assert (piece.first, piece.tokens > 0) == (length, True)
                length += piece.tokens
            assert before
            assert one.position == length + 1
        rounds = [one.round for one in asked]
        assert rounds == sorted(set(rounds))
        assert rounds[0] >= 0
        assert rounds[-1] < 1 << 32
        assert length <= longest(inputs)


@every_set
def test_between_rounds_a_block_s_tokens_and_one_more_are_accepted_at_most(inputs):
    for script, _, pieces, _ in every_row(inputs):
        for before in pieces[1:]:
            assert 1 <= sum(piece.tokens for piece in before) <= script.n_out + 1


@every_set
def test_keys_anchors_and_temperatures_are_in_their_ranges(inputs):
    keys = [key for script in scripts(inputs, SIZES) for key in script.keys]
    assert len(set(keys)) == len(keys)
    assert all(0 <= key < 1 << 64 for key in keys)
    assert all(script.keys[0] >> 63 for script in scripts(inputs, SIZES))
    for *_, asked in every_row(inputs):
        for one in asked:
            assert 0 <= one.anchor < SIZES.vocab
            assert (float(one.temperature) > 0) is one.sampled


def test_rows_of_a_batch_begin_with_different_lengths():
    for script in scripts("full", SIZES):
        first = [asked.position for asked in script.turns[0].rows]
        assert len(set(first)) == script.batch
    # in several parts, one of them at least
    assert any(
        len(turn.pieces) > len(turn.rows) for s in scripts("full", SIZES) for turn in s.turns
    )


def test_large_rounds_and_long_contexts_are_among_them():
    rows = list(every_row("full"))
    assert max(asked[-1].round for *_, asked in rows) >= 1 << 30
    assert max(asked[-1].position for *_, asked in rows) > 64


@every_set
def test_features_are_finite_and_differ(inputs):
    seen = set()
    for script in scripts(inputs, SIZES):
        for turn in script.turns:
            for piece in turn.pieces:
                raw = script.features(piece, SIZES)
                assert len(raw) == 2 * piece.tokens * SIZES.feature_width
                assert raw not in seen
                seen.add(raw)
                wide = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
                values = np.abs(wide.view(np.float32))
                assert np.isfinite(values).all()
                assert values.min() >= 2.0**-7
                assert values.max() < 2.0


def test_a_digest_covers_every_size():
    found = {
        input_set_sha256("small", sizes)
        for sizes in (
            SIZES,
            Sizes(258, 64, 5),
            Sizes(259, 66, 5),
            Sizes(259, 64, 7),
        )
    }
    found.add(input_set_sha256("full", SIZES))
    assert len(found) == 5


def test_a_digest_covers_every_byte_that_is_sent(monkeypatch):
    """Each kind of number in the set, changed by one, is another set."""
    whole = input_set_sha256("small", SIZES)
    first, script, *others = scripts("small", SIZES)
    turn = script.turns[1]
    changes = {
        "key": {"keys": (script.keys[0] ^ 1, *script.keys[1:])},
        "piece": {
            "turns": (
                script.turns[0],
                replace(turn, pieces=(Piece(0, 0, 1), *turn.pieces[1:])),
                *script.turns[2:],
            )
        },
        **{
            name: {
                "turns": (
                    script.turns[0],
                    replace(turn, rows=(replace(turn.rows[0], **{name: value}), *turn.rows[1:])),
                    *script.turns[2:],
                )
            }
            for name, value in (
                ("position", turn.rows[0].position + 1),
                ("round", turn.rows[0].round + 1),
                ("anchor", turn.rows[0].anchor + 1),
                ("temperature", "0.3"),
            )
        },
    }
    for name, change in changes.items():
        spoiled = (first, replace(script, **change), *others)
        with monkeypatch.context() as patch:
            patch.setattr(
                frozen_inputs,
                "scripts",
                lambda inputs, sizes, spoiled=spoiled: spoiled,
            )
            assert input_set_sha256("small", SIZES) != whole, name
