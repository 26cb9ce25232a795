"""The command line: bad input, exit codes, one JSON document, and what ``--help`` imports."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pp4 import __version__, cli
from pp4.errors import Code, Exit, Refusal, RefusedError, UncleanError
from pp4.qualify.standing import KEPT
from pp4.qualify.wanted import Wanted
from pp4.run.receipt import Outcome
from tests.unit.receipts.samples import sample

KEYS = {"code", "where", "host", "expected", "source", "found", "left", "next"}


def call(capsys, *arguments):
    """Run the command in this process; return exit code, standard output, standard error."""
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def refusal(text):
    """Read the refusal that people get back into a dictionary."""
    record = dict(line.split(maxsplit=1) for line in text.splitlines())
    record["source"] = record.pop("from")
    assert set(record) == KEYS
    return record


def missing(path):
    return path / "gone.json"


def directory(path):
    (path / "d.json").mkdir()
    return path / "d.json"


def binary(path):
    (path / "b.json").write_bytes(bytes(range(256)))
    return path / "b.json"


def empty(path):
    (path / "e.json").touch()
    return path / "e.json"


def text(path):
    (path / "t.json").write_text("not json")
    return path / "t.json"


def huge(path):
    with (path / "h.json").open("wb") as file:
        file.truncate(1 << 30)
    return path / "h.json"


def pipe(path):
    os.mkfifo(path / "p.json")
    return path / "p.json"


def looped(path):
    (path / "l.json").symlink_to("l.json")
    return path / "l.json"


def hostile(path):
    (path / "x\x1b[2J\n.json").write_text("{}")
    return path / "x\x1b[2J\n.json"


FILES = {
    missing: Code.UNREADABLE,
    directory: Code.UNREADABLE,
    pipe: Code.UNREADABLE,
    looped: Code.UNREADABLE,
    binary: Code.NOT_UTF8,
    empty: Code.NOT_JSON,
    text: Code.NOT_JSON,
    huge: Code.TOO_LARGE,
    hostile: Code.UNKNOWN_VERSION,
}


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_a_bad_file_is_one_refusal(capsys, tmp_path, make):
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(capsys, "verify-receipt", path)
    assert code == Exit.REFUSED
    assert refusal(err)["code"] == FILES[make]
    assert refusal(err)["left"] == "nothing"
    assert "\x1b" not in out + err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_a_bad_file_is_one_document_under_json(capsys, tmp_path, make):
    code, out, err = call(capsys, "verify-receipt", make(tmp_path), "--json")
    assert (code, err) == (Exit.REFUSED, "")
    record = json.loads(out)
    failed = [c["code"] for f in record["files"] for c in f["checks"] if c["status"] == "fail"]
    assert FILES[make] in failed
    assert record["exit"] == Exit.REFUSED


@pytest.fixture
def receipt(tmp_path):
    """A good rehearsal receipt in a file."""
    path = tmp_path / "rehearsal.json"
    path.write_bytes(sample("rehearsal"))
    return path


def test_a_good_receipt_passes_and_says_what_it_does_not_show(capsys, receipt):
    code, out, err = call(capsys, "verify-receipt", "--kind", "rehearsal", receipt)
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].startswith(f"{receipt}: rehearsal, sha256 ")
    assert not [row for row in rows if row.startswith("fail")]
    assert [row for row in rows if row.startswith("shows: ")]
    assert "does not show: unsigned: integrity, not authorship" in rows


def test_a_changed_receipt_is_wrong(capsys, receipt):
    raw = receipt.read_bytes()
    assert raw.count(b'"verdict":"rehearsed"') == 1
    receipt.write_bytes(raw.replace(b'"verdict":"rehearsed"', b'"verdict":"wrong"'))
    code, out, err = call(capsys, "verify-receipt", receipt)
    assert code == Exit.WRONG
    assert "shows: " not in [row[:7] for row in out.splitlines()]
    assert refusal(err)["code"] == Code.DIGEST_MISMATCH
    assert refusal(err)["where"].startswith(str(receipt))


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--kind", "qualification"], Code.WRONG_KIND),
        (["--current"], Code.HISTORICAL),
        (["--max-age", "0"], Code.TOO_OLD),
        (["--allowed-signers", __file__], Code.SIGNATURE_MISSING),
        (["--allowed-signers", "/nope"], Code.UNREADABLE),
    ],
)
def test_a_policy_refuses_a_good_receipt(capsys, receipt, flags, code):
    exit_code, _, err = call(capsys, "verify-receipt", receipt, *flags)
    assert exit_code == Exit.REFUSED
    assert refusal(err)["code"] == code


def test_history_is_said_without_a_judgement(capsys, receipt):
    code, out, _ = call(capsys, "verify-receipt", receipt, "--history", "--json")
    checks = json.loads(out)["files"][0]["checks"]
    (source,) = [check for check in checks if check["name"] == "source"]
    assert code == 0
    assert source["found"].startswith("historical: ")


USAGE = {
    "no command": [],
    "unknown command": ["qualify"],
    "unknown option": ["doctor", "--frobnicate"],
    "unknown option of the root": ["--frobnicate"],
    "a file is missing": ["verify-receipt"],
    "an option without its value": ["verify-receipt", "a.json", "--kind"],
    "unknown kind": ["verify-receipt", "a.json", "--kind", "rehersal"],
    "an age beyond all dates": ["verify-receipt", "a.json", "--max-age", "999999999w"],
    "bad age": ["verify-receipt", "a.json", "--max-age", "soon"],
    "unknown code": ["explain", "NOT_A_CODE"],
    "too many codes": ["explain", "USAGE", "SCHEMA"],
}


@pytest.mark.parametrize("name", USAGE)
def test_a_usage_error_is_one_refusal(capsys, name):
    code, out, err = call(capsys, *USAGE[name])
    assert (code, out) == (Exit.USAGE, "")
    record = refusal(err)
    assert record["code"] == Code.USAGE
    assert record["next"].startswith("pp4")


@pytest.mark.parametrize("name", [name for name in USAGE if USAGE[name]])
def test_a_usage_error_is_one_document_under_json(capsys, name):
    arguments = [*USAGE[name][:1], "--json", *USAGE[name][1:]]
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (Exit.USAGE, "")
    assert set(json.loads(out)) == KEYS


def test_the_nearest_kind_is_named(capsys):
    _, _, err = call(capsys, "verify-receipt", "a.json", "--kind", "rehersal")
    assert "rehearsal" in refusal(err)["expected"]
    assert refusal(err)["found"] == "'rehersal'"


PHYSICAL = {
    "pair": ["pair-qualify", "--hold", "local"],
    "pair with a soak": ["pair-qualify", "--hold", "local", "--soak", "1"],
    "solo": ["solo-qualify"],
    "solo of a GPU by index": ["solo-qualify", "--gpu", "1"],
}


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine whose driver refuses, as one without GPUs does; nobody may start a supervisor."""

    def look(place, command):
        raise RefusedError(Refusal(Code.NO_GPU_PAIR, "NVML", "a driver", "none", source="NVML"))

    monkeypatch.setattr("pp4.qualify.held._gpus_there", look)
    monkeypatch.setattr("pp4.run.windows.open_window", lambda *_: pytest.fail("asked for a HOLD"))


@pytest.mark.parametrize("flags", [[], ["--json"]])
@pytest.mark.parametrize("name", PHYSICAL)
def test_a_physical_run_without_gpus_refuses_and_leaves_nothing(
    capsys, tmp_path, monkeypatch, no_gpu, name, flags
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PP4_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PP4_HOST_DIR", str(tmp_path / "host"))
    code, out, err = call(capsys, *PHYSICAL[name], "--out", tmp_path / "out", *flags)
    record = json.loads(out) if flags else refusal(err)
    assert code == Exit.REFUSED
    assert (record["code"], record["left"]) == (Code.NO_GPU_PAIR, "nothing")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["pair", "solo"])
def test_the_driver_of_this_machine_is_really_asked(tmp_path, name):
    """Without GPUs, a driver or the package that asks it: one refusal, and nothing is left."""
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has GPUs")
    done = subprocess.run(
        [sys.executable, "-m", "pp4", *PHYSICAL[name], "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ
        | {"PP4_STATE_DIR": str(tmp_path / "s"), "PP4_HOST_DIR": str(tmp_path / "h")},
    )
    assert (done.returncode, done.stderr) == (Exit.REFUSED, "")
    record = json.loads(done.stdout)
    assert record["code"] in (Code.NO_GPU_PAIR, Code.MISSING_PACKAGE)
    assert record["left"] == "nothing"
    # a supervisor writes there before anything else, and has these settings in its environment
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []


def processes_with(text):
    """Ids of processes in whose environment a text stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if text.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


NEITHER_OR_BOTH = {
    "neither": [],
    "a directory alone": ["--out", "x"],
    "a soak alone": ["--soak", "1"],
    "both": ["--dry-run", "--hold", "local"],
    "a rehearsal with a soak": ["--dry-run", "--soak", "1"],
    "a soak below none": ["--hold", "local", "--soak", "-1"],
    "a soak beyond an hour": ["--hold", "local", "--soak", "61"],
    "a rehearsal with a receipt that it would not look at": ["--dry-run", "--solo", __file__],
    "a rehearsal with a worker's receipt": ["--dry-run", "--whole-worker", __file__],
    "a rehearsal with a scope": ["--dry-run", "--scope", "full"],
    "a rehearsal with a checkpoint": ["--dry-run", "--checkpoint", "/x"],
    "a rehearsal there with a scope": ["--hold", "x", "--dry-run-device", "--scope", "full"],
    "a worker's receipt alone": ["--hold", "local", "--whole-worker", __file__],
    "a worker's receipt for kernels": [
        *("--hold", "local", "--scope", "kernels"),
        *("--solo", __file__, "--whole-worker", __file__),
    ],
    "a checkpoint for kernels": ["--hold", "local", "--checkpoint", "/x"],
    "another scope": ["--hold", "local", "--scope", "whole"],
}


@pytest.mark.parametrize("name", NEITHER_OR_BOTH)
def test_a_run_is_a_rehearsal_or_in_a_hold(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for module in ("pp4.qualify.held.qualify_on_host", "pp4.qualify.rehearsal.rehearse"):
        monkeypatch.setattr(module, lambda *_, **__: pytest.fail("ran"))
    code, out, err = call(capsys, "pair-qualify", *NEITHER_OR_BOTH[name])
    assert (code, out) == (Exit.USAGE, "")
    record = refusal(err)
    assert record["code"] == Code.USAGE
    assert record["next"].startswith("pp4 pair-qualify")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hold", ["remote", "hold.json", "LOCAL", "local ", ""])
def test_a_hold_file_that_is_none_is_refused(capsys, tmp_path, monkeypatch, hold):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "pair-qualify", "--hold", hold)
    assert code == Exit.REFUSED
    assert refusal(err)["code"] == Code.BAD_HOLD_FILE
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def physical(monkeypatch, tmp_path):
    """Runs on GPUs that hand back what they were given, and end as they are told."""
    given = {"exit": Exit.DONE, "error": None}

    def ended(out):
        if given["error"]:
            raise given["error"]
        tree = {"kind": "solo", "gates": []}
        path = out / "receipt.json"
        return Outcome("x", path, given["exit"], tree, more=given.get("more", ()))

    def run(file, wanted, out, progress, *, state_dir):
        given.update(file=file, wanted=wanted, out=out, state_dir=state_dir)
        return ended(out)

    monkeypatch.setattr("pp4.qualify.held.qualify_on_host", run)
    monkeypatch.setenv("PP4_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PP4_HOST_DIR", str(tmp_path / "host"))
    return given


def test_a_pair_gets_its_evidence_its_soak_and_a_place_among_the_receipts(
    capsys, tmp_path, physical
):
    (tmp_path / "solo.json").write_bytes(b"bytes")
    arguments = ["--hold", "local", "--soak", "7", "--solo", str(tmp_path / "solo.json")]
    assert call(capsys, "pair-qualify", *arguments)[0] == Exit.DONE
    evidence = [("identity_reference", b"bytes")]
    assert physical["wanted"] == Wanted("pair", "local", evidence=evidence, soak_minutes=7)
    assert physical["out"] == tmp_path / "state" / KEPT
    assert physical["state_dir"] == tmp_path / "state"
    host = physical["file"].host
    assert (host.transport, host.gpus, host.python) == ("local", "auto", sys.executable)
    assert host.state_dir == str(tmp_path / "state")
    assert host.host_dir == str(tmp_path / "host")
    call(capsys, "pair-qualify", "--hold", "local", "--out", tmp_path / "here")
    assert physical["out"] == tmp_path / "here"
    assert physical["wanted"] == Wanted("pair", "local", evidence=[])


FULL = {
    "both receipts": (["--solo", "solo.json", "--whole-worker", "worker.json"], ["s", "w"], None),
    "named, on the receipts of a HOLD file": (["--scope", "full"], [], None),
    "named, with one receipt": (["--scope", "full", "--solo", "solo.json"], ["s"], None),
    "a checkpoint of the host": (
        [
            *("--scope", "full", "--solo", "solo.json"),
            *("--whole-worker", "worker.json", "--checkpoint", "/models/d"),
        ],
        ["s", "w"],
        "/models/d",
    ),
}


@pytest.mark.parametrize("name", FULL)
def test_scope_full_is_named_or_follows_from_both_receipts(
    capsys, tmp_path, monkeypatch, physical, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "solo.json").write_bytes(b"s")
    (tmp_path / "worker.json").write_bytes(b"w")
    options, given, checkpoint = FULL[name]
    assert call(capsys, "pair-qualify", "--hold", "local", *options)[0] == Exit.DONE
    evidence = [("identity_reference", text.encode()) for text in given]
    wanted = Wanted("full", "local", evidence=evidence, checkpoint=checkpoint)
    assert physical["wanted"] == wanted


def test_kernels_may_be_named_as_well(capsys, physical):
    assert call(capsys, "pair-qualify", "--hold", "local", "--scope", "kernels")[0] == Exit.DONE
    assert physical["wanted"] == Wanted("pair", "local", evidence=[])


def test_a_solo_run_says_where_both_of_its_receipts_lie(capsys, physical):
    physical["more"] = (Path("/kept/whole_worker-1.json"),)
    _, out, _ = call(capsys, "solo-qualify", "--checkpoint", "/models/d")
    assert physical["wanted"] == Wanted("solo", "local", checkpoint="/models/d")
    assert "receipt: /kept/whole_worker-1.json" in out.splitlines()
    _, out, _ = call(capsys, "solo-qualify", "--json")
    assert json.loads(out)["more_receipts"] == ["/kept/whole_worker-1.json"]


def test_a_solo_run_may_be_on_the_host_of_a_file(capsys, tmp_path, physical):
    file = tmp_path / "hold.toml"
    file.write_text(
        '[hold]\nname = "x"\nttl = 5\n[receiving_host]\ntransport = "local"\ngpus = "auto"\n'
    )
    assert call(capsys, "solo-qualify", "--hold", file, "--gpu", "1")[0] == Exit.DONE
    assert physical["file"].ttl_s == 5
    assert physical["wanted"] == Wanted("solo", str(file), gpu="1")


@pytest.mark.parametrize("gpu", [None, "1", "GPU-0a"])
def test_one_gpu_is_chosen_by_whatever_names_it(capsys, tmp_path, physical, gpu):
    flags = [] if gpu is None else ["--gpu", gpu]
    assert call(capsys, "solo-qualify", *flags)[0] == Exit.DONE
    assert physical["wanted"] == Wanted("solo", "local", gpu=gpu)
    assert physical["out"] == tmp_path / "state" / KEPT
    assert physical["file"].host.state_dir == str(tmp_path / "state")
    call(capsys, "solo-qualify", "--out", tmp_path / "here")
    assert physical["out"] == tmp_path / "here"


RUNS = {"pair": ["pair-qualify", "--hold", "local"], "solo": ["solo-qualify"]}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize(
    "code", [Exit.DONE, Exit.WRONG, Exit.TIMEOUT, Exit.INCONCLUSIVE, Exit.UNCLEAN]
)
def test_the_exit_code_is_that_of_the_run(capsys, physical, run, code):
    physical["exit"] = code
    found, out, err = call(capsys, *run, "--json")
    assert (found, err) == (code, "")
    assert json.loads(out)["exit"] == code


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RefusedError(Refusal(Code.HELD_BY, "a", "b", "c")), Exit.REFUSED),
        (UncleanError(Refusal(Code.SURVIVOR, "a", "b", "c", left="pid 7")), Exit.UNCLEAN),
        # nobody knows then what of it still runs
        (KeyError("a bug"), Exit.UNCLEAN),
    ],
)
def test_a_run_on_gpus_that_raises_is_one_refusal(capsys, physical, run, error, code):
    physical["error"] = error
    found, out, err = call(capsys, *run, "--json")
    assert (found, err) == (code, "")
    assert set(json.loads(out)) == KEYS


@pytest.mark.parametrize("make", [missing, directory, pipe, looped], ids=lambda make: make.__name__)
def test_a_solo_receipt_that_cannot_be_read_refuses_before_the_run(
    capsys, tmp_path, monkeypatch, make
):
    """Nothing was started, so nothing can be left."""
    monkeypatch.setattr("pp4.qualify.held.qualify_on_host", lambda *_, **__: pytest.fail("ran"))
    path = make(tmp_path)
    found, out, err = call(capsys, "pair-qualify", "--hold", "local", "--solo", path, "--json")
    assert (found, err) == (Exit.REFUSED, "")
    record = json.loads(out)
    assert (record["code"], record["left"]) == (Code.UNREADABLE, "nothing")


def test_version(capsys):
    assert call(capsys, "--version") == (0, f"pp4 {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--help"], ["-h"], ["verify-receipt", "--help"]),
        *(["pair-qualify", "--help"], ["solo-qualify", "--help"]),
    ],
)
def test_help(capsys, arguments):
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: pp4")


@pytest.mark.parametrize("one", [min(Code), max(Code), max(Code, key=len)])
def test_a_code_is_explained(capsys, one):
    """Each has a page, which tests/unit/test_explain.py reads."""
    code, out, _ = call(capsys, "explain", one)
    assert code == 0
    assert out.splitlines()[0] == one
    assert {line.split()[0] for line in out.splitlines()[1:]} >= {"cause", "left", "way"}


def test_explain_alone_lists_all(capsys):
    code, out, _ = call(capsys, "explain")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["code", *Code]
    code, out, _ = call(capsys, "explain", "--json")
    assert [page["code"] for page in json.loads(out)["codes"]] == list(Code)


def test_doctor(capsys):
    code, out, err = call(capsys, "doctor", "--json")
    record = json.loads(out)
    assert (code, err) == (record["exit"], "")
    assert record["checks"][0]["name"] == "python"
    code, out, _ = call(capsys, "doctor")
    assert code == record["exit"]
    assert len(out.splitlines()) == 1 + len(record["checks"])


def test_doctor_is_strict_when_told(capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, _ = call(capsys, "doctor", "--strict", "--json")
    assert (code, json.loads(out)["strict"]) == (Exit.REFUSED, True)


def test_a_bad_setting_refuses(capsys, monkeypatch):
    monkeypatch.setenv("PP4_STATE_DIR", "relative")
    code, out, err = call(capsys, "doctor")
    assert (code, out) == (Exit.REFUSED, "")
    assert refusal(err)["code"] == Code.BAD_SETTING


def broken(*_):
    raise KeyError("a bug\nwith a second line")


def test_an_unexpected_error_is_one_refusal(capsys, monkeypatch):
    monkeypatch.setattr("pp4.receipts.verify.verify", broken)
    code, out, err = call(capsys, "verify-receipt", "a.json")
    assert (code, out) == (Exit.WRONG, "")
    record = refusal(err)
    assert record["left"] == "nothing"
    assert record["code"] == Code.INTERNAL
    assert record["where"].startswith("pp4.cli:")
    assert record["found"].startswith("KeyError: 'a bug")


def test_debug_adds_the_traceback(capsys, monkeypatch):
    monkeypatch.setattr("pp4.receipts.verify.verify", broken)
    monkeypatch.setenv("PP4_DEBUG", "1")
    code = cli.main(["verify-receipt", "a.json", "--json"])
    out, err = capsys.readouterr()
    assert code == Exit.WRONG
    assert json.loads(out)["code"] == Code.INTERNAL
    assert "Traceback" in err
    assert "in broken" in err


def test_an_error_of_pp4_keeps_its_own_exit_code(capsys, monkeypatch):
    def unclean(*_):
        raise UncleanError(Refusal(Code.SURVIVOR, "rank 1", "dead", "alive", left="pid 7"))

    monkeypatch.setattr("pp4.receipts.verify.verify", unclean)
    code, _, err = call(capsys, "verify-receipt", "a.json")
    assert (code, refusal(err)["left"]) == (Exit.UNCLEAN, "pid 7")


def test_a_missing_package_is_named(capsys, monkeypatch):
    def incomplete(*_):
        raise ModuleNotFoundError("No module named 'torch.cuda'", name="torch.cuda")

    monkeypatch.setattr("pp4.receipts.verify.verify", incomplete)
    code, _, err = call(capsys, "verify-receipt", "a.json")
    assert code == Exit.REFUSED
    assert refusal(err)["code"] == Code.MISSING_PACKAGE
    assert refusal(err)["expected"] == "the Python package torch"


HEAVY = ("torch", "triton", "paramiko", "numpy", "rich", "cryptography")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["explain"], ["pair-qualify"]])
def test_light_commands_import_nothing_heavy(arguments):
    script = (
        "import sys\nfrom pp4.cli import main\n"
        f"main({arguments!r})\n"
        f"sys.stderr.write('heavy: ' + ' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.endswith("heavy: ")


def test_verification_imports_neither_torch_nor_paramiko(tmp_path):
    script = (
        "import sys\nfrom pp4.cli import main\n"
        "main(['verify-receipt', 'gone.json', '--json'])\n"
        "heavy = ('torch', 'triton', 'paramiko', 'numpy')\n"
        "sys.stderr.write('heavy: ' + ' '.join(m for m in heavy if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert done.stderr.endswith("heavy: ")


def test_a_receipt_is_checked_where_no_directory_takes_files(capsys, receipt, monkeypatch):
    def nowhere():
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    assert call(capsys, "verify-receipt", receipt)[0] == Exit.DONE
