"""What the GPUs were like before and after a line, by the driver; asked, never set."""

import os
import platform
from datetime import UTC, datetime

from pp4.errors import Pp4Error
from pp4.worker.gpus import read_gpus


def gpus():
    """Clocks, temperature, power and what slows each GPU down; or why that is not known."""
    try:
        report = read_gpus()
    except Pp4Error as error:
        return {"unknown": str(error)}
    return {
        "driver": report.driver_version,
        "gpus": [
            {
                "index": one.index,
                "name": one.name,
                "sm_mhz": one.clocks.sm,
                "memory_mhz": one.clocks.memory,
                "temperature_c": one.temperature_c,
                "power_w": None if one.power_mw is None else one.power_mw / 1000,
                "slowed_by": one.slowed_by,
            }
            for one in report.gpus
        ],
    }


def machine(argv):
    """Where and how this run was made."""
    return {
        "command": list(argv),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
