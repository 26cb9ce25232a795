"""Rounds on the disk: whole up to the last line, whatever ends the writer; laid out in time."""

import json

import pytest

from pp4.clock import ManualClock
from pp4.errors import Code, Exit, RefusedError, UncleanError, WrongError
from pp4.measure import bodies
from pp4.measure.chronicle import Chronicle, timeline
from pp4.measure.rounds_file import Head, Kept, Line, RoundsFile, alone, read_rounds
from pp4.measure.sealing import seal_file
from pp4.receipts.digests import installed_source
from pp4.run.receipt import store
from pp4.wire.measuring import Rounded
from tests.unit.receipts import samples

HEAD = Head(work="A1B1", rehearsal=False, at_ns="10", body={"limits": ["x"]})


class Progress:
    """Looks at the file whenever something is shown."""

    def __init__(self, path):
        self.path, self.seen, self.rounds = path, [], None

    def measuring(self, rounds):
        self.rounds = rounds

    def measured(self, text):
        self.seen.append((text, len(read_rounds(self.path).lines)))

    def note(self, text):
        pass

    def alive(self, lease_s, deadline_s, last_line):
        pass


def snapshot(arm, label):
    return {"arm": arm, "round": None, "snapshot": samples.snapshot(label)}


def snapshot_of(arm):
    return Rounded(**snapshot(arm, "baseline"))


def timed(arm, index):
    return {
        "arm": arm,
        "round": samples.measured_round("headline", index, 8, "0.7"),
        "snapshot": None,
    }


def stepped(arm, event, phase=None, found=None):
    return {"arm": arm, "phase": phase, "event": event, "found": found}


@pytest.fixture
def recorder(tmp_path):
    clock = ManualClock()
    path = tmp_path / "measurement-1.rounds.jsonl"
    progress = Progress(path)
    found = Chronicle(clock, progress)
    found.clock, found.path, found.progress = clock, path, progress
    found.opened()
    yield found
    found.close()


def begin(recorder):
    recorder.begin(recorder.path, "A1B1", {"limits": []}, rehearsal=False, rounds=2)


def test_what_is_shown_is_on_the_disk_before(recorder):
    begin(recorder)
    recorder.told(snapshot("A1", "baseline"))
    recorder.told(timed("A1", 0))
    texts = [text for text, _ in recorder.progress.seen]
    # 40 tokens in 123,456 ns; 33 accepted of 16 drafts
    cell = "B 8, T 0.7, 324,002 tokens/s, 2.06 accepted of a draft"
    assert texts == ["A1 baseline snapshot", f"A1 headline 0: {cell}"]
    assert [count for _, count in recorder.progress.seen] == [1, 2]
    assert recorder.progress.rounds == 2


def test_time_is_laid_out_by_what_was_told(recorder):
    recorder.told({"started": {"gate": 2, "arm": "a"}})
    recorder.clock.advance(1)
    recorder.told({"finished": {"gate": 2, "arm": "a"}, "found": "pass", "elapsed_s": 1.0})
    begin(recorder)
    for item in (stepped("A1", "begin"), stepped("A1", "begin", "headline")):
        recorder.told(item)
    recorder.alive(1.0, 1.0, "")
    recorder.clock.advance(2)
    recorder.told(timed("A1", 0))
    recorder.told(stepped("A1", "end", "headline", "pass"))
    recorder.clock.advance(1)
    recorder.alive(1.0, 1.0, "")
    kept = read_rounds(recorder.path)
    spans = [
        (one["kind"], one["name"], int(one["begin_ns"]) // 10**9, int(one["end_ns"]) // 10**9)
        for one in timeline(kept.head, kept.lines)
    ]
    assert spans == [
        ("step", "gates", 0, 1),
        ("gate", "gate-2", 0, 1),
        ("step", "measure", 1, 3),
        ("phase", "A1 headline", 1, 3),
        # begun and never ended: it was cut
        ("arm", "A1", 1, 3),
    ]
    assert [int(beat) // 10**9 for line in kept.lines for beat in line.heartbeats_ns] == [1]
    assert [int(beat) // 10**9 for beat in recorder.rest()] == [4]


def test_rounds_of_a_step_that_does_not_measure_are_refused(recorder):
    with pytest.raises(WrongError) as raised:
        recorder.told(timed("A1", 0))
    assert raised.value.refusal.code is Code.BAD_FRAME


@pytest.mark.parametrize(
    "item",
    [{"arm": "C1", "round": None}, {"arm": "A1", "event": "pause"}, {"arm": "A1", "round": {}}],
)
def test_what_is_no_round_is_refused_and_written_nowhere(recorder, item):
    begin(recorder)
    with pytest.raises(WrongError):
        recorder.told(item)
    assert read_rounds(recorder.path).lines == ()


def test_a_writer_that_was_cut_leaves_whole_lines(tmp_path):
    path = tmp_path / "x.rounds.jsonl"
    file = RoundsFile(path, HEAD)
    line = Line(at_ns="1", heartbeats_ns=(), rounded=None, stepped=None)
    for _ in range(3):
        file.add(line)
    file.close()
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, len(whole) - 150, -7):
        path.write_bytes(whole[:cut])
        kept = read_rounds(path)
        assert len(kept.lines) == 2
        assert "torn" in kept.fault
    path.write_bytes(whole.replace(b'"at_ns":"1"', b'"at_ns":"2"', 1))
    kept = read_rounds(path)
    # the line that follows the changed one names another digest
    assert len(kept.lines) == 1
    assert "previous" in kept.fault


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.JOURNAL_CHAIN),
        (b'{"half a line', Code.JOURNAL_CHAIN),
        (
            json.dumps({"sequence": 0, "step": "x", "event": "y", "previous": "0" * 64}).encode()
            + b"\n",
            Code.SCHEMA,
        ),
    ],
)
def test_what_is_no_file_of_rounds_is_refused(tmp_path, raw, code):
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(RefusedError) as raised:
        read_rounds(path)
    assert raised.value.refusal.code is code


def test_a_file_that_says_too_little_is_not_sealed(tmp_path):
    path = tmp_path / "x.rounds.jsonl"
    file = RoundsFile(path, HEAD)
    file.add(Line(at_ns="1", heartbeats_ns=(), rounded=snapshot_of("A1"), stepped=None))
    file.close()
    with pytest.raises(RefusedError) as raised:
        seal_file(path, None)
    assert raised.value.refusal.code is Code.SCHEMA


def test_nobody_seals_what_is_still_written_and_nobody_writes_twice(tmp_path):
    path = tmp_path / "x.rounds.jsonl"
    file = RoundsFile(path, HEAD)
    with pytest.raises(RefusedError) as raised, alone(path):
        pass
    assert raised.value.refusal.code is Code.HELD_BY
    with pytest.raises(UncleanError) as unclean:
        RoundsFile(path, HEAD)
    assert unclean.value.refusal.code is Code.UNWRITABLE
    file.close()
    with alone(path):
        assert read_rounds(path).head == HEAD


@pytest.mark.parametrize("fault", ["", "a torn last line, which is left out"])
def test_what_is_missing_of_a_damaged_file_is_among_the_limits(fault):
    head = Head(work="A1B1", rehearsal=False, at_ns="10", body={"limits": ["x"], "evidence": []})
    line = Line(at_ns="20", heartbeats_ns=(), rounded=snapshot_of("A1"))
    made = bodies.cut(Kept(head, (line,), fault), (), alone=True)
    assert (made["complete"], made["summary"]) == (False, None)
    assert len(made["limits"]) == (4 if fault else 3)
    assert any(fault in text and "1 lines" in text for text in made["limits"]) == bool(fault)


def test_a_directory_of_receipts_that_is_not_there_is_refused_as_one(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(RefusedError) as raised:
            store({"kind": "measurement"}, installed_source(), out / "x.json", "partial", Exit.DONE)
        # what the receipt is refused for comes first; that nothing could be kept is said
        assert raised.value.refusal.code is Code.SCHEMA
        assert "nothing" in raised.value.refusal.left


def test_a_file_of_rounds_does_not_say_where_its_receipt_is_written(tmp_path):
    path, before = tmp_path / "in" / "x.rounds.jsonl", tmp_path / "in" / "measurement-x"
    before.mkdir(parents=True)
    body = {
        "limits": ["x"],
        "evidence": [],
        "source": installed_source().as_dict(),
        "hold": samples.hold(id="x/../../out"),
    }
    file = RoundsFile(path, HEAD.model_copy(update={"body": body}))
    file.add(Line(at_ns="20", heartbeats_ns=(), rounded=snapshot_of("A1")))
    file.close()
    with pytest.raises(RefusedError) as raised:
        seal_file(path, None)
    assert (raised.value.refusal.code, list(tmp_path.glob("out*"))) == (Code.SCHEMA, [])
    assert "a path" in raised.value.refusal.found
