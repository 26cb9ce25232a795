"""``pp4 doctor``: what this machine can do, and what to do about the rest.

It looks and changes nothing, starts no CUDA context and imports neither torch nor Triton.
"""

from __future__ import annotations

from collections.abc import Iterator

from pp4.config import Settings
from pp4.doctor.gpu import check_gpus
from pp4.doctor.logind import check_logind
from pp4.doctor.machine import (
    STATE_NEEDED,
    TEMP_NEEDED,
    check_package,
    check_platform,
    check_program,
    check_python,
    check_shared_memory,
    check_space,
)
from pp4.doctor.model import Check, Diagnosis, Status
from pp4.doctor.probes import Answer, PathFacts, Probes, SystemProbes
from pp4.doctor.state import check_directory

__all__ = [
    "Answer",
    "Check",
    "Diagnosis",
    "PathFacts",
    "Probes",
    "Status",
    "SystemProbes",
    "diagnose",
]

_HOLD = "pair-qualify --hold, measure"


def diagnose(probes: Probes, settings: Settings, *, strict: bool) -> Diagnosis:
    """Make every check.

    Args:
        probes: the machine to look at.
        settings: where its directories are.
        strict: whether a warning or something missing is a refusal.
    """
    return Diagnosis(tuple(_checks(probes, settings)), strict)


def _checks(probes: Probes, settings: Settings) -> Iterator[Check]:
    yield check_python(probes)
    yield check_platform(probes)
    yield check_package(probes, "torch", (2, 11))
    yield check_package(probes, "triton", (3, 6))
    yield check_package(probes, "numpy")
    yield from check_gpus(probes)
    yield check_program(probes, "ssh", "looking at a receiving host by hand", "an OpenSSH client")
    yield check_program(probes, "ssh-keygen", "signatures of receipts", "an OpenSSH client")
    yield check_space(
        probes, "temporary space", settings.temp_dir, TEMP_NEEDED, "pair-qualify --dry-run"
    )
    yield check_space(probes, "state space", settings.state_dir, STATE_NEEDED, _HOLD)
    yield check_directory(probes, "state directory", settings.state_dir, _HOLD, private=True)
    yield check_directory(probes, "host directory", settings.host_dir, _HOLD, private=False)
    yield check_logind(probes)
    yield check_shared_memory(probes)
