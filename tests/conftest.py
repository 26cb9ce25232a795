"""What every test gets: an environment of its own, and hypothesis without a clock."""

import itertools
import os
import re
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests import refusals

# A deadline would fail tests for the load of the machine.  Under CI the examples are the same each
# time, so that a red run can be repeated.
settings.register_profile(
    "pp4",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pp4")

# Whoever started the tests may have ignored signals (nohup does), and children inherit that.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

# What owners compile takes a while, so all workers of a run share it: they inherit the name.
if "TEST_COMPILED" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="pp4-compiled-")
    os.environ["TEST_COMPILED"] = _compiled.name

# Read when torch is imported.  Its threads would wait for each other at full speed, on cores that
# the other workers of the run need: a test took several times as long as with threads that sleep.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_OURS = ("PP4_", "DSPARK_", "VLLM_DSPARK_")


_places = itertools.count()


@pytest.fixture
def place_of_test(request, tmp_path_factory):
    """A path of each test's own, where nothing is yet.

    Pytest's own numbers are found by a look at all directories of the tests before, which takes
    longer than most tests.
    """
    name = re.sub(r"\W", "_", request.node.name)[:20]
    return tmp_path_factory.getbasetemp() / f"{name}-{next(_places)}"


@pytest.fixture
def tmp_path(place_of_test):
    """A directory of a test's own."""
    place_of_test.mkdir(mode=0o700)
    return place_of_test


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, place_of_test):
    """Keep the person's settings out of the tests, and the tests out of the person's state."""
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PP4_STATE_DIR", str(place_of_test / "pp4-state"))
    monkeypatch.setenv("PP4_HOST_DIR", str(place_of_test / "pp4-host"))


refusals.watch()


@pytest.fixture(autouse=True)
def _refusals_read_like_help():
    """Fail a test in which pp4 refused something in a form that helps nobody."""
    yield
    found = refusals.malformed()
    assert not found, "refusals that do not read like help:\n" + "\n".join(found)


def pytest_collection_modifyitems(items):
    """Start with what takes longest, and skip what needs a GPU where there is none."""
    # whole gates in processes of their own, then whatever is slow: at the end, workers that have
    # nothing left to do would wait for them
    items.sort(key=_haste, reverse=True)
    _skip_without_gpus(items)


def _haste(item):
    """How early a test starts."""
    if "rehearsed" in item.fixturenames:
        return 2
    return 1 if item.get_closest_marker("slow") else 0


def _skip_without_gpus(items):
    """Torch is asked only if a test that needs a GPU was chosen."""
    needs = {"gpu": 1, "pair": 2}
    marked = [(item, name) for item in items for name in needs if item.get_closest_marker(name)]
    if not marked:
        return
    try:
        import torch

        found = torch.cuda.device_count()
    except ImportError:
        found = 0
    for item, name in marked:
        if found < needs[name]:
            reason = f"needs {needs[name]} GPU(s), found {found}"
            item.add_marker(pytest.mark.skip(reason=reason))
