"""Reports: receipts are verified, matched with pairs by UUID, and what is missing is said."""

import json
from fractions import Fraction

import pytest

from pp4.errors import Code, Exit, RefusedError, UsageError
from pp4.fleet.report import report
from pp4.fleet.slurm import emit, pair_directory
from pp4.receipts.build import build, seal
from pp4.receipts.private import redact
from tests.unit.fleet.fleets import failed, leave, place, plan, qualification
from tests.unit.receipts import samples


@pytest.fixture
def run(tmp_path):
    """A plan of a node with three GPUs, and the directory that it was emitted to."""
    made = plan(3)
    emit(made, tmp_path / "run")
    return tmp_path / "run", made.nodes[0]


def only(found):
    (one,) = found.nodes
    return one


def words(found):
    return {one.pair: one.passed for one in only(found).known}


def test_every_pair_passed(run):
    directory, node = run
    for pair in node.pairs:
        leave(directory, node, pair)
    found = report([directory])
    assert words(found) == {(0, 1): True, (0, 2): True, (1, 2): True}
    assert (found.exit, only(found).suspects, found.notes) == (Exit.DONE, (), ())


def test_one_gpu_is_named_with_its_uuid(run):
    directory, node = run
    for pair in node.pairs:
        leave(directory, node, pair, good=1 not in pair)
    found = report([directory])
    assert found.exit is Exit.WRONG
    (suspect,) = only(found).suspects
    assert (suspect.kind, suspect.gpus) == ("gpu", (1,))
    (record,) = found.as_dict()["nodes"][0]["suspects"]
    assert record["uuids"] == [node.uuids[1]]
    assert json.loads(json.dumps(found.as_dict())) == found.as_dict()


def test_one_link_and_a_share(run):
    directory, node = run
    for pair in node.pairs:
        leave(directory, node, pair, good=pair != (0, 2))
    (suspect,) = only(report([directory])).suspects
    assert (suspect.kind, suspect.gpus) == ("pair", (0, 2))
    assert only(report([directory], share=Fraction(3, 4))).suspects == (suspect,)


def test_a_node_where_everything_failed(run):
    directory, node = run
    for pair in node.pairs:
        leave(directory, node, pair, good=False)
    assert [one.kind for one in only(report([directory])).suspects] == ["node"]


ENDS = {
    None: "it was killed, or still runs",
    "1": "exit code 1, failed before a receipt",
    "3": "exit code 3, refused",
    "6": "exit code 6, unclean",
    "143": "exit code 143, told to end",
    "137": "exit code 137",
    "rm -rf /\x1b[2J": "exit code rm -rf",
}


@pytest.mark.parametrize("code", ENDS)
def test_a_pair_without_a_receipt_is_unknown_and_its_end_is_said(run, code):
    directory, node = run
    for pair in node.pairs[1:]:
        leave(directory, node, pair)
    made = place(directory, node, node.pairs[0])
    if code is not None:
        (made / "exit").write_text(code + "\n")
    found = report([directory])
    (one,) = [known for known in only(found).known if known.passed is None]
    assert one.pair == node.pairs[0]
    assert one.says.startswith(ENDS[code])
    assert one.says.isprintable()
    assert found.exit is Exit.INCONCLUSIVE


def test_a_refusal_is_named_by_its_code(run):
    directory, node = run
    made = place(directory, node, (0, 1))
    (made / "exit").write_text("3\n")
    log = "note: code X\ncode      HELD_BY\nnext      x\ncode      NO_GPU_PAIR\nwhere     here\n"
    (made / "log.txt").write_text(log)
    assert only(report([directory])).known[0].says == "exit code 3, refused: NO_GPU_PAIR"


def test_nothing_was_run(run):
    directory, _ = run
    found = report([directory])
    assert {known.says for known in only(found).known} == {"not run"}
    assert only(found).unjudged == (0, 1, 2)
    assert found.exit is Exit.INCONCLUSIVE


@pytest.mark.parametrize(
    ("verdict", "passed"),
    [("wrong", False), ("timeout", False), ("inconclusive", None), ("refused", None)],
)
def test_only_gates_that_ran_are_evidence(run, verdict, passed):
    directory, node = run
    made = place(directory, node, (0, 1))
    body = samples.qualification("kernels")
    raw = json.loads(qualification(node.uuids[:2]))
    body["private"] = raw["private"]
    body = failed(body, verdict)
    if verdict != "wrong":
        arm = body["gates"][2]["arms"][0]
        late = verdict == "timeout"
        arm["found"] = "failed(STEP_TIMEOUT)" if late else "not_run(GATE_NOT_RUN)"
        samples.with_journal(body)
    (made / "q.json").write_bytes(build(body))
    assert words(report([directory]))[0, 1] is passed


def test_a_receipt_that_was_changed_is_no_evidence_and_wrong(run):
    directory, node = run
    for pair in node.pairs:
        file = leave(directory, node, pair, good=False)
    file.write_bytes(file.read_bytes().replace(b'"verdict":"wrong"', b'"verdict":"qualified"'))
    found = report([directory])
    assert words(found)[node.pairs[-1]] is None
    assert "DIGEST_MISMATCH" in only(found).known[-1].says
    for pair in node.pairs[:-1]:
        (pair_directory(directory, node, pair) / "qualification-1.json").unlink()
    assert report([directory]).exit is Exit.WRONG


def test_a_receipt_of_other_gpus_is_no_evidence(run):
    directory, node = run
    leave(directory, node, (0, 1))
    file = place(directory, node, (0, 2)) / "q.json"
    file.write_bytes(qualification([node.uuids[1], node.uuids[2]]))
    found = words(report([directory]))
    assert found == {(0, 1): True, (0, 2): None, (1, 2): None}


def test_one_receipt_does_not_count_twice(run):
    directory, node = run
    file = leave(directory, node, (0, 1))
    (place(directory, node, (0, 2)) / "q.json").write_bytes(file.read_bytes())
    found = report([directory])
    assert words(found) == {(0, 1): True, (0, 2): None, (1, 2): None}
    assert "once more" in next(one.says for one in only(found).known if one.pair == (0, 2))


def test_a_pair_that_passed_once_and_failed_once_has_failed(run):
    directory, node = run
    leave(directory, node, (0, 1))
    file = place(directory, node, (0, 1)) / "again.json"
    file.write_bytes(qualification(node.uuids[:2], good=False))
    assert words(report([directory]))[0, 1] is False


@pytest.mark.parametrize("kind", ["incident", "refusal", "solo", "rehearsal"])
def test_another_kind_is_no_evidence(run, kind):
    directory, node = run
    (place(directory, node, (0, 1)) / "x.json").write_bytes(samples.sample(kind))
    found = report([directory])
    assert words(found)[0, 1] is None
    says = next(one.says for one in only(found).known if one.pair == (0, 1))
    assert kind in says or says.startswith("refused: ")


def test_blacked_out_uuids_tell_nothing(run):
    directory, node = run
    tree = redact(json.loads(qualification(node.uuids[:2])))
    (place(directory, node, (0, 1)) / "x.json").write_bytes(seal(tree))
    found = report([directory])
    assert words(found)[0, 1] is None
    assert "blacked out" in only(found).known[0].says


def test_receipts_from_anywhere_are_matched_by_uuid(tmp_path):
    made = plan(3)
    (tmp_path / "plan.json").write_bytes(made.raw())
    (tmp_path / "collected").mkdir()
    (node,) = made.nodes
    for number, pair in enumerate(node.pairs):
        raw = qualification([node.uuids[gpu] for gpu in reversed(pair)], good=number != 0)
        (tmp_path / "collected" / f"{number}.json").write_bytes(raw)
    (tmp_path / "other.json").write_bytes(samples.sample("qualification"))
    found = report([tmp_path / "collected", tmp_path / "other.json"], tmp_path / "plan.json")
    assert words(found) == {pair: pair != node.pairs[0] for pair in node.pairs}
    (stray,) = found.strays
    assert stray.path == tmp_path / "other.json"


def test_a_rehearsal_is_evidence_of_rehearsals_alone(tmp_path):
    made = plan(2, known=False)
    emit(made, tmp_path / "run", rehearse=True)
    (node,) = made.nodes
    (place(tmp_path / "run", node, (0, 1)) / "r.json").write_bytes(samples.sample("rehearsal"))
    found = report([tmp_path / "run"])
    assert words(found) == {(0, 1): True}
    assert found.exit is Exit.DONE
    assert "nothing here is about any GPU" in found.notes[0]
    known = plan(2).nodes[0]
    (place(tmp_path / "run", node, (0, 1)) / "r.json").write_bytes(qualification(known.uuids))
    assert words(report([tmp_path / "run"])) == {(0, 1): None}


def test_exactly_one_plan_is_needed(run, tmp_path):
    directory, _ = run
    (tmp_path / "plan.json").write_bytes(plan(2).raw())
    for places, given in (
        ([tmp_path], None),
        ([directory], tmp_path / "plan.json"),
        ([directory, directory], None),
    ):
        with pytest.raises(UsageError):
            report(places, given)


def test_a_place_that_is_not_there_is_said(tmp_path):
    (tmp_path / "plan.json").write_bytes(plan(2).raw())
    found = report([tmp_path / "gone.json"], tmp_path / "plan.json")
    assert found.strays[0].says.startswith(Code.UNREADABLE)
    assert found.exit is Exit.INCONCLUSIVE
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "fleet.json").write_text("{}")
    with pytest.raises(RefusedError) as caught:
        report([tmp_path / "shut"])
    assert caught.value.refusal.code is Code.UNKNOWN_VERSION
