"""What both ranks have loaded for a drafter has to be the same, and is told."""

import asyncio
from pathlib import Path

import pytest

from pp4.errors import Code, WrongError
from pp4.wire.facts import Identity, Primed, Waits
from pp4.worker.serving import starting
from pp4.worker.serving.setup import Setup

SETUP = Setup(Path("/c"), None, (1,), (4, 5), 1, 64, 0, True, Waits(), "nonce", 1)


def bias(rank, cubin="5"):
    return Primed(
        rank=rank,
        key="bias_rows[256]",
        target="sm_90",
        ptx_sha256="4" * 64,
        cubin_sha256=cubin * 64,
        faults=(),
        primed_ns=1,
    )


def identity(rank):
    return Identity(
        rank=rank,
        pid=40 + rank,
        device=f"GPU-{rank}",
        device_name="H200",
        peer_access=True,
        python="3",
        torch="2",
        triton="3",
        mapped="m",
    )


class Ranks:
    """Two ranks that answer as a test says.

    Attributes:
        failed: by what error they are over.
    """

    def __init__(self, *loaded):
        self.failed = None
        self._answers = {
            "identity": tuple(identity(rank).model_dump(mode="json") for rank in (0, 1)),
            "serve.load": tuple(
                {"bias": None if one is None else one.model_dump(mode="json")} for one in loaded
            ),
        }

    async def both(self, verb, given, limit_s, harmless):
        return self._answers[verb]

    def fail(self, error):
        self.failed = error
        return error


def load(ranks):
    return asyncio.run(starting.load(ranks, SETUP))


def test_it_is_told_what_makes_bias_rows_on_each_rank():
    who, found = load(Ranks(bias(0), bias(1)))
    assert who == (identity(0), identity(1))
    assert found == [bias(0), bias(1)]


def test_where_no_kernel_makes_them_none_is_told():
    assert load(Ranks(None, None))[1] == []


def test_ranks_that_make_them_differently_are_over():
    ranks = Ranks(bias(0), bias(1, "6"))
    with pytest.raises(WrongError) as caught:
        load(ranks)
    assert caught.value.refusal.code is Code.KERNELS_DIFFER
    assert ranks.failed is caught.value
