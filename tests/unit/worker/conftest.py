"""These tests import the GPU side, which chooses the interpreter when Triton is imported."""

import contextlib
import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import pytest
from triton.runtime import interpreter

from pp4.kernels.priming import specialisation
from pp4.wire.facts import Shape, Waits
from pp4.worker.bench import Bench
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.inputs import geometry_of
from pp4.worker.interpreted import Interpreted
from tests.unit.worker.fronts import Worker
from tests.unit.worker.owners import SHAPE, Asker


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    """One owner process for a module; each test starts a pair of its own in it."""
    asker = Asker(tmp_path_factory.mktemp("owner"))
    yield asker
    asker.close()


@pytest.fixture
def pair(owner):
    """The owner with a fresh pair, sealed and linked, with patient waits."""
    owner.fresh()
    yield owner
    owner.teardown()


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """The exercises of a rank that holds both shards, in this process; nothing was compiled."""
    # a rank makes the interpreter quick for good; here it must be as it was after the test
    function, builder = interpreter.InterpretedFunction, interpreter.interpreter_builder
    monkeypatch.setattr(function, "__call__", function.__call__)
    monkeypatch.setattr(builder, "options", builder.options)
    device = Interpreted(0, Homes(tmp_path, tmp_path / "compiled"), Seats(solo=True))
    one = Bench(0, device, tmp_path, lambda name: None)
    one.geometry = geometry_of(Shape(**SHAPE))
    one.priming.add(specialisation(one.geometry, 2))
    one.seal()
    one.make_link(1, 3, Waits(), 7)
    one.link.connect()
    yield one
    one.close()


@pytest.fixture
def make_worker(tmp_path):
    """Makes workers that end with the test."""
    with contextlib.ExitStack() as ending:

        def made(**given):
            worker = Worker(tmp_path / f"worker-{len(ending._exit_callbacks)}.sock", **given)
            ending.callback(worker.close)
            return worker

        yield made


@pytest.fixture
def worker(make_worker):
    """A worker that serves."""
    return make_worker()


@pytest.fixture
def client(worker):
    """A client that was greeted, at a depth of 4."""
    with worker.client() as connected:
        yield connected
