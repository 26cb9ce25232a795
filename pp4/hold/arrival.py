"""The smallest far step: ``python -m pp4.hold.arrival`` says where it has arrived."""

from __future__ import annotations

import platform
import sys

from pp4.clock import Deadline, SystemClock
from pp4.errors import Exit, Pp4Error
from pp4.hold.processes import boot_id
from pp4.receipts.digests import installed_source
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request

MODULE = "pp4.hold.arrival"
_TOLD_S = 60.0


def facts() -> dict[str, str]:
    """This boot, this Python, and the digest of the source that runs.

    Raises:
        RefusedError: the source cannot be read.
    """
    return {
        "boot_id": boot_id(),
        "python": platform.python_version(),
        "source_digest": installed_source().digest,
    }


def main() -> int:
    """Be the step that a supervisor has started; -> exit code."""
    pipes = Pipes.take_over()
    request = pipes.receive(Deadline.after(SystemClock(), _TOLD_S))
    if not isinstance(request, Request):
        return int(Exit.USAGE)
    try:
        pipes.send(Reply(sequence=request.sequence, facts=facts()))
    except Pp4Error as error:
        pipes.send(Reply(sequence=request.sequence, refusal=error.refusal.as_dict()))
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main())
