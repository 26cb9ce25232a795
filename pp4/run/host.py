"""Asks this machine about its GPUs, before anything is held.

``python -m pp4.run.host COMMAND`` prints what it finds for a run by that command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from pp4.config import Settings, visible_gpus
from pp4.errors import Code, Exit, Pp4Error, Refusal, RefusedError
from pp4.hold.exclusion import open_exclusion
from pp4.run.machine import ask_machine
from pp4.run.receipt import require_packages
from pp4.wire.facts import read
from pp4.wire.gpus import GpuReport, first_pair

_LIMIT_S = 60.0


def look_at_gpus() -> GpuReport:
    """What the driver says of the GPUs that this process may use, which makes no context on any.

    Raises:
        RefusedError: there is no driver or no NVML; or ``BAD_SETTING``, ``CUDA_VISIBLE_DEVICES``
            hides GPUs in a way that pp4 cannot follow.
        TimedOutError: a driver that hangs.
    """
    argv = (sys.executable, "-P", "-m", "pp4.worker.gpus")
    return visible(read(GpuReport, dict(ask_machine(argv, limit_s=_LIMIT_S))), visible_gpus())


def visible(report: GpuReport, names: tuple[str, ...] | None) -> GpuReport:
    """The part of a report that a setting leaves visible.

    Args:
        report: all GPUs.
        names: entries of ``CUDA_VISIBLE_DEVICES``, None where it is not set.

    Raises:
        RefusedError: ``BAD_SETTING``, numbers that leave some GPU out: CUDA may count otherwise
            than the driver does.
    """
    everything = {str(gpu.index) for gpu in report.gpus}
    if names is None or set(names) == everything:
        return report
    if any(not name.startswith("GPU-") for name in names):
        raise RefusedError(
            Refusal(
                Code.BAD_SETTING,
                "CUDA_VISIBLE_DEVICES",
                "UUIDs of GPUs (nvidia-smi -L), or the numbers of all of them",
                ",".join(names),
                next="unset CUDA_VISIBLE_DEVICES",
            )
        )
    gpus = tuple(gpu for gpu in report.gpus if any(gpu.uuid.startswith(one) for one in names))
    left = {gpu.index for gpu in gpus}
    p2p = tuple(way for way in report.p2p if {way.source, way.target} <= left)
    return report.model_copy(update={"gpus": gpus, "p2p": p2p})


def facts_of_this_machine(machine: Settings) -> Mapping[str, object]:
    """What this machine would run; it runs a block on the first pair, under the pair's locks.

    Args:
        machine: settings of this machine.

    Raises:
        RefusedError: ``NO_GPU_PAIR``; ``HELD_BY``, the GPUs are in use; what the process refuses.
        TimedOutError: ``STEP_TIMEOUT``.
    """
    report = look_at_gpus()
    pair = first_pair(report)
    if pair is None:
        found = f"{len(report.gpus)} GPUs, and no two of them"
        raise RefusedError(
            Refusal(
                Code.NO_GPU_PAIR,
                "this machine",
                "two GPUs that reach each other",
                found,
                source="NVML, as far as CUDA_VISIBLE_DEVICES leaves it visible",
                next="pp4 doctor",
            )
        )
    with open_exclusion(machine.host_dir, machine.state_dir).locked(pair):
        # by name: its driver tells of GPUs that a setting hides, and whose locks nobody has here
        return ask_machine(gpus=pair)


def look_for_run(command: str) -> GpuReport:
    """As :func:`look_at_gpus`, where what the ranks of a run need is installed.

    Args:
        command: what asks for the run.

    Raises:
        RefusedError, TimedOutError: as :func:`look_at_gpus`; before that ``MISSING_PACKAGE``.
    """
    require_packages(command)
    return look_at_gpus()


def main(arguments: Sequence[str]) -> int:
    """Print what :func:`look_for_run` sees, or its refusal, for whoever holds; -> exit code."""
    try:
        told = look_for_run(" ".join(arguments)).model_dump_json()
    except Pp4Error as error:
        told = json.dumps({"refusal": error.refusal.as_dict()})
    sys.stdout.write(told + "\n")
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
