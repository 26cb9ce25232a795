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
import triton
from pp4.kernels.compile import compile_offline
from pp4.kernels.controls import MUTANTS, Edit, Mutant, build
from pp4.kernels.controls.build import build_mutant
from pp4.kernels.geometry import Geometry

directory, spelled = Path(sys.argv[1]), sys.argv[2:]
small = Geometry(vocab=259, split=131, tile=128, rank_dim=32)
tiny = Geometry(vocab=64, split=32, tile=32, rank_dim=1)
mutants = {name: build(name, directory)._kernel for name in MUTANTS}
remark = Edit("sampled_fused.py", "INACTIVE = 0\\n", "INACTIVE = 0  # as it was\\n")
mutants["remark"] = build_mutant(Mutant("remark", "a comment", (remark,)), directory)._kernel


class Reached(Exception):
    pass


def stop(module, metadata):
    raise Reached(str(module))


def inspect(*told):
    # Triton also asks for what tells such results from others that it keeps
    if told:
        told[1]["ttgir"] = stop
    return "form", "form"


def form(kernel):
    try:
        compile_offline(tiny, shards=1, kernel=kernel)
    except Reached as reached:
        return str(reached)


# before anything is compiled to its end, which would be kept
triton.knobs.runtime.add_stages_inspection_hook = inspect
product = form(None)
alike = [name for name, kernel in mutants.items() if form(kernel) == product]
triton.knobs.runtime.add_stages_inspection_hook = None

built = {"solo": compile_offline(small, shards=2), "pair": compile_offline(small, shards=1)}
built["tiny_pair"] = compile_offline(tiny, shards=1)
members = ("target", "ptx", "ptx_sha256", "cubin_sha256")
found = {name: {one: getattr(each, one) for one in members} for name, each in built.items()}
found["mutants"] = {
    name: compile_offline(tiny, shards=1, kernel=mutants[name]).ptx for name in spelled
}
print(json.dumps({**found, "alike": alike}))
"""
# the others are run, and their text is not looked at
SPELLED = ("missing_barrier", "relaxed_signal", "relaxed_chain")


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
    """What came out of the product in a small geometry, and of the mutants in a tiny one.

    Attributes:
        solo: target, PTX and digests of the product.
        pair: likewise.
        tiny_pair: likewise.
        mutants: PTX of those that are found in their text.
        alike: mutants that are the product once Triton has inlined and simplified them.
    """

    solo: dict
    pair: dict
    tiny_pair: dict
    mutants: dict
    alike: list


def everything(directory: Path) -> Compiled:
    """Compile the product and the mutants in one process, or read what was compiled before."""
    kept = directory / "compiled.json"
    if kept.exists():
        return Compiled(**json.loads(kept.read_text("utf-8")))
    program = ["-c", _EVERYTHING, str(directory / "controls"), *SPELLED]
    done = python(program, directory / "cache", TRITON_DISABLE_LINE_INFO="1")
    assert done.returncode == 0, done.stderr
    kept.write_text(done.stdout, "utf-8")
    return Compiled(**json.loads(done.stdout))
