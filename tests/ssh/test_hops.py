"""Steps on a further host: opened, worked in, closed; what is left on both hosts."""

import hashlib

import pytest

from pp4.wire.hops import Brought
from tests.faults.windows import gone, tokens, tombstone, until, window
from tests.ssh.further import Further, books, drill
from tests.ssh.servers import needs_sshd

pytestmark = needs_sshd
EVERY = ["plain", "deaf", "setsid", "twice"]


@pytest.fixture
def near(tmp_path):
    """Where the near host keeps its things."""
    place = tmp_path / "near"
    place.mkdir()
    return place


@pytest.fixture
def far(start_sshd, tmp_path):
    """A further host."""
    return Further(start_sshd("far"), tmp_path / "further")


def test_a_hop_runs_a_far_step_with_a_file_and_leaves_nothing(near, far):
    source = near / "words"
    source.write_bytes(b"brought" * 1000)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    brought = Brought(source=str(source), target="data/words", sha256=digest)
    with window(near) as one:
        step = drill(answer={"n": 7}, start=EVERY, read="data/words")
        hopped = one.hop("engine", far.login(), step, [brought])
        (told,) = one.watching.items
        known = tokens(told["pid"], *told["pids"])
        supervisor = far.supervisor(hopped.hold)
    assert hopped.facts == {"n": 7}
    assert told["sha256"] == digest
    assert hopped.tombstone == far.tombstone(hopped.hold)
    assert (hopped.tombstone["why"], hopped.tombstone["survivors"]) == ("done", [])
    assert far.registration(hopped.hold)["parent"]["hold"] == one.granted.hold
    assert hopped.tombstone["fence"] == str(one.granted.fence)
    assert books(one, 1, "closed")["tombstone"] == hopped.tombstone
    assert one.tombstone == tombstone(near, one.granted.hold)
    assert one.tombstone["why"] == "done"
    assert gone(known)
    until(lambda: not supervisor.alive())
