"""``pp4 gate`` and ``pp4 status``: exit codes, one document, and a machine that is asked."""

import json
import sys

import pytest

from pp4.receipts.build import build
from pp4.receipts.digests import installed_source
from pp4.run import host
from pp4.run import machine as asking
from tests.unit.qualify.gpus import gpu, report
from tests.unit.qualify.machines import machine
from tests.unit.receipts import samples
from tests.unit.test_cli import call, refusal


@pytest.fixture
def qualified(tmp_path, monkeypatch):
    """A qualification of the installed source, and a machine that is asked in its own process."""
    body = {**samples.qualification(), "source": installed_source().as_dict()}
    path = tmp_path / "pp4-state" / "receipts" / "q.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(build(body))

    def is_now(facts, code=0):
        (tmp_path / "facts").write_text(json.dumps(facts))
        text = f"import sys; print(open({str(tmp_path / 'facts')!r}).read()); sys.exit({code})"
        argv = (sys.executable, "-c", text)
        monkeypatch.setattr(asking, "PROGRAM", argv)
        # a pair whose locks are free
        monkeypatch.setattr(host, "look_at_gpus", lambda: report(gpu(0), gpu(1)))
        return path

    is_now(machine())
    return is_now


def test_the_machine_that_was_qualified(qualified, capsys):
    path = qualified(machine())
    code, out, err = call(capsys, "gate", path)
    assert (code, err) == (0, "")
    assert "stands" in out
    code, out, err = call(capsys, "status")
    assert (code, err) == (0, "")
    assert out.startswith(f"qualified: a worker with the switch on may start, by {path}")


def test_a_machine_that_changed(qualified, capsys):
    facts = machine()
    facts["libraries"][0]["sha256"] = samples.digest("0")
    path = qualified(facts)
    code, out, err = call(capsys, "gate", path)
    assert code == 3
    assert "library" in out
    assert refusal(err)["code"] == "SUBJECT_MISMATCH"
    assert call(capsys, "status")[0] == 3
    for name in ("gate", "status"):
        code, out, err = call(capsys, name, path, "--json")
        assert (code, json.loads(out)["exit"], err) == (3, 3, "")


def test_a_machine_without_gpus(qualified, capsys):
    said = {"code": "NO_GPU_PAIR", "where": "NVML", "expected": "a driver", "found": "none",
            "source": "pp4", "host": "local", "left": "nothing", "next": "pp4 doctor"}  # fmt: skip
    path = qualified({"refusal": said}, 3)
    code, out, err = call(capsys, "gate", path)
    assert (code, out) == (3, "")
    assert refusal(err)["code"] == "NO_GPU_PAIR"
    code, out, err = call(capsys, "status")
    assert (code, err) == (3, "")
    assert "because of machine" in out


def test_nothing_is_asked_where_there_is_no_receipt(qualified, capsys):
    path = qualified({}, 9)
    path.unlink()
    code, out, _ = call(capsys, "status")
    assert (code, out) == (3, "qualified for nothing: there is no qualification\n")
    code, _, err = call(capsys, "gate", path)
    assert code == 3
    assert refusal(err)["code"] == "UNREADABLE"


def test_the_policy_of_the_command_line(qualified, capsys):
    path = qualified({**machine(), "boot_id": "boot-2"})
    assert call(capsys, "gate", path)[0] == 0
    assert call(capsys, "gate", path, "--same-boot")[0] == 3
    assert call(capsys, "gate", path, "--max-age", "1h")[0] == 3
    assert call(capsys, "gate", path, "--max-age", "soon")[0] == 2


def test_receipts_elsewhere_are_looked_at_too(qualified, capsys, tmp_path):
    path = qualified(machine())
    elsewhere = tmp_path / "archive"
    elsewhere.mkdir()
    (elsewhere / "k.json").write_bytes(build(samples.qualification("kernels")))
    _, out, _ = call(capsys, "status", elsewhere, "--json")
    files = [one["file"] for one in json.loads(out)["qualifications"]]
    assert files == [str(path), str(elsewhere / "k.json")]
