"""Philox and tickets over many rows equal the exact ones, word for word."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pp4.kernels import dyadic24, philox, vectorised_rows
from pp4.kernels.block import Request
from tests.kernels.test_vectorised import WORD, word_tensors, words

VECTORS = Path(__file__).parents[1] / "vectors"
PHILOX = json.loads((VECTORS / "philox.json").read_text("utf-8"))
DYADIC = json.loads((VECTORS / "dyadic24.json").read_text("utf-8"))


@pytest.mark.parametrize("block", PHILOX["blocks"], ids=lambda block: block["counter"][0])
def test_published_answers(block):
    counter, key = (
        [torch.tensor([int(text, 16)]) for text in block[name]] for name in ("counter", "key")
    )
    found = vectorised_rows.philox4x32_10(counter, key)
    assert [int(word) for word in found] == [int(text, 16) for text in block["words"]]


@pytest.mark.parametrize("known", PHILOX["draft_tickets"])
def test_known_draft_tickets(known):
    words = word_tensors([Request(**{name: known[name] for name in ("key", "position", "round")})])
    assert vectorised_rows.draft_tickets(**words).tolist() == [known["ticket"]]


@given(st.lists(st.tuples(*[words] * 6), min_size=1, max_size=8))
def test_any_block_of_words(blocks):
    columns = [torch.tensor(column) for column in zip(*blocks, strict=True)]
    found = torch.stack(vectorised_rows.philox4x32_10(columns[:4], columns[4:]), dim=1)
    assert found.tolist() == [list(philox.philox4x32_10(one[:4], one[4:])) for one in blocks]


@given(words)
def test_wide_products(word):
    for multiplier in (0xD2511F53, 0xCD9E8D57, WORD):
        high, low = vectorised_rows._wide_product(multiplier, torch.tensor(word))
        assert (int(high) << 32 | int(low)) == multiplier * word


def allocated(*rows):
    values = np.full((len(rows), 32), np.nan, np.float32)
    for place, one in enumerate(rows):
        values[place, : len(one)] = one
    listed = torch.tensor([[column < len(one) for column in range(32)] for one in rows])
    return vectorised_rows.allocate(torch.from_numpy(values), listed)


@pytest.mark.parametrize("vector", DYADIC, ids=lambda vector: str(vector["values"][:3]))
def test_ticket_vectors(vector):
    count = len(vector["values"])
    (found,) = allocated(vector["values"]).tolist()
    assert found == vector["tickets"] + [0] * (32 - count)
    packed = np.array(found[:count], "<i4").tobytes()
    assert hashlib.sha256(packed).hexdigest() == vector["sha256"]


single = st.floats(-40, 40, width=32) | st.floats(width=32, allow_nan=False, allow_infinity=False)
falling = st.lists(single, min_size=1, max_size=32).map(lambda v: sorted(v, reverse=True))


@given(st.lists(falling, min_size=1, max_size=4), words)
def test_tickets_of_any_values(rows, word):
    found, ticket = allocated(*rows), word >> 8
    drawn = vectorised_rows.draw(found, torch.full((len(rows),), ticket))
    for place, values in enumerate(rows):
        tickets = dyadic24.allocate(values)
        assert found[place].tolist() == [*tickets, *[0] * (32 - len(values))]
        assert int(drawn[place]) == dyadic24.draw(tickets, ticket)


@pytest.mark.parametrize("ticket", [0, dyadic24.TICKETS - 1])
def test_the_first_and_the_last_ticket(ticket):
    tickets = [1, 0, dyadic24.TICKETS - 2, 0, 1, *[0] * 27]
    drawn = vectorised_rows.draw(torch.tensor([tickets]), torch.tensor([ticket]))
    assert drawn.tolist() == [dyadic24.draw(tickets, ticket)]
