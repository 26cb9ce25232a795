"""What the coordinator stages answers, and nothing else does; what goes wrong is said once."""

import json
import os
import shlex
import subprocess
import sys
import threading
import venv
from pathlib import Path

import pytest

from pp4.errors import BadInputError, Code, RefusedError, TimedOutError, WrongError
from pp4.hold.bundle import bundle
from pp4.hold.staged_files import damage
from pp4.hold.staging import Staged, drop, stage, sweep, take
from pp4.receipts.digests import installed_source, sha256_hex
from pp4.transport.local_host import LocalHost
from pp4.transport.ssh import SshHost
from pp4.transport.ssh_address import SshAddress
from tests.ssh.servers import Sshd, needs_sshd
from tests.unit.hold.staging_host import (
    HOLD,
    OTHER,
    ROOT,
    Counting,
    Cut,
    Flipped,
    Refusing,
    as_root,
    flip,
    mounted,
    names,
    package,
    script,
    soon,
)
from tests.unit.processes import printed

PYTHON = sys.executable


@pytest.fixture
def source(tmp_path):
    return package(tmp_path / "here")[0]


@pytest.fixture
def root(tmp_path, source):
    return tmp_path / "here" / "pp4"


@pytest.fixture
def there(tmp_path):
    """The directory of the receiving host."""
    return tmp_path / "there"


@pytest.fixture
def host():
    host = Counting()
    yield host
    host.close()


@pytest.fixture
def staged(host, there, source, root):
    return stage(host, PYTHON, str(there), source, root, soon())


def refusal(error, *given):
    with pytest.raises(error) as caught:
        stage(*given)
    return caught.value.refusal


# --- what is put there


def test_a_source_is_staged_once_and_shared(host, there, source, root):
    for _ in range(2):
        staged = stage(host, PYTHON, str(there), source, root, soon())
        assert staged == Staged(str(there / "staged" / source.digest), PYTHON, source.digest)
        assert damage(staged.path, source.digest) is None
        assert host.puts == [(f"{sha256_hex(bundle(source, root))}.tar.gz", 0)]
    assert names(there) == [source.digest]


def test_the_installed_source_is_staged_and_answers(host, there):
    source = installed_source()
    staged = stage(host, PYTHON, str(there), source, ROOT / "pp4", soon())
    script = "from pp4.receipts.digests import installed_source as s; print(s().digest)"
    argv = [*staged.argv("pp4", "--version")]
    assert subprocess.run(argv, capture_output=True, timeout=120).stdout.startswith(b"pp4 ")
    # PYTHONPATH is what its children get
    argv = [*argv[:3], PYTHON, "-P", "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout == f"{source.digest}\n"
    assert damage(staged.path, source.digest) is None


def test_without_a_directory_it_goes_below_the_home_of_the_account(
    host, tmp_path, source, root, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    old = os.umask(0o000)
    try:
        staged = stage(host, PYTHON, None, source, root, soon())
    finally:
        os.umask(old)
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert staged.path == f"{tmp_path}/home/.local/state/pp4/staged/{source.digest}"
    assert damage(staged.path, source.digest) is None


def test_a_damaged_copy_is_replaced(host, staged, there, source, root):
    flip(Path(staged.path, "pp4/say.py"))
    assert stage(host, PYTHON, str(there), source, root, soon()) == staged
    assert damage(staged.path, source.digest) is None
    assert len(host.puts) == 2


def test_a_damaged_copy_in_use_is_refused_after_one_upload(host, staged, there, source, root):
    take(host, staged, HOLD, soon())
    flip(Path(staged.path, "pp4/say.py"))
    said = refusal(RefusedError, host, PYTHON, str(there), source, root, soon())
    assert (said.code, said.where, said.host) == (Code.NOT_STAGED, staged.path, "local")
    assert said.found.endswith(f"in use by HOLD {HOLD}")
    assert len(host.puts) == 2


def test_an_upload_that_is_cut_is_gone_on_from(host, there, source, root):
    cut = Cut(after=200)
    assert refusal(WrongError, cut, PYTHON, str(there), source, root, soon()).code == (
        Code.CONNECTION_LOST
    )
    cut.close()
    name = f"{sha256_hex(bundle(source, root))}.tar.gz"
    assert names(there) == [f"{name}.part"]
    stage(host, PYTHON, str(there), source, root, soon())
    assert host.puts == [(name, 200)]
    assert names(there) == [source.digest]


@pytest.mark.parametrize("way", [Flipped(times=1), Refusing()], ids=["flipped", "refused"])
def test_an_upload_that_went_wrong_is_tried_once_more_from_nothing(way, there, source, root):
    stage(way, PYTHON, str(there), source, root, soon())
    way.close()
    (first, _), (second, there_already) = way.puts
    assert (first[:64], there_already) == (second[:64], 0)
    assert len(second) == len(first) + 17
    assert [name for name in names(there) if not name.endswith(".part")] == [source.digest]


def test_an_upload_that_goes_wrong_twice_is_refused(there, source, root):
    way = Flipped(times=2)
    said = refusal(RefusedError, way, PYTHON, str(there), source, root, soon())
    way.close()
    data = bundle(source, root)
    assert said.code == Code.NOT_STAGED
    assert said.expected == f"sha256 {sha256_hex(data)}"
    assert said.found == f"sha256 {sha256_hex(Flipped.changed(way, data))}; deleted"
    assert len(way.puts) == 2
    assert names(there) == []


def test_two_coordinators_at_once_both_succeed(there, source, root):
    staged, start = [], threading.Barrier(4)

    def run():
        host = LocalHost()
        start.wait(timeout=60)
        try:
            staged.append(stage(host, PYTHON, str(there), source, root, soon()))
        finally:
            host.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert staged == [Staged(f"{there}/staged/{source.digest}", PYTHON, source.digest)] * 4
    assert damage(staged[0].path, source.digest) is None
    assert [name for name in names(there) if name.startswith(".")] == []


# --- uses


def test_uses_and_sweeps_reach_the_host(host, staged, there, source):
    for hold in (HOLD, OTHER):
        take(host, staged, hold, soon())
    assert sorted(os.listdir(f"{staged.path}.uses")) == [HOLD, OTHER]
    drop(host, staged, HOLD, soon())
    old = there / "staged" / f".new.{'0' * 16}"
    old.mkdir()
    os.utime(old, (0, 0))
    assert sweep(host, staged, soon()) == (old.name,)
    assert damage(staged.path, source.digest) is None
    drop(host, staged, OTHER, soon())
    assert names(there) == []
    with pytest.raises(RefusedError) as caught:
        take(host, staged, HOLD, soon())
    assert caught.value.refusal.code == Code.NOT_STAGED


@pytest.mark.parametrize("verb", [take, drop])
def test_what_is_no_id_of_a_hold_is_not_sent(verb, host, staged):
    with pytest.raises(BadInputError):
        verb(host, staged, "../x", soon())


# --- what is refused


@pytest.mark.parametrize("python", ["/nowhere/python3", "/etc/passwd"])
def test_a_python_that_is_not_there(python, host, there, source, root):
    said = refusal(RefusedError, host, python, str(there), source, root, soon())
    assert (said.code, said.where) == (Code.UNREADABLE, python)
    assert not there.exists()


@pytest.mark.parametrize("python", ["/opt/python=3/bin/python3", "-u"])
def test_a_python_that_env_would_take_for_something_else(python, host, there, source, root):
    said = refusal(RefusedError, host, python, str(there), source, root, soon())
    assert (said.code, said.where, said.found) == (Code.NOT_STAGED, "python", python)


@pytest.mark.parametrize("status", [126, 127])
def test_a_shell_that_finds_no_python_is_believed(status, host, tmp_path, there, source, root):
    # over SSH the status of the login shell is all that one gets
    python = script(tmp_path / "py", f"#!/bin/sh\necho 'sh: py: not found' >&2\nexit {status}\n")
    said = refusal(RefusedError, host, python, str(there), source, root, soon())
    assert (said.code, said.found) == (Code.UNREADABLE, "sh: py: not found")


def test_a_python_that_is_too_old_says_so(host, tmp_path, there, source, root):
    text = (
        "import sys; sys.version_info = (3, 10, 13, 'final', 0); _, _, _, _, *sys.argv = sys.argv"
    )
    python = script(tmp_path / "old", f"#!{PYTHON}\n{text}\nexec(sys.argv[0])\n")
    said = refusal(RefusedError, host, python, str(there), source, root, soon())
    assert (said.code, said.where) == (Code.NOT_STAGED, python)
    assert (said.expected, said.found) == ("Python 3.11 or newer", "3.10.13")
    assert not there.exists()


ANSWERS = {
    "nothing": ("exit 0", "no output"),
    "words": ("echo hello", "hello"),
    "a greeting before it": ("echo hello; echo '{}'", "hello"),
    "two lines": ("echo '{}'; echo '{}'", "{}"),
    "no end of line": ("printf '{}'", "{}"),
    "a list": ("echo '[]'", "[]"),
    "another object": ("echo '{\"path\": 1}'", '{"path": 1}'),
    "a refusal that is none": ("echo '{\"refusal\": 1}'", '{"refusal": 1}'),
    "no text": ("printf '\\377\\n'", "\\ufffd"),
    "too much": ("head -c 300000 /dev/zero", "\\x00"),
    "a status": ("echo '{}'; exit 3", "exit status 3"),
    "a signal": ("kill -9 $$", "exit status 137"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_is_none_is_shown_with_the_last_lines(
    kind, host, tmp_path, there, source, root
):
    text, shown = ANSWERS[kind]
    python = script(tmp_path / "py", f"#!/bin/sh\necho 'a word\x1b of why' >&2\n{text}\n")
    said = refusal(WrongError, host, python, str(there), source, root, soon())
    assert (said.code, said.expected) == (Code.BAD_FRAME, "one line of JSON from its program")
    assert shown in said.found
    assert said.found.endswith("; a word\\x1b of why")


def test_a_program_that_writes_without_an_end_is_not_waited_for(
    host, tmp_path, there, source, root
):
    # it ends when nobody reads any more
    python = script(tmp_path / "py", "#!/bin/sh\nexec yes\n")
    said = refusal(WrongError, host, python, str(there), source, root, soon())
    assert said.code == Code.BAD_FRAME
    assert said.found.startswith("more than 65536 bytes; y\\x0ay")


def test_a_true_answer_in_several_lines_is_none(host, tmp_path, there, source, root):
    text = f"""#!{PYTHON}
import json, subprocess, sys
said = json.loads(subprocess.run([{PYTHON!r}, *sys.argv[1:]], stdout=subprocess.PIPE).stdout)
print(json.dumps(said, indent=1))
"""
    python = script(tmp_path / "py", text)
    said = refusal(WrongError, host, python, str(there), source, root, soon())
    assert said.code == Code.BAD_FRAME


def test_a_program_that_says_nothing_is_waited_for_only_so_long(
    host, tmp_path, there, source, root
):
    # it ends with its input, so nothing of this test is left
    python = script(tmp_path / "py", "#!/bin/sh\nexec cat\n")
    said = refusal(TimedOutError, host, python, str(there), source, root, soon(0.3))
    assert said.code == Code.STEP_TIMEOUT


@pytest.mark.parametrize("key", ["source", "path"])
def test_a_host_that_says_it_has_something_else_is_refused(
    key, host, tmp_path, there, source, root
):
    text = f"""#!{PYTHON}
import json, subprocess, sys
said = json.loads(subprocess.run([{PYTHON!r}, *sys.argv[1:]], stdout=subprocess.PIPE).stdout)
if "source" in said:
    said[{key!r}] = "/else" if {key!r} == "path" else "f" * 64
print(json.dumps(said))
"""
    python = script(tmp_path / "py", text)
    said = refusal(RefusedError, host, python, str(there), source, root, soon())
    assert said.code == Code.NOT_STAGED
    assert source.digest in said.expected
    assert ("f" * 64 if key == "source" else "/else") in said.found


def test_a_directory_that_pythonpath_cannot_name(host, tmp_path, source, root):
    said = refusal(RefusedError, host, PYTHON, f"{tmp_path}/a:b", source, root, soon())
    assert (said.code, said.where) == (Code.NOT_STAGED, f"{tmp_path}/a:b")
    said = refusal(RefusedError, host, PYTHON, "relative", source, root, soon())
    assert (said.code, said.where) == (Code.NOT_STAGED, "relative")
    assert not (tmp_path / "a:b").exists()


def test_a_file_in_the_way_of_the_directory(host, tmp_path, source, root):
    (tmp_path / "file").write_text("")
    said = refusal(RefusedError, host, PYTHON, f"{tmp_path}/file/pp4", source, root, soon())
    assert (said.code, host.puts) == (Code.UNWRITABLE, [])


@as_root
def test_no_room_is_said_before_anything_is_uploaded(host, tmp_path, source, root):
    with mounted(tmp_path / "small", "size=512k,mode=0700") as disk:
        said = refusal(RefusedError, host, PYTHON, str(disk / "pp4"), source, root, soon())
        assert (said.code, said.found) == (Code.UNWRITABLE, "524288 bytes free")
        assert said.expected.endswith(" bytes free")
        assert int(said.expected.split()[0]) > 1 << 20
        assert (host.puts, os.listdir(disk)) == ([], [])


@as_root
def test_a_read_only_directory_is_said_before_anything_is_uploaded(host, tmp_path, source, root):
    with mounted(tmp_path / "fixed", "ro,mode=0700") as disk:
        said = refusal(RefusedError, host, PYTHON, str(disk / "pp4"), source, root, soon())
        assert (said.code, said.expected) == (Code.UNWRITABLE, "a directory that takes files")
        assert " bytes free" in said.found
        assert host.puts == []


def test_a_source_that_changed_since_it_was_hashed_is_not_uploaded(host, there, source, root):
    (root / "say.py").write_text("x = 3\n")
    said = refusal(RefusedError, host, PYTHON, str(there), source, root, soon())
    assert (said.code, said.where) == (Code.NOT_STAGED, str(root / "say.py")[:120])
    assert host.puts == []


# --- who answers


def fake(directory):
    """Another pp4, as a wheel or a checkout would leave it."""
    package(directory, {"__init__.py": "", "say.py": "print('another pp4')\n", "__main__.py": ""})
    return directory


def said(staged, *arguments, **more):
    argv = staged.argv("pp4.say", *arguments)
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, **more)


def at(staged):
    return [f"{staged.path}/pp4"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A Python of its own that has another pp4 installed; -> (it, its site-packages)."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    venv.create(tmp_path / "venv", symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    fake(packages)
    python = str(tmp_path / "venv" / "bin" / "python")
    argv = [python, "-P", "-m", "pp4.say"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.stdout == "another pp4\n", "the trap is not set"
    return python, packages


def test_the_staged_copy_answers_whatever_else_is_there(
    host, installed, there, source, root, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(fake(tmp_path / "path")))
    monkeypatch.chdir(fake(tmp_path / "directory"))
    staged = stage(host, installed[0], str(there), source, root, soon())
    done = said(staged, "", "a b", "$(x)", "--help", "child")
    child = ["__main__", at(staged), [], False]
    arguments = ["", "a b", "$(x)", "--help", "child"]
    assert done.stderr == ""
    assert json.loads(done.stdout) == ["__main__", at(staged), arguments, False, child]


HOOKS = {
    "a path of its own": "import sys; sys.path.insert(0, {place!r})",
    "an import of its own": "import sys; sys.path[:0] = [{place!r}]; import pp4; del sys.path[0]",
}


@pytest.mark.parametrize("how", HOOKS)
def test_a_hook_of_an_installed_copy_ends_the_program_before_the_module_starts(
    how, host, installed, there, source, root, tmp_path
):
    python, packages = installed
    place = str(fake(tmp_path / "editable"))
    (packages / "hook.pth").write_text(HOOKS[how].format(place=place) + "\n")
    staged = stage(host, python, str(there), source, root, soon())
    done = said(staged)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"NOT_STAGED: expected pp4 in {staged.path}, found ['{place}/pp4']\n")


def test_nothing_is_written_into_a_tree_that_runs(staged, source, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    done = said(staged, "child")
    assert json.loads(done.stdout)[1] == at(staged)
    assert damage(staged.path, source.digest) is None


def test_the_status_of_a_module_is_that_of_the_program(staged):
    done = subprocess.run(staged.argv("pp4"), capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_tree_that_is_gone_starts_nothing_else(host, staged, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(fake(tmp_path / "path")))
    monkeypatch.chdir(fake(tmp_path / "directory"))
    take(host, staged, HOLD, soon())
    drop(host, staged, HOLD, soon())
    done = said(staged)
    assert (done.returncode, done.stdout) == (1, "")


# --- what is sent


def test_the_program_fits_into_one_argument_of_a_shell(there, source, root):
    sent = []

    class Listening(LocalHost):
        def run(self, argv, deadline):
            sent.append(argv)
            return super().run(argv, deadline)

    host = Listening()
    stage(host, PYTHON, str(there), source, root, soon())
    host.close()
    assert [argv[7] for argv in sent] == ["look", "prepare", "unpack"]
    # SSH joins the words, and Linux takes 128 KiB of each that a shell is started with
    assert max(len(shlex.join(argv)) for argv in sent) < 64 << 10


def test_a_coordinator_sends_the_program_and_never_imports_it():
    # its locks do not exist on every system that a coordinator may run on
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import pp4.hold.staging
print("pp4.hold.staging" in sys.modules, "pp4.hold.unpack" in sys.modules)
"""
    assert printed(script, ROOT) == ["True", "False"]


# --- over SSH


@needs_sshd
def test_over_ssh_it_is_the_same(there, source, root, tmp_path):
    server = Sshd(tmp_path / "sshd")
    try:
        where = SshAddress(
            "127.0.0.1", server.port, server.user, server.identity_file, server.host_key
        )
        host = SshHost(where, soon())
        try:
            staged = stage(host, PYTHON, str(there), source, root, soon())
            assert staged == Staged(f"{there}/staged/{source.digest}", PYTHON, source.digest)
            take(host, staged, HOLD, soon())
            stream = host.run(staged.argv("pp4.say", "a b", "$(x)", "", "child"), soon())
            raw = b""
            while piece := stream.read(soon()):
                raw += piece
            assert stream.finish(soon()) == 0
            arguments, child = ["a b", "$(x)", "", "child"], ["__main__", at(staged), [], False]
            assert json.loads(raw) == ["__main__", at(staged), arguments, False, child]
            assert damage(staged.path, source.digest) is None
            said = refusal(RefusedError, host, "/nowhere/py", str(there), source, root, soon())
            assert (said.code, said.host) == (Code.UNREADABLE, host.address)
            drop(host, staged, HOLD, soon())
            assert names(there) == []
        finally:
            host.close()
    finally:
        server.stop()
