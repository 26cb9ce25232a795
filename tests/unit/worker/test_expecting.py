"""What a case must give: tensors say what the exact integers say."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pp4.kernels.faults import Fault
from pp4.wire.facts import Case, Shape
from pp4.worker import expecting, inputs
from tests.unit.worker.owners import SHAPE

CPU = torch.device("cpu")
GEOMETRY = inputs.geometry_of(Shape(**SHAPE))
CONTENTS = ("random", "constant", "tile-ties", "shard-ties", "two-finite", "extremes")


def case(batch=3, n_out=3, seed=5, modes=(1, 2, 0), **more):
    return Case(batch=batch, n_out=n_out, seed=seed, modes=modes, **more)


def both(one):
    """Digests by integers and by tensors."""
    tensors = expecting.outputs(expecting.by_tensors(GEOMETRY, one, CPU))
    return expecting.by_integers(GEOMETRY, one, CPU), tensors


def agree(one):
    integers, tensors = both(one)
    for name in ("ids", "q", "token", "error", "stamp"):
        found, wanted = getattr(tensors, name), getattr(integers, name)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
        assert found.tobytes() == wanted.tobytes(), name
    assert tensors.digest() == integers.digest()
    return integers


@pytest.mark.parametrize("content", CONTENTS)
def test_tensors_and_integers_agree_on_every_content(content):
    outputs = agree(case(content=content))
    assert not outputs.error.any()
    assert outputs.q[0].any()
    assert not outputs.q[1:].any()


@pytest.mark.parametrize(
    ("flaw", "fault"),
    [("nan", Fault.BAD_LOGITS), ("inf", Fault.BAD_LOGITS), ("empty", Fault.EMPTY_ROW)],
)
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("at", [0, 1])
def test_tensors_and_integers_agree_on_every_flaw(flaw, fault, mode, at):
    outputs = agree(case(modes=(mode, 1, 0), flaw=flaw, flaw_rank=1, flaw_at=at))
    assert outputs.error[0].tolist() == [0] * at + [fault] * (3 - at)
    assert not outputs.error[1:].any()


def test_padding_is_not_looked_at():
    outputs = agree(case(modes=(0, 1, 0), poisoned=(0, 2), flaw="inf"))
    assert not outputs.error.any()


@given(
    st.integers(0, 1 << 40),
    st.sampled_from(CONTENTS),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.integers(1, 3),
)
@settings(max_examples=15)
def test_tensors_and_integers_agree_on_any_case(seed, content, modes, n_out):
    agree(
        Case(batch=len(modes), n_out=n_out, seed=seed, modes=tuple(modes), content=content),
    )


def test_what_is_cached_changes_no_expectation(bench):
    digests = {
        (by, cached): bench.expect(case(cached=cached), by).digest
        for by in ("reference", "vectorised", "solo")
        for cached in ("none", "mixed", "most", "all")
    }
    assert len(set(digests.values())) == 1


def test_an_expectation_says_by_what_it_was_made(bench):
    one = case(modes=(1, 1, 2))
    found = [bench.expect(one, by) for by in ("reference", "vectorised", "solo")]
    assert [each.by for each in found] == ["reference", "vectorised", "solo"]
    assert len({each.model_copy(update={"by": "solo"}) for each in found}) == 1
    assert len(set(found[0].rows)) == 3
