"""Judges of gate 1: every branch, from facts made by hand."""

import pytest

from pp4.errors import Code
from pp4.qualify import judge
from tests.unit.qualify.judged import one_primed

KERNEL = {"code": "UNPRIMED", "where": "kernel sampled_fused"}


@pytest.mark.parametrize(
    ("refusals", "code"),
    [
        ([KERNEL, KERNEL], Code.UNPRIMED),
        ([KERNEL, None], None),
        ([None, None], None),
        ([KERNEL], None),
        ([], None),
        # the same code where priming itself came to nothing, or there is no rendezvous
        ([KERNEL, {**KERNEL, "where": "block"}], None),
        ([{**KERNEL, "where": "block"}] * 2, None),
        ([{**KERNEL, "where": "link"}] * 2, None),
        ([{**KERNEL, "code": "INTERNAL"}] * 2, None),
    ],
)
def test_unprimed_is_refused_by_the_kernel_on_both_ranks(refusals, code):
    assert judge.unprimed(refusals) is code


@pytest.mark.parametrize(
    ("change", "first_launch", "meanwhile", "code"),
    [
        ({}, 11, "UNPRIMED", None),
        ({}, 12, "UNPRIMED", None),
        ({}, 10, "UNPRIMED", Code.LAUNCHED_BEFORE_PRIMED),
        ({}, 12, "", Code.LAUNCHED_BEFORE_PRIMED),
        ({}, 12, "STICKY", Code.LAUNCHED_BEFORE_PRIMED),
        ({"key": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"ptx_sha256": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"cubin_sha256": "x"}, 12, "UNPRIMED", Code.KERNELS_DIFFER),
        ({"key": "x"}, 0, "", Code.KERNELS_DIFFER),
    ],
)
def test_primed(change, first_launch, meanwhile, code):
    ones = [one_primed(0), one_primed(1, **change)]
    assert judge.primed(ones, first_launch, meanwhile) is code


@pytest.mark.parametrize("count", [0, 1, 3])
def test_primed_needs_two(count):
    ones = [one_primed(0)] * count
    assert judge.primed(ones, 99, "UNPRIMED") is Code.KERNELS_DIFFER


@pytest.mark.parametrize(
    ("change", "cached", "code"),
    [
        ({}, (3, 3), None),
        ({"ptx_sha256": "x"}, (3, 3), Code.KERNELS_DIFFER),
        ({"cubin_sha256": "x"}, (3, 3), Code.KERNELS_DIFFER),
        ({}, (3, 4), Code.COMPILED_AFTER_PRIMING),
        ({}, (0, 0), Code.COMPILED_AFTER_PRIMING),
    ],
)
def test_a_shape_compiled_again_is_what_was_primed(change, cached, code):
    primed = [one_primed(0), one_primed(1)]
    again = [one_primed(0), one_primed(1, **change)]
    assert judge.one_specialisation(again, primed, cached) is code


def test_where_compilations_are_counted_the_cache_is_not():
    ones = [one_primed(0), one_primed(1)]
    assert judge.one_specialisation(ones, ones, None) is None
    other = [one_primed(0), one_primed(1, cubin_sha256="x")]
    assert judge.one_specialisation(other, ones, None) is Code.KERNELS_DIFFER


def test_without_anything_primed_nothing_is_the_same():
    ones = [one_primed(0), one_primed(1)]
    assert judge.one_specialisation(ones, (), (3, 3)) is Code.KERNELS_DIFFER
    assert judge.one_specialisation((), (), (3, 3)) is Code.KERNELS_DIFFER
    assert judge.one_specialisation(ones[:1], ones, (3, 3)) is Code.KERNELS_DIFFER


@pytest.mark.parametrize(
    ("resident", "rows", "refused", "code"),
    [
        # nobody waits, or nothing is resident
        ([], 32, None, None),
        ([None, None], 32, None, None),
        ([33, 528], 32, Code.OCCUPANCY, None),
        ([528, 528], 32, Code.OCCUPANCY, None),
        # as many rows as blocks leave no room
        ([32, 528], 32, Code.OCCUPANCY, Code.OCCUPANCY),
        ([528, 0], 32, Code.OCCUPANCY, Code.OCCUPANCY),
        # one rank does not say
        ([528, None], 32, Code.OCCUPANCY, Code.OCCUPANCY),
        # such a rendezvous went through, or was refused for another reason, or was not asked for
        ([528, 528], 32, Code.INCOMPLETE, Code.OCCUPANCY),
        ([528, 528], 32, Code.BAD_INPUT, Code.OCCUPANCY),
        ([528, 528], 32, None, Code.OCCUPANCY),
        ([None, None], 32, Code.OCCUPANCY, Code.OCCUPANCY),
    ],
)
def test_fewer_rows_wait_than_blocks_are_resident(resident, rows, refused, code):
    ones = [one_primed(rank=rank, resident=blocks) for rank, blocks in enumerate(resident)]
    assert judge.crowded(ones, rows, refused) is code
