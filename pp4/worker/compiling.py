"""Compilation in a process of its own: the ranks of a rehearsal interpret and cannot compile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pp4.config import child_environment
from pp4.errors import Code, Refusal, TimedOutError, WrongError
from pp4.kernels import ptx
from pp4.wire.facts import Compiled, Shape
from pp4.worker.lifetime import end_with_parent

_LIMIT_S = 120.0


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
        argv += [f"--{name.replace('_', '-')}", str(value)]
    if control is not None:
        argv += ["--control", control, "--directory", str(directory)]
    # the path of a source file would end up in the machine code and in its digest
    environment = child_environment(
        {
            "TRITON_INTERPRET": "0",
            "TRITON_DISABLE_LINE_INFO": "1",
            "TRITON_CACHE_DIR": str(directory / "triton"),
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
