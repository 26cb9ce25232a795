"""Four states of a signature, told apart with the real ssh-keygen and with stand-ins for it."""

import os
import shutil
import subprocess
import sys

import pytest

import pp4.receipts.signature as module
from pp4.errors import Code, Exit, RefusedError
from pp4.receipts.signature import NAMESPACE, State, check_signature
from pp4.receipts.verify import Policy, verify
from tests.unit.receipts import samples

KEYGEN = shutil.which("ssh-keygen")
needs_keygen = pytest.mark.skipif(KEYGEN is None, reason="ssh-keygen is not installed")


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    if KEYGEN is None:
        pytest.skip("ssh-keygen is not installed")
    directory = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        argv = [KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        public = (directory / f"{name}.pub").read_text()
        (directory / f"allow-{name}").write_text(f"{name}@example.org {public}")
    return directory


def signed(tmp_path, keys, namespace=NAMESPACE):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    argv = [KEYGEN, "-q", "-Y", "sign", "-n", namespace, "-f", str(keys / "ours"), str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path


def state(path, allowed=None, raw=None):
    return check_signature(path, raw or path.read_bytes(), allowed).state


def codes(report):
    return {check.code for check in report.failures}


def test_unsigned(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    assert state(path) is State.UNSIGNED
    assert verify([path]).exit is Exit.DONE
    (tmp_path / "allowed").write_text("")
    report = verify([path], Policy(allowed_signers=tmp_path / "allowed"))
    assert codes(report) == {Code.SIGNATURE_MISSING}
    assert report.exit is Exit.REFUSED


def test_good(tmp_path, keys):
    path = signed(tmp_path, keys)
    signature = check_signature(path, path.read_bytes(), keys / "allow-ours")
    assert signature.state is State.GOOD
    assert "ours@example.org" in signature.detail
    report = verify([path], Policy(allowed_signers=keys / "allow-ours"))
    assert report.exit is Exit.DONE
    assert report.files[0].signature is State.GOOD
    assert not any("authorship" in text for text in report.files[0].does_not_show)


def test_signed_without_a_list_of_signers_is_not_verifiable(tmp_path, keys):
    path = signed(tmp_path, keys)
    assert state(path) is State.UNVERIFIABLE
    report = verify([path])
    assert report.exit is Exit.DONE
    assert any("not verifiable here" in text for text in report.files[0].does_not_show)


def test_bad_because_the_file_was_changed(tmp_path, keys):
    path = signed(tmp_path, keys)
    path.write_bytes(samples.sample("rehearsal"))
    for allowed in (None, keys / "allow-ours"):
        assert state(path, allowed) is State.BAD
        report = verify([path], Policy(allowed_signers=allowed))
        assert codes(report) == {Code.SIGNATURE_BAD}
        assert report.exit is Exit.WRONG


def test_bad_because_the_key_is_not_allowed(tmp_path, keys):
    assert state(signed(tmp_path, keys), keys / "allow-theirs") is State.BAD


def test_bad_because_of_another_namespace(tmp_path, keys):
    assert state(signed(tmp_path, keys, "file"), keys / "allow-ours") is State.BAD


@needs_keygen
@pytest.mark.parametrize("junk", [b"", b"junk", b"\x00" * 100, b"x" * 100_000])
def test_bad_because_the_signature_is_junk(tmp_path, junk):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    (tmp_path / "r.json.sig").write_bytes(junk)
    assert state(path) is State.BAD


def test_a_pipe_in_place_of_the_signature_does_not_block(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    os.mkfifo(tmp_path / "r.json.sig")
    assert state(path) is State.BAD


def test_a_list_of_signers_that_cannot_be_read_is_refused(tmp_path, keys):
    path = signed(tmp_path, keys)
    with pytest.raises(RefusedError):
        state(path, tmp_path / "none")
    report = verify([path], Policy(allowed_signers=tmp_path / "none"))
    assert codes(report) == {Code.UNREADABLE}
    assert report.exit is Exit.REFUSED


def test_without_ssh_keygen_a_signature_is_not_verifiable(tmp_path, keys, monkeypatch):
    path = signed(tmp_path, keys)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert state(path, keys / "allow-ours") is State.UNVERIFIABLE
    assert verify([path]).exit is Exit.DONE
    report = verify([path], Policy(allowed_signers=keys / "allow-ours"))
    assert codes(report) == {Code.SIGNATURE_UNVERIFIABLE}
    assert report.exit is Exit.REFUSED


def stand_in(tmp_path, text):
    program = tmp_path / "keygen"
    program.write_text(f"#!{sys.executable}\n{text}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit('No user exists for uid 4711')",
        "import sys; sys.stderr.buffer.write(bytes(range(256))); sys.exit(1)",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_keygen_that_fails_by_itself_leaves_the_question_open(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    (tmp_path / "r.json.sig").write_bytes(b"x")
    signature = check_signature(path, path.read_bytes(), None, stand_in(tmp_path, text))
    assert signature.state is State.UNVERIFIABLE
    assert signature.detail.isprintable()


def test_a_keygen_that_hangs_is_given_up(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    (tmp_path / "r.json.sig").write_bytes(b"x")
    monkeypatch.setattr(module, "SECONDS", 0.2)
    program = stand_in(tmp_path, "import signal; signal.pause()")
    signature = check_signature(path, path.read_bytes(), None, program)
    assert signature.state is State.UNVERIFIABLE
    assert "no answer within 0.2 s" in signature.detail


def test_a_keygen_that_cannot_be_started_leaves_the_question_open(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    (tmp_path / "r.json.sig").write_bytes(b"x")
    signature = check_signature(path, path.read_bytes(), None, str(tmp_path / "none"))
    assert signature.state is State.UNVERIFIABLE


def test_names_with_dashes_and_spaces_are_arguments_and_nothing_else(tmp_path, keys, monkeypatch):
    path = signed(tmp_path, keys)
    odd = tmp_path / "-n $(touch owned) ;.json"
    path.rename(odd)
    path.with_name("r.json.sig").rename(f"{odd}.sig")
    monkeypatch.chdir(tmp_path)
    assert state(odd.relative_to(tmp_path), keys / "allow-ours") is State.GOOD
    assert not (tmp_path / "owned").exists()


def test_a_list_of_signers_that_cannot_be_read_is_named_though_nobody_signed(tmp_path):
    path = tmp_path / "r.json"
    path.write_bytes(samples.sample("solo"))
    report = verify([path], Policy(allowed_signers=tmp_path / "nope"))
    (check,) = report.failures
    assert (check.code, report.exit) == (Code.UNREADABLE, Exit.REFUSED)
    assert "nope" in check.found
    assert "allowed signers" in check.expected
