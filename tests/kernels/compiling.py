"""Compilation in processes that do not interpret Triton."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TINY = ["--vocab", "64", "--split", "32", "--tile", "32", "--rank-dim", "1"]

_EVERYTHING = """
import json, sys
from pathlib import Path
from pp4.kernels.compile import compile_offline
from pp4.kernels.controls import MUTANTS, build
from pp4.kernels.geometry import Geometry

small = Geometry(vocab=259, split=131, tile=128, rank_dim=32)
tiny = Geometry(vocab=64, split=32, tile=32, rank_dim=1)
found = {"solo": compile_offline(small, shards=2).ptx, "pair": compile_offline(small, shards=1).ptx}
found["tiny_pair"] = compile_offline(tiny, shards=1).ptx
found["mutants"] = {
    name: compile_offline(tiny, shards=1, kernel=build(name, Path(sys.argv[1]))._kernel).ptx
    for name in MUTANTS
}
print(json.dumps(found))
"""


def environment(cache, **more):
    """Environment of a compiling process, with a compiler cache of its own."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return {**kept, "TRITON_CACHE_DIR": str(cache), **more}


def python(arguments, cache, cwd=ROOT, **more):
    """Run Python without the interpreter of Triton; -> the finished process."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(cache, **more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def record(arguments, cache, cwd=ROOT, **more):
    """What ``python -m pp4.kernels.compile`` says."""
    done = python(["-m", "pp4.kernels.compile", *arguments], cache, cwd, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Compiled:
    """PTX of the product in a small geometry, and of the mutants beside it in a tiny one."""

    solo: str
    pair: str
    tiny_pair: str
    mutants: dict


def everything(directory: Path) -> Compiled:
    """Compile the product and every mutant in one process, or read what was compiled before."""
    kept = directory / "compiled.json"
    if kept.exists():
        return Compiled(**json.loads(kept.read_text("utf-8")))
    done = python(["-c", _EVERYTHING, str(directory / "controls")], directory / "cache")
    assert done.returncode == 0, done.stderr
    kept.write_text(done.stdout, "utf-8")
    return Compiled(**json.loads(done.stdout))
