"""What is primed, sealed and compiled too late, whoever notices it."""

import pytest

from pp4.errors import Code, RefusedError, WrongError
from pp4.kernels.block import POISON_INT
from pp4.kernels.priming import specialisation
from pp4.wire.facts import Case, Compiled, Launch, Shape, Waits
from pp4.worker.inputs import geometry_of
from tests.unit.worker.owners import OTHER, SHAPE

BUILT = Compiled(target="sm_90", ptx_sha256="p", cubin_sha256="c", faults=())
CASE = Case(batch=2, n_out=2, seed=5, modes=(1, 1))


def code(call):
    with pytest.raises((RefusedError, WrongError)) as caught:
        call()
    return caught.value.refusal.code


@pytest.fixture
def compiled(bench, monkeypatch):
    """What the device was asked to compile."""
    asked = []
    monkeypatch.setattr(
        bench.device, "prime", lambda *given, recorded: asked.append(given) or (BUILT, recorded)
    )
    return asked


def test_where_nothing_is_counted_nothing_is_compiled_after_the_seal(bench, compiled):
    assert bench.device.compilations() is None
    late = code(lambda: bench.prime(Shape(**OTHER), 2, recorded=True))
    assert late is Code.COMPILED_AFTER_PRIMING
    assert compiled == []
    # the geometry that launches use is still the primed one
    assert bench.require_geometry() == geometry_of(Shape(**SHAPE))


def test_where_compilations_are_counted_they_are_not_taken_for_primed(bench, compiled, monkeypatch):
    monkeypatch.setattr(bench.device, "compilations", lambda: 0)
    late = code(lambda: bench.prime(Shape(**OTHER), 2, recorded=True))
    assert late is Code.COMPILED_AFTER_PRIMING
    assert bench.require_geometry() == geometry_of(Shape(**SHAPE))
    key = specialisation(geometry_of(Shape(**OTHER)), 2)
    assert code(lambda: bench.priming.require(key)) is Code.UNPRIMED


def test_what_was_primed_may_be_primed_again(bench, compiled):
    for recorded in (True, False):
        key, built, known = bench.prime(Shape(**SHAPE), 2, recorded=recorded)
        assert (key, built, known) == (specialisation(bench.geometry, 2), BUILT, recorded)
    assert compiled == [(Shape(**SHAPE), 2)] * 2


def test_a_seal_reaches_the_device(bench, monkeypatch):
    sealed = []
    monkeypatch.setattr(bench.device, "seal", lambda: sealed.append(bench.priming.sealed))
    bench.seal()
    assert sealed == [True]


def test_a_control_after_the_seal_is_refused_and_does_not_run(bench):
    late = code(lambda: bench.plant(Shape(**SHAPE), "missing_stamp"))
    assert late is Code.COMPILED_AFTER_PRIMING
    launch = Launch(control="missing_stamp")
    assert code(lambda: bench.run(CASE, launch)) is Code.UNPRIMED
    assert code(lambda: bench.capture("g", CASE, "missing_stamp")) is Code.UNPRIMED


def test_a_control_is_of_the_shards_that_are_here(bench):
    bench.priming.sealed = False
    bench.plant(Shape(**SHAPE), "missing_stamp")
    bench.seal()
    bench.priming.require(specialisation(bench.geometry, 2, "missing_stamp"))
    key = specialisation(bench.geometry, 1, "missing_stamp")
    assert code(lambda: bench.priming.require(key)) is Code.UNPRIMED
    found = bench.run(CASE, Launch(control="missing_stamp"))
    assert found.clean
    assert found.stamps == ((POISON_INT,) * 2,) * 2
    # the product runs beside it and is another kernel
    assert bench.run(CASE, Launch()).stamps == ((10, 11),) * 2


def test_a_frozen_graph_keeps_the_keys_of_its_capture(bench):
    other = CASE.model_copy(update={"seed": 6})
    bench.capture("good", CASE, None)
    bench.capture("bad", CASE, "frozen-input")
    good, bad = (bench.run(other, Launch(graph=name)) for name in ("good", "bad"))
    assert good.digest == bench.expect(other, "reference").digest
    assert bad.digest != good.digest
    # at the inputs of its capture nobody could tell
    bad, good = (bench.run(CASE, Launch(graph=name)) for name in ("bad", "good"))
    assert bad.digest == good.digest


def test_a_graph_that_was_not_captured_is_missing(bench):
    assert code(lambda: bench.run(CASE, Launch(graph="none"))) is Code.MISSING_SAMPLED_GRAPH


def test_a_new_link_forgets_graphs_and_buffers_of_the_old_one(bench):
    bench.capture("g", CASE, None)
    before = bench.sampled_block(CASE)
    assert bench.sampled_block(CASE) is before
    bench.make_link(2, 3, Waits(), 70)
    assert code(lambda: bench.run(CASE, Launch(graph="g"))) is Code.MISSING_SAMPLED_GRAPH
    assert bench.sampled_block(CASE) is not before
    assert bench.run(CASE, Launch()).stamps == ((71, 72),) * 2


def test_a_launch_is_held_back_by_what_was_asked_for_and_gives_the_same(bench, monkeypatch):
    said, digests = [], set()
    monkeypatch.setattr(bench.device, "delay", said.append)
    monkeypatch.setattr(bench, "pause", said.append)
    bench.capture("g", CASE, None)
    for graph in (None, "g"):
        for delay_ns in (0, 7):
            digests.add(bench.run(CASE, Launch(graph=graph, delay_ns=delay_ns)).digest)
    # it said that it launches before it held anything back, or the peer would have no head start
    assert said == ["launching", "launching", 7] * 2
    assert len(digests) == 1


def test_a_launch_that_pauses_says_so_before_its_position_and_goes_on(bench, monkeypatch):
    said, launched = [], []
    monkeypatch.setattr(bench, "pause", lambda name: said.append((name, len(launched))))
    block = bench.sampled_block(CASE)
    launch = block.launch
    monkeypatch.setattr(block, "launch", lambda index: launched.append(index) or launch(index))
    found = bench.run(CASE, Launch(pause_before=1))
    assert said == [("launching", 0), ("paused", 1)]
    assert launched == [0, 1]
    assert found.clean


def test_epochs_may_be_bounded_from_the_start_of_a_link(bench):
    bench.make_link(2, 3, Waits(epochs=1), 70)
    found = bench.run(CASE, Launch())
    assert found.errors == ((0, 5), (0, 5))
    assert (found.own_error, found.epochs) == (5, (71, 71, 70))
