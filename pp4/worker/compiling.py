"""Compilation in a process of its own: the ranks of a rehearsal interpret and cannot compile.

Every pair is primed anew, and most pairs prime what an earlier one did.  A compiler beside each of
them would cost seconds, so what came out is recorded beside the binaries; a record counts only for
the same sources and the same Triton, and only while the binaries still have the digests in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pp4.config import child_environment
from pp4.errors import Code, Refusal, TimedOutError, WrongError
from pp4.kernels import ptx
from pp4.kernels.priming import specialisation
from pp4.wire.facts import Compiled, Shape, read
from pp4.worker.inputs import geometry_of
from pp4.worker.lifetime import end_with_parent

_LIMIT_S = 120.0
_CACHE = "triton"
_SOURCES = Path(ptx.__file__).parent


@dataclass(frozen=True, slots=True)
class Homes:
    """Where ranks write.

    Attributes:
        pair: what belongs to one owner and its pairs.
        compiled: what was compiled, shared by all owners of a HOLD.
    """

    pair: Path
    compiled: Path


class Compiler:
    """Primes the specialisations of one rank and remembers what an earlier one primed.

    Args:
        directory: where binaries and records go; of one rank number, so that the digests of two
            ranks never come from one file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def prime(self, shape: Shape, shards: int, *, recorded: bool) -> tuple[Compiled, bool]:
        """Compile, or believe a record; -> what came out, and whether no compiler ran."""
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self._name(shape, shards)}.json"
        known = self._recall(path) if recorded else None
        if known is not None:
            return known, True
        built = compile_apart(shape, shards=shards, control=None, directory=self._directory)
        # renamed into place: whoever is killed here leaves no half a record
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(built.model_dump_json())
        draft.replace(path)
        return built, False

    @staticmethod
    def _name(shape: Shape, shards: int) -> str:
        words = [specialisation(geometry_of(shape), shards), version("triton"), sources_digest()]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()

    def _recall(self, path: Path) -> Compiled | None:
        """A record whose binaries are as it says, else None."""
        try:
            known = read(Compiled, json.loads(path.read_text()))
            digests = set(self._binaries())
        except (OSError, ValueError, WrongError):
            return None
        return known if {known.ptx_sha256, known.cubin_sha256} <= digests else None

    def _binaries(self) -> Iterator[str]:
        for path in (self._directory / _CACHE).glob("*/*"):
            if path.suffix in (".ptx", ".cubin"):
                yield hashlib.sha256(path.read_bytes()).hexdigest()


def sources_digest(directory: Path = _SOURCES) -> str:
    """Digest of every source that a kernel may be made of."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*.py")):
        total.update(f"{path.relative_to(directory)}\n".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def compile_apart(shape: Shape, *, shards: int, control: str | None, directory: Path) -> Compiled:
    """Compile one specialisation for sm_90 and read its PTX.

    Args:
        shape: the geometry.
        shards: 1 for a rank of a pair, 2 for solo.
        control: a mutant to compile in the product's place.
        directory: where cache and mutant go.

    Raises:
        WrongError: it does not compile.
        TimedOutError: it takes too long.
    """
    argv = [sys.executable, "-P", "-m", "pp4.kernels.compile", "--ptx", "--shards", str(shards)]
    for name, value in shape.model_dump().items():
        argv += [f"--{name.replace('_', '-')}", str(int(value))]
    if control is not None:
        argv += ["--control", control, "--directory", str(directory)]
    # the path of a source file would end up in the machine code and in its digest
    environment = child_environment(
        {
            "TRITON_INTERPRET": "0",
            "TRITON_DISABLE_LINE_INFO": "1",
            "TRITON_CACHE_DIR": str(directory / _CACHE),
        }
    )
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            text=True,
            preexec_fn=end_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(
            Refusal(Code.STEP_TIMEOUT, "compile", f"an end within {_LIMIT_S:g} s", "none")
        ) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        raise WrongError(Refusal(Code.INTERNAL, "compile", "a compiled kernel", last[:300]))
    built = json.loads(done.stdout)
    return Compiled(
        target=built["target"],
        ptx_sha256=built["ptx_sha256"],
        cubin_sha256=built["cubin_sha256"],
        faults=ptx.faults(built["ptx"], paired=shards == 1),
    )
