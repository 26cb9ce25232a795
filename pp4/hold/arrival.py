"""The smallest far step: ``python -m pp4.hold.arrival`` says where it has arrived."""

from __future__ import annotations

import platform
import sys
from typing import Any

from pp4.hold.inner import Supervisor
from pp4.hold.processes import boot_id
from pp4.hold.program import run_step
from pp4.receipts.digests import installed_source
from pp4.wire.holds import Run

MODULE = "pp4.hold.arrival"


def arrived(told: Run, supervisor: Supervisor) -> dict[str, Any]:
    """This boot, this Python, and the digest of the source that runs.

    Raises:
        RefusedError: the source cannot be read.
    """
    return {
        "boot_id": boot_id(),
        "python": platform.python_version(),
        "source_digest": installed_source().digest,
    }


if __name__ == "__main__":
    sys.exit(run_step(MODULE, arrived))
