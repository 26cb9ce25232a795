"""A tree is staged whole and as the receipt says, or not at all."""

import importlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pp4 import cli
from pp4.errors import Code, Exit, RefusedError, UsageError
from pp4.launch.manifest import load_manifest
from pp4.launch.prepare import prepare
from pp4.launch.record import RECEIPT
from pp4.launch.trees import survey
from pp4.receipts.build import build
from pp4.receipts.digests import installed_source, sha256_hex, source_list_digest
from tests.unit.launch.subjects import ENGINE, MANIFEST, PACKAGE, ROOT, RUNNER
from tests.unit.worker.fronts import BLOCK, Worker


def content(place):
    """Path to bytes, executable or not, and link of everything below a directory."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found


def verify(*arguments):
    """``pp4 verify-receipt``; -> its exit code."""
    return cli.main(["verify-receipt", *map(str, arguments)])


def test_the_reference_runner_is_staged_as_its_manifest_says(tmp_path):
    out = tmp_path / "out"
    done = prepare(MANIFEST, None, out)
    before, after = content(ROOT / "launch" / "runner"), content(out)
    before = {path: one for path, one in before.items() if "__pycache__" not in path}
    client = content(MANIFEST.parent / "remote_dspark")
    client = {path: one for path, one in client.items() if "__pycache__" not in path}
    receipt, _ = after.pop(RECEIPT)
    assert done.receipt_sha256 == sha256_hex(receipt)
    kept = {p: one for p, one in before.items() if not p.startswith(f"{PACKAGE}/")}
    text, program = kept[ENGINE]
    kept[ENGINE] = (text.replace(b"\nABI = None\n", b'\nABI = "pp4-draft-v1"\n'), program)
    assert after == kept | {f"{PACKAGE}/{path}": one for path, one in client.items()}
    assert after["start.sh"][1]
    assert not after[RUNNER][1]


def test_the_receipt_names_every_file_and_every_change(subject):
    subject.prepare()
    receipt = json.loads((subject.out / RECEIPT).read_text())
    tree, made = survey(subject.source), survey(subject.out, without=(RECEIPT,))
    for name, one in (("inputs", tree), ("outputs", made)):
        rows = [[row["path"], row["type"], row["sha256"]] for row in receipt[name]]
        assert rows == [entry.row for entry in one.entries.values()]
        assert receipt[f"{name}_sha256"] == one.sha256
    assert receipt["manifest_sha256"] == sha256_hex(subject.manifest.read_bytes())
    assert receipt["reviewed_runner_sha256"] == tree.entries[RUNNER].sha256
    assert receipt["source"]["digest"] == installed_source().digest
    assert (receipt["made_at"], receipt["private"]) == (None, {})
    assert str(subject.place) not in json.dumps(receipt)
    assert receipt["replacements"] == [
        {
            "what": "package dspark_runner.remote_dspark",
            "path": PACKAGE,
            "line": None,
            "matches": 1,
            "before_sha256": tree.part_sha256(PACKAGE),
            "after_sha256": survey(subject.replacement).sha256,
        },
        {
            "what": "passage verifier-abi",
            "path": ENGINE,
            "line": 8,
            "matches": 1,
            "before_sha256": tree.entries[ENGINE].sha256,
            "after_sha256": made.entries[ENGINE].sha256,
        },
    ]
    lines = (subject.source / RUNNER).read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if "if mtp is None:" in line]
    assert [(g["name"], g["line_before"], g["line_after"]) for g in receipt["guards"]] == [
        ("mtp-none-load", found[0], found[0]),
        ("mtp-none-step", found[1], found[1]),
    ]


def test_twice_gives_equal_bytes(subject, tmp_path):
    subject.prepare()
    other = tmp_path / "elsewhere" / "other name"
    other.parent.mkdir()
    before = os.umask(0o027)
    try:
        subject.prepare(other)
    finally:
        os.umask(before)
    assert content(subject.out) == content(other)
    # but for the one bit, the mode is that of any new file
    assert other.stat().st_mode & 0o777 == 0o750
    assert (other / "start.sh").stat().st_mode & 0o777 == 0o750
    assert (other / RUNNER).stat().st_mode & 0o777 == 0o640


def test_a_mode_bit_and_a_link_make_another_tree(subject):
    (subject.source / RUNNER).chmod(0o755)
    refusal = subject.refusal()
    assert refusal.code is Code.NOT_REVIEWED
    (subject.source / RUNNER).chmod(0o640)  # the other bits are not looked at
    (subject.source / "run").symlink_to("start.sh")
    assert subject.refusal().code is Code.NOT_REVIEWED
    subject.pin()
    subject.prepare()
    assert os.readlink(subject.out / "run") == "start.sh"


def test_caches_are_neither_pinned_nor_staged(subject):
    for name in ("__pycache__", "dspark_runner/__pycache__", ".git", f"{PACKAGE}/__pycache__"):
        (subject.source / name).mkdir()
        (subject.source / name / "x.pyc").write_bytes(b"x")
    done = subject.prepare()
    assert len(done.source.left_out) == 4
    assert not list(subject.out.rglob("*.pyc"))
    assert "taken_away" in done.as_dict()


def test_what_is_there_is_not_written_over(subject, tmp_path):
    for make in (subject.out.mkdir, subject.out.touch, lambda: subject.out.symlink_to("nowhere")):
        make()
        assert subject.refusal().code is Code.EXISTS
        subject.out.rmdir() if subject.out.is_dir() else subject.out.unlink()
    missing = tmp_path / "no" / "such"
    with pytest.raises(RefusedError) as raised:
        subject.prepare(missing)
    assert raised.value.refusal.code is Code.UNWRITABLE


def test_an_output_within_its_source_is_refused(subject):
    link = subject.place / "link"
    link.symlink_to(subject.source)
    for out in (subject.source / "out", subject.replacement / "out", link / "out"):
        with pytest.raises(RefusedError) as raised:
            subject.prepare(out)
        assert raised.value.refusal.code is Code.BAD_INPUT


def test_a_runner_that_is_not_the_reviewed_one_is_refused_with_both_hashes(subject):
    wanted = survey(subject.source).entries[RUNNER].sha256
    subject.edit(RUNNER, "The runner:", "A runner:")
    found = survey(subject.source).entries[RUNNER].sha256
    refusal = subject.refusal()
    assert refusal.code is Code.NOT_REVIEWED
    assert refusal.where.endswith(RUNNER)
    assert (wanted in refusal.expected, found in refusal.found) == (True, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.write("more.py", ""),
        lambda s: (s.source / "start.sh").unlink(),
        lambda s: (s.source / RUNNER).rename(s.source / "runner.py"),
        lambda s: s.write("start.sh", "#!/bin/sh\n"),
        lambda s: s.write(ENGINE, "ABI = None\n"),
        lambda s: s.write(f"{PACKAGE}/drafter.py", ""),
        lambda s: (s.replacement / "client.py").write_text(""),
        lambda s: (s.replacement / "more.py").touch(),
    ],
)
def test_any_other_input_is_refused(subject, change):
    change(subject)
    assert subject.refusal().code is Code.NOT_REVIEWED


@pytest.mark.parametrize("key", ["sha256", "replacement_sha256"])
def test_a_package_that_the_manifest_pins_otherwise_is_refused(subject, key):
    package = load_manifest(subject.manifest).manifest.package[0]
    subject.say(f'{key} = "{getattr(package, key)}"', f'{key} = "{"0" * 64}"')
    refusal = subject.refusal()
    assert refusal.code is Code.NOT_REVIEWED
    assert getattr(package, key) in refusal.found


def test_a_file_that_is_pinned_and_is_a_link_is_refused(subject):
    (subject.source / "start.sh").rename(subject.source / "other.sh")
    (subject.source / "start.sh").symlink_to("other.sh")
    assert (subject.refusal().code, subject.refusal().found) == (Code.NOT_REVIEWED, "a link")


def test_a_tree_that_was_prepared_is_no_source(subject):
    subject.write(RECEIPT, "{}")
    assert subject.refusal().code is Code.BAD_TREE


def test_without_a_source_the_manifest_has_to_name_one(subject):
    subject.say('path = "../runner"\n', "")
    with pytest.raises(UsageError):
        prepare(subject.manifest, None, subject.out)
    assert not subject.out.exists()


# -- edits that go against the guards or the switches -------------------------------------------


def with_edit(subject, path, old, new):
    """Add an edit to the manifest."""
    text = subject.manifest.read_text()
    sha256 = survey(subject.source).entries[path].sha256
    members = {"path": path, "sha256": sha256, "old": old, "new": new}
    more = "".join(f"{name} = {json.dumps(text)}\n" for name, text in members.items())
    subject.manifest.write_text(f"{text}\n[[edit]]\nname = 'more'\n{more}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("step(self, fresh: int, mtp: object)", "step(self, fresh: int, mtp: object = None)"),
        ("            return self._drafted_step(fresh)", "            return []"),
        ("    def step(", "    @staticmethod\n    def step("),
        (
            '            Refused: there is one; the drafter will not do.\n        """\n',
            '"""\n        mtp = None\n',
        ),
    ],
)
def test_an_edit_may_not_touch_a_guard(subject, old, new):
    with_edit(subject, RUNNER, old, new)
    assert subject.refusal().code is Code.GUARD_CHANGED


def test_an_edit_may_move_a_guard_down(subject):
    with_edit(subject, RUNNER, "class Settings:", "class Settings:  # more\n    # of it\n")
    subject.prepare()
    guards = json.loads((subject.out / RECEIPT).read_text())["guards"]
    assert [g["line_after"] - g["line_before"] for g in guards] == [2, 2]


def test_an_edit_may_not_set_a_switch(subject):
    with_edit(subject, "start.sh", "set -eu\n", "set -eu\nexport DSPARK_SAMPLED_TOP32=1\n")
    refusal = subject.refusal()
    assert refusal.code is Code.SWITCH_SET
    # the tree is gone: what is named is where it would have been
    assert refusal.where == f"{subject.out}/start.sh, line 5"


def test_a_replacement_may_not_set_a_switch(subject):
    text = "import os\nos.environ['VLLM_DSPARK_SAMPLED_TOP32'] = '1'\n"
    (subject.replacement / "__init__.py").write_text(text)
    subject.pin()
    assert subject.refusal().code is Code.SWITCH_SET


def test_a_replacement_may_not_bring_a_second_package(subject):
    inner = subject.replacement / "dspark_runner" / "remote_dspark"
    inner.mkdir(parents=True)
    (inner / "__init__.py").touch()
    subject.pin()
    assert subject.refusal().code is Code.NOT_ONCE


# -- the command, and what reads its receipt ----------------------------------------------------


def test_the_command_and_its_receipt(subject, capsys):
    assert cli.main(["prepare", str(subject.manifest), "--out", str(subject.out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == str(subject.out)
    assert len(told["guards"]) == 2
    receipt = subject.out / RECEIPT
    assert verify("--kind", "preparation", "--current", "--tree", subject.out, receipt) == 0
    assert cli.main(["prepare", str(subject.manifest), "--out", str(subject.out)]) == Exit.REFUSED
    assert "EXISTS" in capsys.readouterr().err
    (subject.out / "start.sh").chmod(0o644)
    assert verify("--tree", subject.out, receipt) == Exit.WRONG
    assert "start.sh is another one" in capsys.readouterr().out
    (subject.out / "start.sh").chmod(0o700)
    (subject.out / "more").touch()
    (subject.out / RUNNER).unlink()
    assert verify("--tree", subject.out, receipt) == Exit.WRONG
    said = capsys.readouterr().out
    assert f"{RUNNER} is missing; more is not in it" in said
    assert verify("--tree", subject.out / "nowhere", receipt) == Exit.REFUSED
    assert verify("--tree", subject.out, MANIFEST) == Exit.USAGE


def test_a_receipt_of_an_older_source_is_history(subject, capsys):
    subject.prepare()
    tree = json.loads((subject.out / RECEIPT).read_text())
    rows = [{"path": "a.py", "sha256": "a" * 64}]
    digest = source_list_digest([("a.py", "a" * 64)])
    old = subject.place / "old.json"
    old.write_bytes(build({**tree, "source": {"digest": digest, "files": rows}}))
    assert verify(old, "--history", "--tree", subject.out) == 0
    assert verify(old, "--current") == Exit.REFUSED
    # without a date it has no age
    assert verify(old, "--max-age", "90d") == Exit.REFUSED
    capsys.readouterr()


# -- the runner itself --------------------------------------------------------------------------


def test_the_runner_says_what_it_would_do_and_refuses_until_it_is_prepared(subject):
    argv = ["sh", str(subject.source / "start.sh")]
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "would draft 4 tokens a step at temperature 0.0",
        "would ask the drafter for ABI of any name",
        "drafter: none; this runner was not prepared",
    ]
    argv += ["--socket", "nowhere"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (3, "")
    assert "was not prepared" in done.stderr


@pytest.fixture
def runner(subject, monkeypatch, capsys):
    """Imports the staged runner into this process; -> its main, or a module of it."""

    def imported(name="__main__"):
        monkeypatch.syspath_prepend(str(subject.out))
        return importlib.import_module(f"dspark_runner.{name}")

    yield imported
    for name in [one for one in sys.modules if one.partition(".")[0] == "dspark_runner"]:
        del sys.modules[name]


@pytest.fixture
def worker(tmp_path):
    """A worker whose drafts count upwards, as the runner's engine does."""
    one = Worker(tmp_path / "s")
    one.asked = []

    def counting(n_out, row):
        one.asked.append((row.position, row.anchor, row.round, row.sampled))
        words = np.zeros((BLOCK, 66), np.int32)
        words[:n_out, 64] = row.anchor + 1 + np.arange(n_out)
        return b"".join(np.ascontiguousarray(w).tobytes() for w in np.split(words, [32, 64, 65], 1))

    one.ranks._reply = counting
    yield one
    one.close()


def test_the_prepared_runner_decodes_with_a_worker(subject, runner, worker, capsys):
    subject.prepare()
    main = runner().main
    assert main(["--socket", str(worker.path), "--steps", "3"]) == 0
    said, complained = capsys.readouterr()
    assert complained == ""
    assert said.splitlines() == ["step: 1 2 3 4 5", "step: 6 7 8 9 10", "step: 11 12 13 14 15"]
    # behind the features of the first token, and then of each step's
    assert worker.asked == [(2, 0, 0, False), (7, 5, 1, False), (12, 10, 2, False)]
    assert main(["--socket", str(worker.path) + "-gone"]) == 3
    assert "UNREACHABLE" in capsys.readouterr().err


def test_the_engines_switch_is_read_and_off_by_default(subject, runner, worker, monkeypatch):
    subject.prepare()
    monkeypatch.setenv("VLLM_DSPARK_SAMPLED_TOP32", "1")
    assert runner().main(["--socket", str(worker.path), "--steps", "1"]) == 0
    assert worker.asked == [(2, 0, 0, True)]


def test_the_prepared_runner_takes_no_other_abi(subject, runner, worker, capsys):
    subject.say('"pp4-draft-v1"', '"pp4-draft-v0"')
    subject.prepare()
    assert runner().main(["--socket", str(worker.path)]) == 3
    expected = "takes pp4-draft-v0, the drafter offers pp4-draft-v1"
    assert expected in capsys.readouterr().err


def test_the_runner_refuses_a_head_of_the_models_own(subject, runner):
    subject.prepare()
    module = runner("runner")
    with pytest.raises(module.Refused, match="MTP head"):
        module.Runner.load(None, module.Settings("nowhere", 4, 0.0), mtp=object())
    with pytest.raises(module.Refused, match="MTP head"):
        module.Runner(None, None, 0.0).step(1, mtp=object())
