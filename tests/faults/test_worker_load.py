"""The load of ``tests.faults.worker_load`` on a worker, as far as there is time for it here."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.worker_load import judged, quiet
from tests.faults.worker_players import Player
from tests.faults.worker_specs import known_specs
from tests.faults.workers import ROOT, Worker

REQUESTS, CLIENTS = 550, 6


@pytest.fixture(scope="module")
def worker(tmp_path_factory, drafter):
    made = Worker(tmp_path_factory.mktemp("loaded"), drafter)
    yield made.serving()
    made.close()


@pytest.fixture(scope="module")
def loaded(worker):
    """What the program says of a load, and its exit code."""
    argv = [sys.executable, "-m", "tests.faults.worker_load", "--socket", str(worker.socket)]
    argv += ["--requests", str(REQUESTS), "--clients", str(CLIENTS)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=env, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def test_no_reply_is_lost_crossed_or_partial(loaded):
    found, code = loaded
    assert found["wrong"] == []
    assert code == 0
    clients, worker = found["clients"], found["worker"]
    assert clients["requests"] == worker["opened"] == REQUESTS
    assert clients["proposals"] > REQUESTS / 2
    # all of it has happened
    for what in ("interrupted", "dropped", "left", "bad"):
        assert clients[what] > 0, what
    assert clients["sessions"] > CLIENTS


@pytest.mark.parametrize(
    ("whose", "what", "by"),
    [
        ("worker", "replies", -1),
        ("worker", "asked", 1),
        ("worker", "without_reply", 1),
        ("worker", "closed", -1),
        ("worker", "disconnects", -1),
        ("worker", "refused_CACHE_FULL", 1),
        ("worker", "padded_rows", 1),
        ("clients", "proposals", -1),
        ("clients", "interrupted", 1),
    ],
)
def test_numbers_that_do_not_add_up_are_noticed(loaded, worker, whose, what, by):
    found, _ = loaded
    whole = {name: Counter(found[name]) for name in ("clients", "worker")}
    # whoever asked before may still be counted as connected
    standing = quiet(worker.socket)
    assert judged(whole["clients"], whole["worker"], standing) == []
    whole[whose][what] += by
    assert judged(whole["clients"], whole["worker"], standing)


def test_a_reply_that_is_not_the_right_one_is_noticed(worker):
    """One bit of what is right is turned over, in one request alone."""
    (right,) = known_specs(worker.socket, seed=1, count=2)[4]
    assert Player(worker.socket, {4: [right]}, seed=1).play(3).wrong == []
    steps = []
    for step in right.steps:
        turned = {bytes([one[0] ^ 1]) + one[1:] for one in step.right}
        steps.append(replace(step, right=frozenset(turned)))
    other = replace(right, steps=tuple(steps))
    (wrong, *_) = Player(worker.socket, {4: [other]}, seed=1).play(3).wrong
    assert "another block: words [0] of 330" in wrong
