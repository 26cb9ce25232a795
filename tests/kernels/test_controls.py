"""Every mutant fits its source, is another kernel than the product, and somebody sees it."""

import dataclasses
import sys

import numpy as np
import pytest

from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels.block import Request
from pp4.kernels.controls import MUTANTS, Edit, Mutant, apply, build
from pp4.kernels.controls.build import build_mutant, product_sources
from pp4.kernels.faults import Fault
from pp4.kernels.link import Bounds
from pp4.kernels.ptx import faults
from pp4.kernels.sampled_fused import GREEDY, INACTIVE, SAMPLED
from tests.kernels.cases import POLLS, differences, plain, random_case, solo, stamps
from tests.kernels.pairs import PATIENT

# How each mutant is caught, and by what.  "pair" and "solo" run it in the interpreter; "ptx" reads
# the compiled text, for races that a run may survive.
CAUGHT_BY = {
    "flag_before_data": "pair",
    "dropped_candidate": "pair",
    "reused_epoch": "pair",
    "missing_stamp": "solo",
    "ignores_sticky": "solo",
    "no_error_message": "pair",
    "padded_exchange": "solo",
    "swapped_bounds": "solo",
    "tie_other_way": "solo",
    "mask_swapped": "solo",
    "t0_draws": "solo",
    "skip_bad_test": "solo",
    "missing_barrier": "ptx",
    "relaxed_signal": "ptx",
    "relaxed_chain": "ptx",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("controls")


def found(case, outputs):
    """What a comparison with the reference and the expected stamps sees."""
    expected = case.expected()
    seen = set(differences(outputs, expected))
    return seen | ({"stamp"} if outputs.stamp.tolist() != stamps(case, expected) else set())


def mixed(seed):
    case = random_case(seed, vocab=70, split=41, batch=3, n_out=1)
    requests = [
        dataclasses.replace(request, mode=mode)
        for request, mode in zip(case.requests, (SAMPLED, GREEDY, INACTIVE), strict=True)
    ]
    return dataclasses.replace(case, requests=requests)


def with_nan(n_out=2, shard=0):
    case = random_case(60, vocab=70, split=41, batch=1, n_out=n_out)
    logits = case.logits.copy()
    logits[0, 0, case.geometry.bounds[shard][0] + 3] = np.nan
    return dataclasses.replace(case, logits=logits)


TIES = plain(np.zeros(70, np.float32), tile=32, requests=[Request(key=3)])

# mutant -> (a case that the product passes, what the comparison must see)
SOLO = {
    "missing_stamp": (mixed(61), {"stamp"}),
    "ignores_sticky": (with_nan(), {"ids", "q", "token", "error", "stamp"}),
    "padded_exchange": (mixed(62), {"ids", "token", "stamp"}),
    "swapped_bounds": (mixed(63), {"ids", "token"}),
    "tie_other_way": (TIES, {"ids", "token"}),
    "mask_swapped": (mixed(64), {"q"}),
    "t0_draws": (mixed(65), {"q"}),
    "skip_bad_test": (with_nan(1), {"ids", "q", "token", "error", "stamp"}),
}


def test_every_mutant_has_its_place_in_the_table():
    assert set(CAUGHT_BY) == set(MUTANTS)
    assert set(SOLO) == {name for name, how in CAUGHT_BY.items() if how == "solo"}
    assert [mutant.name for mutant in MUTANTS.values()] == list(MUTANTS)


@pytest.mark.parametrize("name", SOLO)
def test_a_solo_run_sees_it(name, directory):
    case, expected = SOLO[name]
    assert found(case, solo(case)[1]) == set()
    assert found(case, solo(case, build(name, directory)._kernel)[1]) >= expected


@pytest.mark.parametrize("name", SOLO)
def test_its_defect_is_the_same_whether_bias_rows_are_cached(name, directory):
    kernel = build(name, directory)._kernel
    for case in (SOLO[name][0], mixed(66)):
        vocab = case.geometry.vocab
        told = []
        for cached in ((), range(vocab), range(0, vocab, 2)):
            # several panels of a tile, and rows of which an odd number is not cached
            shape = dataclasses.replace(case.geometry, tile=64, panel=32)
            told.append(solo(dataclasses.replace(case, geometry=shape, cached=cached), kernel)[1])
        for one in told[1:]:
            found_apart = set(differences(told[0], one))
            # these two put candidates out of order, and what follows from it may be another one
            disorderly = {"swapped_bounds": {"ids"}, "skip_bad_test": {"ids", "q"}}
            assert found_apart <= disorderly.get(name, set())


@pytest.mark.parametrize("name", MUTANTS)
def test_the_edits_fit_and_the_copy_is_complete(name, directory):
    sources = product_sources()
    edited = apply(MUTANTS[name], sources)
    assert set(edited) == set(sources)
    changed = {file for file in sources if edited[file] != sources[file]}
    assert changed == {edit.file for edit in MUTANTS[name].edits}
    module = build(name, directory)
    assert module._kernel is not None
    assert (
        "pp4.kernels.device"
        not in (directory / module.__package__ / "sampled_fused.py").read_text()
    )
    # the device modules are those of the copy, not the product's
    assert module.exchange.__name__ == f"{module.__package__}.device.exchange"


def test_each_is_another_kernel_when_compiled(compiled):
    # a copy with nothing but a comment more is none
    assert compiled.alike == ["remark"]


@pytest.mark.parametrize("name", [name for name, how in CAUGHT_BY.items() if how == "ptx"])
def test_the_text_of_the_compiled_kernel_shows_it(name, compiled):
    assert faults(compiled.tiny_pair["ptx"], paired=True) == ()
    expected = {
        "missing_barrier": "no block barrier",
        "relaxed_signal": "a store for the peer that is no release",
        "relaxed_chain": "retirement: no acquire-release count",
    }
    assert any(expected[name] in line for line in faults(compiled.mutants[name], paired=True))


def run(pair, name, case, bounds=(PATIENT, PATIENT)):
    return pair.run(dataclasses.replace(case, control=name), bounds)


def test_a_flag_before_its_data_is_seen_on_the_first_use_of_a_slot(pair):
    case = random_case(66, batch=1, n_out=1)
    (_, words), (reader, other) = run(pair, "flag_before_data", case)
    # the reader finds the fill of a new inbox, which no peer could have sent
    assert reader.error.tolist() == [[Fault.PROTOCOL]]
    assert (other.own, words.peer) == (Fault.PROTOCOL, Fault.PROTOCOL)


def test_a_flag_before_its_data_is_seen_on_a_used_slot(pair):
    # what lies in the slot looks like a message, so only the outputs tell
    case = random_case(67, batch=1, n_out=1)
    files = pair.prepare(dataclasses.replace(case, control="flag_before_data"))
    stale = np.memmap(files[1], dtype=np.int64, mode="r+")[:64].reshape(2, 32)
    stale[:] = 0
    stale[:, 0] = (0xC000 << 32) | (5 ^ 0xFFFFFFFF)
    (writer, words), (reader, other) = pair.both("launch", 0, 1)
    pair.both("close")
    assert words.clean
    assert other.clean
    assert found(case, writer) == set()
    assert found(case, reader) >= {"ids", "q"}


def test_a_lost_candidate_makes_the_ranks_differ(pair):
    # the two best lie in different shards, and each rank loses the other's
    case = plain(np.r_[np.arange(40.0), np.arange(40.0)].astype(np.float32), start=1)
    (first, _), (second, _) = run(pair, "dropped_candidate", case)
    assert found(case, first) >= {"ids"}
    assert found(case, second) >= {"ids"}
    assert first.digest() != second.digest()


def test_an_epoch_that_stands_still_is_a_protocol_error_in_the_next_block(pair):
    case = random_case(68, batch=2, n_out=1)
    pair.prepare(dataclasses.replace(case, control="reused_epoch"))
    first, again = (pair.both("launch", 0, 1) for _ in range(2))
    pair.both("close")
    for (before, words), (outputs, _) in zip(first, again, strict=True):
        assert found(case, before) == set()
        assert words.epochs == (case.start, case.start)
        # the peer has acknowledged the epoch that is about to be sent
        assert outputs.error.tolist() == [[Fault.PROTOCOL]] * 2


def test_a_fault_that_is_not_told_ends_as_a_timeout(pair):
    short = Bounds(first_polls=300, next_polls=300)
    product = [words.own for _, words in pair.run(with_nan(), (PATIENT, PATIENT))]
    assert product == [Fault.BAD_LOGITS, Fault.BAD_LOGITS]
    (_, words), (_, other) = run(pair, "no_error_message", with_nan(), (PATIENT, short))
    assert (words.own, words.peer) == (Fault.BAD_LOGITS, Fault.NONE)
    assert (other.own, other.peer) == (Fault.PEER_TIMEOUT, Fault.NONE)


def test_the_product_passes_where_the_pair_mutants_fail(pair):
    case = random_case(68, batch=2, n_out=1)
    for outputs, _ in pair.run(case, (Bounds(first_polls=POLLS), PATIENT)):
        assert found(case, outputs) == set()


SOURCES = {"a.py": "one two two", "b.py": ""}


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (Edit("a.py", "three", ""), "0 matches"),
        (Edit("a.py", "two", ""), "2 matches"),
        (Edit("a.py", "", "x"), "0 matches"),
        (Edit("a.py", "one", "one"), "once"),
        (Edit("c.py", "one", ""), "no such file"),
    ],
)
def test_an_edit_that_does_not_fit_refuses(edit, match):
    with pytest.raises(BadInputError, match=match):
        apply(Mutant("m", "w", (edit,)), SOURCES)


def test_edits_are_applied_in_order():
    mutant = Mutant("m", "w", (Edit("a.py", "one", "three"), Edit("a.py", "three", "four")))
    assert apply(mutant, SOURCES) == {"a.py": "four two two", "b.py": ""}
    assert SOURCES["a.py"] == "one two two"


def test_a_mutant_that_does_not_fit_the_product_is_not_written(tmp_path):
    mutant = Mutant("stale", "w", (Edit("sampled_fused.py", "no such text", ""),))
    with pytest.raises(BadInputError, match=r"stale: edit 1 of sampled_fused.py.*0 matches"):
        build_mutant(mutant, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_refuses(tmp_path):
    with pytest.raises(BadInputError, match="missing_stamp"):
        build("missing", tmp_path)


def test_a_place_that_cannot_be_written_refuses(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError) as caught:
        build("missing_stamp", tmp_path / "file")
    assert caught.value.refusal.code is Code.UNWRITABLE


def test_building_twice_gives_the_same_module_and_another_place_another(tmp_path):
    first = build("missing_stamp", tmp_path / "a")
    assert build("missing_stamp", tmp_path / "a") is first
    second = build("missing_stamp", tmp_path / "b")
    assert second is not first
    assert second.__file__.startswith(str(tmp_path / "b"))


def test_a_copy_that_does_not_import_leaves_nothing_loaded(tmp_path):
    before = set(sys.modules)
    mutant = Mutant("broken", "w", (Edit("sampled_fused.py", "INACTIVE = 0\n", "INACTIVE =\n"),))
    with pytest.raises(SyntaxError):
        build_mutant(mutant, tmp_path)
    assert {name for name in set(sys.modules) - before if name.startswith("pp4_control")} == set()
