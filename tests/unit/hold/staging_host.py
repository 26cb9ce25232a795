"""Small packages to stage, and ways to a host on which uploads go wrong."""

import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.hold.bundle import bundle
from pp4.hold.unpack import main
from pp4.receipts.digests import sha256_hex, source_digest
from pp4.transport.local_host import LocalHost

ROOT = Path(__file__).parents[3]
HOLD = "0123456789abcdef"
OTHER = "fedcba9876543210"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and gives files away")

FILES = {
    "__init__.py": "",
    "__main__.py": "raise SystemExit(7)\n",
    # says what it is, and has a child say it too
    "say.py": """
import json, subprocess, sys
import pp4
said = [__name__, list(pp4.__path__), sys.argv[1:], "" in sys.path]
if "child" in sys.argv:
    argv = [sys.executable, "-P", "-m", "pp4.say"]
    said.append(json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout))
print(json.dumps(said))
""",
    "deep/__init__.py": "",
    "deep/inner.py": "x = 1\n" * 2000,
}


def package(directory, files=FILES):
    """Write a package; -> (its source, its root)."""
    root = directory / "pp4"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return source_digest(root), root


def soon(seconds=60.0):
    return Deadline.after(SystemClock(), seconds)


def asked(directory, source, verb, *arguments, limit_s="60"):
    """What the program answers, in this process."""
    return main([verb, str(directory), source.digest, limit_s, *arguments])


def unpacked(directory, source, root):
    """Stage without a coordinator; -> (the tree, the answer)."""
    name, data = uploaded(directory, source, root)
    answer = asked(directory, source, "unpack", name, sha256_hex(data))
    return directory / "staged" / source.digest, answer


def uploaded(directory, source, root, data=None):
    """Put a bundle where an upload goes; -> (its name, its bytes)."""
    data = bundle(source, root) if data is None else data
    assert asked(directory, source, "prepare") == {"directory": str(directory)}
    name = f"{sha256_hex(data)}.tar.gz"
    (directory / "staged" / name).write_bytes(data)
    return name, data


def program(script, *arguments, **more):
    """Start a script that has pp4 and takes control of its own faults."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **more,
    )


def names(directory):
    """What lies in ``staged``, the lock left out."""
    return sorted(entry.name for entry in (directory / "staged").iterdir() if entry.name != "lock")


def script(path, text):
    """Write a program that calls itself a Python."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def flip(path):
    raw = path.read_bytes()
    path.write_bytes(raw[:3] + bytes([raw[3] ^ 1]) + raw[4:])


@contextlib.contextmanager
def mounted(directory, options):
    directory.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", options, "none", str(directory)]
    if subprocess.run(argv, capture_output=True, timeout=60).returncode != 0:
        pytest.skip("this machine lets nobody mount")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True, timeout=60)


class Counting(LocalHost):
    """Remembers what is put, and how much of it was there already."""

    def __init__(self):
        super().__init__()
        self.puts = []

    def put(self, data, path, deadline):
        part = Path(f"{path}.part")
        self.puts.append((Path(path).name, part.stat().st_size if part.exists() else 0))
        super().put(self.changed(data), path, deadline)

    def changed(self, data):
        return data


class Cut(Counting):
    """The connection ends after some bytes of an upload."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def put(self, data, path, deadline):
        Path(f"{path}.part").write_bytes(data[: self.after])
        raise WrongError(Refusal(Code.CONNECTION_LOST, path, "a connection", "none"))


class Flipped(Counting):
    """A byte of the first uploads arrives as another one."""

    def __init__(self, times, at=100):
        super().__init__()
        self.times, self.at = times, at

    def changed(self, data):
        if len(self.puts) > self.times:
            return data
        return data[: self.at] + bytes([data[self.at] ^ 1]) + data[self.at + 1 :]


class Refusing(Counting):
    """The first upload finds that its part was renamed by somebody else."""

    def changed(self, data):
        if len(self.puts) == 1:
            raise RefusedError(Refusal(Code.UNWRITABLE, "part", "a file", "none"))
        return data
