"""Asks this machine about its GPUs, before anything is held."""

from __future__ import annotations

import sys

from pp4.qualify.machine import ask_machine
from pp4.wire.facts import read
from pp4.wire.gpus import GpuReport

_LIMIT_S = 60.0


def look_at_gpus() -> GpuReport:
    """What the driver says of every GPU, from a process that makes no context on any.

    Raises:
        RefusedError: there is no driver or no NVML; it refuses by name.
        TimedOutError: a driver that hangs.
    """
    argv = (sys.executable, "-P", "-m", "pp4.worker.gpus")
    return read(GpuReport, dict(ask_machine(argv, limit_s=_LIMIT_S)))
