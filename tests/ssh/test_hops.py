"""Steps on a further host: opened, worked in, closed; what is left on both hosts."""

import hashlib
import json
import os
import platform
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.config.hold_file import load_hold_file
from pp4.errors import Code, Pp4Error
from pp4.hold.hop import far_host
from pp4.hold.hop_books import read_hop, write_book
from pp4.hold.line import Line
from pp4.hold.reach import reached_host
from pp4.qualify.held import qualify_on_host
from pp4.qualify.hops import arrive
from pp4.qualify.progress import Silent
from pp4.qualify.wanted import Wanted
from pp4.receipts.digests import installed_source, sha256_hex
from pp4.wire.hops import Brought, FarStep, Recorded, part_of
from tests.faults.windows import PATIENCE_S, gone, tokens, tombstone, until, window
from tests.faults.windows import asked as asking
from tests.ssh.further import Further, books, drill
from tests.ssh.relays import Relay
from tests.ssh.servers import Sshd, fingerprint, needs_sshd

pytestmark = needs_sshd
ORIGIN = "00000000000000aa"
EVERY = ["plain", "deaf", "setsid", "twice"]


@pytest.fixture(scope="module")
def hopped(tmp_path_factory):
    """One hop that did what it was asked for, which several tests look at."""
    near, there = (tmp_path_factory.mktemp(name) for name in ("near", "there"))
    server = Sshd(there / "sshd")
    try:
        far = Further(server, there / "further")
        with window(near, bound_s=300.0) as one:
            found = one.hop("engine", far.login(), drill(answer={"n": 7}, start=EVERY))
            (told,) = one.watching.items
            known = tokens(told["pid"], *told["pids"])
            supervisor = far.supervisor(found.hold)
        yield SimpleNamespace(
            near=near, far=far, one=one, found=found, known=known, supervisor=supervisor
        )
    finally:
        server.stop()


def test_a_hop_runs_a_far_step_and_leaves_nothing(hopped):
    one, far, found = hopped.one, hopped.far, hopped.found
    assert found.facts == {"n": 7}
    assert found.tombstone == far.tombstone(found.hold)
    assert (found.tombstone["why"], found.tombstone["survivors"]) == ("done", [])
    assert far.registration(found.hold)["parent"]["hold"] == one.granted.hold
    assert found.tombstone["fence"] == str(one.granted.fence)
    assert books(one, 1, "closed")["tombstone"] == found.tombstone
    assert one.tombstone == tombstone(hopped.near, one.granted.hold)
    assert one.tombstone["why"] == "done"
    assert gone(hopped.known)
    until(lambda: not hopped.supervisor.alive())


def test_a_far_deadline_comes_before_the_near_one(hopped):
    # both hosts are this machine, so that their boot times may be compared for once
    far_end = int(hopped.far.registration(hopped.found.hold)["deadline_boottime_ns"])
    near_end = hopped.one.granted.deadline_boottime_ns
    assert far_end < near_end
    # what the far end keeps for itself is kept of what the near end gives it
    left_s = (near_end - far_end) / 1e9
    assert 0.05 * 270 < left_s < 270


def test_the_journal_names_every_hop_and_its_end_and_no_address(hopped):
    held = hopped.near / "state" / "holds" / hopped.one.granted.hold
    text = (held / "journal.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    told = [(line["event"], line["found"]) for line in lines if line["step"] == "hop-engine"]
    assert told == [("hop", None), ("hop-end", "tombstone: done")]
    assert hopped.far.login().address not in text
    assert hopped.far.login().identity_file not in text


def words_of(near, data=b"brought" * 1000, name="words", **different):
    """A file of the near host, as it is asked for."""
    source = near / name
    source.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    given = {"source": str(source), "target": "words", "sha256": digest, **different}
    return Brought(**given)


def refused(one, far, step, files=(), name="engine", **login):
    """The refusal of a hop."""
    with pytest.raises(Pp4Error) as raised:
        one.hop(name, far.login(**login), step, files)
    return raised.value.refusal


def test_one_machine_and_one_directory_may_be_both_ends(near, far):
    directories = {"state_dir": str(near / "state"), "host_dir": str(near / "host")}
    with window(near) as one:
        hopped = one.hop("engine", far.login(**directories), drill(answer={"n": 1}, start=EVERY))
        known = tokens(*one.watching.items[0]["pids"])
        assert hopped.hold != one.granted.hold
        # the child took nothing: the parent goes on, and can hop again
        again = one.hop("again", far.login(**directories), drill(answer={"n": 2}))
    assert (hopped.facts, again.facts) == ({"n": 1}, {"n": 2})
    for hold in (hopped.hold, again.hold, one.granted.hold):
        assert tombstone(near, hold)["why"] == "done"
    assert gone(known)
    with window(near) as later:
        assert later.granted.fence == one.granted.fence + 1


def test_a_far_host_with_another_key_is_refused_with_both_fingerprints(near, far, start_sshd):
    other = start_sshd("other")
    with window(near) as one:
        refusal = refused(one, far, drill(answer={}), host_key=other.host_key)
        assert refusal.code is Code.HOST_KEY
        assert fingerprint(far.server.host_key_files[0]) in str(refusal)
        assert fingerprint(other.host_key_files[0]) in str(refusal)
    # nothing was asked for there, so that nothing has to be proven
    assert far.holds() == []
    assert books(one, 1) is not None
    assert books(one, 1, "asked") is None
    assert one.tombstone["why"] == "done"


def test_a_far_host_that_is_not_there_keeps_no_gpu_back(near, far):
    far.server.stop()
    with window(near) as one:
        assert refused(one, far, drill(answer={})).code is Code.UNREACHABLE
    assert one.tombstone["why"] == "done"


def test_what_a_far_host_refuses_names_that_host_and_needs_no_proof(near, far):
    with window(near) as one:
        # a directory that is somebody's, and nobody's own
        refusal = refused(one, far, drill(answer={}), host_dir="/proc")
        assert refusal.host == str(far.login())
    assert books(one, 1, "closed")["how"] == "refused"
    assert one.tombstone["why"] == "done"


def test_the_step_of_a_hop_is_started_by_its_own_verb_alone(near):
    with window(near) as one:
        for label, module in (("a", "pp4.hold.hop"), ("hop-a", "pp4.hold.arrival")):
            with pytest.raises(Pp4Error) as raised:
                one.run(label, module, {})
            assert raised.value.refusal.expected == "the verb hop for a hop"


# -- an answer that was lost ----------------------------------------------------------------


def test_a_child_whose_grant_was_never_heard_is_found_by_its_parent(near, far):
    with window(near) as one:
        book = recorded(one, far)
        book.say_asked()
        child = opened_and_forgotten(far, book)
        supervisor = far.supervisor(child)
    assert one.tombstone["why"] == "done"
    assert books(one, 1, "closed")["tombstone"] == far.tombstone(child)
    assert not supervisor.alive() or until(lambda: not supervisor.alive())


def test_a_child_that_was_asked_for_and_never_came_cannot_come_later(near, far):
    with window(near) as one:
        book = recorded(one, far)
        book.say_asked()
    assert books(one, 1, "closed")["how"] == "never"
    with pytest.raises(Pp4Error) as raised:
        opened_and_forgotten(far, book)
    assert raised.value.refusal.code is Code.STALE_FENCE


def recorded(one, far):
    """The books of a hop whose near step says nothing more."""
    directory = Path(one.granted.directory)
    parent = {"hold": one.granted.hold, "fence": one.granted.fence, "hop": 1, "origin": ORIGIN}
    login = far.login()
    recorded = Recorded(
        hop=1,
        label="hop-engine",
        login=login,
        asked=asking(far.place, parent=parent, transport="ssh"),
    )
    write_book(directory, 1, recorded)
    return read_hop(directory, 1)


def opened_and_forgotten(far, book):
    """Have a child opened as a hop does, and never speak to it again; -> its id."""
    with reached_host(far_host(book)) as place:
        line = Line(place.host, place.program("pp4.hold.relay", "open"))
        asked = book.recorded.asked.model_dump(mode="json")
        granted = line.once("open", asked, Deadline.after(SystemClock(), PATIENCE_S))
        line.drop()
    return granted["hold"]


# -- files ----------------------------------------------------------------------------------


READ = FarStep(label="reading", module="tests.ssh.reading")


def test_a_file_is_brought_before_the_far_step_runs(near, far):
    first, second = words_of(near, target="data/a/words"), words_of(near, b"", "no-words")
    second = second.model_copy(update={"target": "data/none"})
    with window(near) as one:
        hopped = one.hop("engine", far.login(), READ, [first, second])
    assert hopped.facts == {"data/a/words": first.sha256, "data/none": second.sha256}


def test_a_file_goes_on_over_another_connection_where_the_first_was_lost(near, far):
    relay = Relay(far.server.port)
    try:
        with window(near, ttl_s=10.0) as one:
            one.hop("before", far.login(port=relay.port), READ)
            staged = relay.sent
            data = os.urandom(12 << 20)
            relay.cut_after = relay.sent + staged + len(data) // 2
            cutting = Thread(target=_cut_once, args=(relay,))
            cutting.start()
            file = words_of(near, data, target="data/words")
            hopped = one.hop("engine", far.login(port=relay.port), READ, [file])
            cutting.join(PATIENCE_S)
        assert hopped.facts == {"data/words": file.sha256}
        assert relay.cut_after is None
        # what had arrived before was not sent again
        assert relay.sent < 2 * staged + len(data) + len(data) // 4
    finally:
        relay.close()


def _cut_once(relay):
    until(lambda: relay.sent >= relay.cut_after)
    relay.cut_after = None


def test_a_file_with_another_digest_is_not_even_sent(near, far):
    with window(near) as one:
        file = words_of(near, sha256="0" * 64)
        refusal = refused(one, far, drill(answer={}), [file])
    assert refusal.code is Code.DIGEST_MISMATCH
    assert refusal.expected == "sha256 " + "0" * 64
    assert far.holds() == []


def test_a_name_that_leaves_the_directory_is_refused(near):
    with window(near) as one:
        for target in ("../words", "/tmp/words", "a/../../words", "", ".", "a//b"):
            part = put(one, b"x")
            with pytest.raises(Pp4Error) as raised:
                one.place(part, target, sha256_hex(b"x"), 1)
            assert raised.value.refusal.code is Code.BAD_INPUT, target


def put(one, data, name=None):
    """Upload bytes as a hop does, under the name that carries the id of the HOLD."""
    name = name or part_of(one.granted.hold, sha256_hex(data))
    Path(one.granted.work, name).write_bytes(data)
    return name


def test_a_file_is_checked_where_it_arrives_and_never_put_over_another(near):
    with window(near) as one:
        work = Path(one.granted.work)
        data, digest = b"whole", sha256_hex(b"whole")
        part = put(one, data)
        assert one.granted.hold in part
        one.place(part, "a/b", digest, len(data))
        assert ((work / "a/b").read_bytes(), (work / part).exists()) == (data, False)
        # an existing name stays what it is
        with pytest.raises(Pp4Error) as raised:
            one.place(put(one, data), "a/b", digest, len(data))
        assert raised.value.refusal.code is Code.EXISTS
        # bytes that were damaged on the way, of the right length
        put(one, b"whoie", part)
        with pytest.raises(Pp4Error) as raised:
            one.place(part, "c", digest, len(data))
        assert raised.value.refusal.code is Code.DIGEST_MISMATCH
        assert not (work / "c").exists()
        # and are not gone on from
        assert not (work / part).exists()
        with pytest.raises(Pp4Error) as raised:
            one.place(part, "c", digest, len(data))
        assert raised.value.refusal.code is Code.UNREADABLE
        # no link of a step leads a file out
        (work / "out").symlink_to(near)
        with pytest.raises(Pp4Error) as raised:
            one.place(put(one, data), "out/c", digest, len(data))
        assert raised.value.refusal.code is Code.UNWRITABLE
        assert not (near / "c").exists()


def test_a_file_is_placed_under_the_fence_alone(near):
    with window(near) as one:
        part, digest = put(one, b"x"), sha256_hex(b"x")
        right = one.granted
        one.granted = right.model_copy(update={"fence": right.fence + 1})
        with pytest.raises(Pp4Error) as raised:
            one.place(part, "c", digest, 1)
        assert raised.value.refusal.code is Code.STALE_FENCE
        one.granted = right
        assert not Path(right.work, "c").exists()


# -- the hops of a HOLD file ----------------------------------------------------------------


class Heard(Silent):
    """Keeps what is said of a run."""

    def __init__(self):
        self.plans, self.notes = [], []

    def planned(self, steps):
        self.plans.append(steps)

    def note(self, text):
        self.notes.append(text)


def hold_file(near, far, **different):
    """A HOLD file of this machine with one hop."""
    login = far.login(**different).model_dump()
    lines = [
        '[hold]\nname = "hops"\nbound_minutes = 10\nttl = 2',
        f'[receiving_host]\ntransport = "local"\nstate_dir = "{near}/state"',
        f'host_dir = "{near}/host"\n[[hop]]\nname = "Engine.1"',
        *(f"{key} = {json.dumps(value)}" for key, value in login.items()),
    ]
    path = near / "hold.toml"
    path.write_text("\n".join(lines) + "\n")
    return load_hold_file(path)


def test_every_hop_of_a_hold_file_is_tried(near, far):
    heard, digest = Heard(), installed_source().digest
    with window(near) as one:
        arrive(one, hold_file(near, far), digest, heard)
    (hold,) = far.holds()
    (note,) = heard.notes
    assert note == (
        f"hop Engine.1: arrived, Python {platform.python_version()}; HOLD {hold} closed: done"
    )


def test_a_hop_that_fails_refuses_the_run_before_any_gate(near, far, start_sshd):
    heard, other = Heard(), start_sshd("other")
    file = hold_file(near, far, host_key=other.host_key)
    wanted = Wanted("rehearsal", named="hold.toml")
    with pytest.raises(Pp4Error) as raised:
        qualify_on_host(file, wanted, near / "out", heard, state_dir=near / "kept")
    assert raised.value.refusal.code is Code.HOST_KEY
    assert heard.plans == []
    assert not (near / "out").exists()
    # and it is not kept waiting: what was held is closed, and nothing is kept back
    with window(near):
        pass
