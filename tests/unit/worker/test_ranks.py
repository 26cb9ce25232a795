"""The owner's end of a pair: what is left where a fork, a pipe or a rank lets it down."""

import os

import pytest

from pp4.errors import Code, TimedOutError
from pp4.worker import ranks
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.ranks import Pair
from tests.unit.processes import halt


@pytest.fixture
def homes(tmp_path):
    return Homes(tmp_path, tmp_path / "compiled")


def descriptors():
    """What this process has open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:
            continue
        found.add(int(name))
    return found


def nth(number, real, error):
    """A function that fails at its n-th call."""
    calls = []

    def call(*given):
        calls.append(given)
        if len(calls) == number:
            raise error
        return real(*given)

    return call


@pytest.mark.parametrize("number", [1, 2])
def test_a_fork_that_fails_leaves_no_descriptor_and_no_rank(homes, monkeypatch, number):
    before, pids = descriptors(), []
    fork = nth(number, os.fork, OSError(11, "no process"))
    monkeypatch.setattr(ranks.os, "fork", lambda: pids.append(pid := fork()) or pid)
    with pytest.raises(OSError, match="no process"):
        Pair(homes, Seats())
    assert descriptors() == before
    assert len(pids) == number - 1
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_pipe_that_fails_leaves_no_descriptor(homes, monkeypatch):
    before = descriptors()
    monkeypatch.setattr(ranks.os, "pipe", nth(3, os.pipe, OSError(24, "too many")))
    with pytest.raises(OSError, match="too many"):
        Pair(homes, Seats())
    assert descriptors() == before


def test_a_child_that_cannot_close_ends_and_leaves_its_sibling_alone(homes, monkeypatch):
    owner, forks, close = os.getpid(), [], os.close

    def second_child_fails(descriptor):
        if os.getpid() != owner and len(forks) == 1:
            raise OSError(9, "bad descriptor")
        close(descriptor)

    def fork(real=os.fork):
        pid = real()
        if pid:
            forks.append(pid)
        return pid

    monkeypatch.setattr(ranks.os, "fork", fork)
    monkeypatch.setattr(ranks.os, "close", second_child_fails)
    try:
        pair = Pair(homes, Seats())
    finally:
        if os.getpid() != owner:
            # without the owner's part kept out of the child, the child comes as far as this
            os._exit(7)
    try:
        pid, status = os.waitpid(pair[1].pid, 0)
        assert (pid, os.waitstatus_to_exitcode(status)) == (forks[1], 1)
        # its sibling lives: it is not the child's to bury
        assert os.waitpid(pair[0].pid, os.WNOHANG) == (0, 0)
    finally:
        pair.bury()


def test_a_request_that_was_torn_breaks_the_pair(homes):
    pair = Pair(homes, Seats())
    try:
        halt(pair[1].pid)
        ballast = {"text": "x" * (1 << 20)}
        with pytest.raises(TimedOutError):
            pair.both("identity", ({}, ballast), 1.0)
        assert pair.broken is Code.STEP_TIMEOUT
    finally:
        pair.bury()
