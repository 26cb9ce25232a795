"""``pp4`` on two GPUs that do not exist, whose steps are played by :mod:`measured_steps`.

``python -m tests.faults.measured_command ARGUMENTS``: everything else is the product's own: what is
judged here and by the host, the HOLD and its supervisor, files, receipts, exit codes.
There are few rounds, and ``BOUND_S`` in the environment takes the place of the HOLD file's bound.
"""

import os
import sys

from pp4 import cli
from pp4.measure import held as measuring
from pp4.measure import schedule
from pp4.qualify import far, held
from tests.faults import measured_steps
from tests.unit.measure import evidence
from tests.unit.qualify.gpus import gpu, report
from tests.unit.receipts.parts import UUIDS

_asked = held._asked


def asked(file, chosen):
    """What is asked for, perhaps for a shorter time than a HOLD file can say."""
    bound = os.environ.get("BOUND_S")
    return _asked(file, chosen).model_copy(update={"bound_s": float(bound)} if bound else {})


if __name__ == "__main__":
    held._asked = asked
    held._gpus_there = lambda place, command: report(
        *(gpu(index, uuid=uuid) for index, uuid in enumerate(UUIDS))
    )
    schedule.STANDARD = evidence.FEW
    far.MODULE = measuring.MODULE = measured_steps.MODULE
    sys.exit(cli.main(sys.argv[1:]))
