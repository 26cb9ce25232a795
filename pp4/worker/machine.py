"""Says what this machine would run: its GPUs, a rank's libraries, the kernels as compiled here.

``python -m pp4.worker.machine [UUID UUID]`` prints one :class:`pp4.wire.machine.Machine`, or a
refusal and exit code 3.  It takes the way of a qualification: a pair of ranks on the two GPUs that
are named, or else on the first two that reach each other, primed, joined, one block; what is hashed
is what is mapped after that.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pp4.config import load_settings
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire import Request
from pp4.wire.facts import PRODUCTION, Case, Library, Primed, Waits, read, refusal_of
from pp4.wire.gpus import GpuReport, first_pair
from pp4.wire.machine import Machine, MachineGpu, MachineKernel
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.gpus import read_gpus
from pp4.worker.owner import Owner

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class _Asker:
    """Asks an owner in this very process."""

    def __init__(self, owner: Owner) -> None:
        self._owner, self._sequence = owner, 0

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        self._sequence += 1
        asked = Request(sequence=self._sequence, verb=verb, arguments=arguments)
        reply = self._owner.answer(asked)
        if reply.facts is None:
            raise WrongError(refusal_of(reply.refusal))
        return reply.facts

    def libraries(self) -> tuple[Library, ...]:
        """Of rank 0; a qualification has seen that both ranks map the same."""
        found = self.ask("both", verb_of_rank="libraries")["ranks"][0]
        if found["facts"] is None:
            raise WrongError(refusal_of(found["refusal"]))
        return tuple(read(Library, one) for one in found["facts"]["libraries"])


def look(report: GpuReport, seats: Seats, homes: Homes) -> Machine:
    """Run one block on a pair and say what it ran on.

    Args:
        report: what the driver says of the GPUs.
        seats: where both ranks run.
        homes: directories that they may write.

    Raises:
        Pp4Error: the pair does not start, prime, join or run.
    """
    owner = Owner(homes, seats)
    asker = _Asker(owner)
    try:
        asker.ask("start")
        primed = asker.ask("prime", shape=PRODUCTION.model_dump(), recorded=True)
        waits = Waits(first_polls=1 << 30, next_polls=1 << 30).model_dump()
        asker.ask("link", nonce="machine", fence=0, rows=1, waits=[waits, waits])
        case = Case(batch=1, n_out=1, seed=1, modes=(1,))
        ran = asker.ask("block", case=case.model_dump(), launches=[{}, {}])
        if not ran["released"]:
            found = f"a block that was kept for {ran['why']}"
            raise WrongError(Refusal(Code(ran["why"]), "machine", "a healthy block", found))
        libraries = asker.libraries()
        asker.ask("teardown")
    finally:
        owner.close()
    return Machine(
        gpus=_gpus(report),
        libraries=libraries,
        kernels=tuple(
            _kernel(name, read(Primed, one))
            for name, ones in (("pair", primed["primed"]), ("solo", primed["solo"]))
            for one in ones
        ),
        boot_id=_BOOT_ID.read_text().strip(),
    )


def _gpus(report: GpuReport) -> tuple[MachineGpu, ...]:
    driver = report.driver_version or "not told"
    return tuple(
        MachineGpu(uuid=gpu.uuid, name=gpu.name, driver=driver, vbios=gpu.vbios)
        for gpu in report.gpus
    )


def _kernel(name: str, one: Primed) -> MachineKernel:
    return MachineKernel(
        name=f"sampled_fused.{name}",
        rank=one.rank,
        target=one.target,
        ptx_sha256=one.ptx_sha256,
        cubin_sha256=one.cubin_sha256,
    )


def main(arguments: Sequence[str]) -> int:
    """Print the facts, or the refusal; -> exit code."""
    try:
        report = read_gpus()
        # whoever names a pair has its locks, and those of no other
        pair = tuple(arguments) or first_pair(report)
        if pair is None:
            found = f"{len(report.gpus)} GPUs, and no two of them"
            raise RefusedError(
                Refusal(Code.NO_GPU_PAIR, "machine", "two GPUs that reach each other", found)
            )
        compiled = load_settings().state_dir / "compiled"
        with tempfile.TemporaryDirectory(prefix="pp4-machine-") as directory:
            machine = look(report, Seats(pair), Homes(Path(directory), compiled))
    except Pp4Error as error:
        sys.stdout.write(json.dumps({"refusal": error.refusal.as_dict()}) + "\n")
        return int(Exit.REFUSED)
    sys.stdout.write(machine.model_dump_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
