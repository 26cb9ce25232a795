"""A supervisor whose disk takes what is written and fails to keep it, while a file is there.

``python -m tests.faults.failing_disk PROGRAM`` is ``pp4.hold.relay open`` with PROGRAM for the
interpreter of the supervisor; :class:`FailingDisk` makes one that calls :func:`supervise`.
"""

import errno
import os
import sys

from pp4.hold import relay, supervisor
from tests.faults.windows import program

_PROGRAM = """\
#!{python}
import sys
from tests.faults.failing_disk import supervise
sys.exit(supervise({flag!r}, sys.argv[1:]))
"""


class FailingDisk:
    """Starts supervisors for which ``fsync`` fails from the moment at which ``flag`` exists.

    Attributes:
        flag: a file.
    """

    def __init__(self, place):
        self.flag = place / "failing"
        self._program = place / "supervisor"
        self._program.write_text(_PROGRAM.format(python=sys.executable, flag=str(self.flag)))
        self._program.chmod(0o700)

    def program(self, module, *arguments):
        """As :func:`tests.faults.windows.program`; only a supervisor is another one."""
        if (module, *arguments) == ("pp4.hold.relay", "open"):
            return program("tests.faults.failing_disk", str(self._program))
        return program(module, *arguments)


def supervise(flag, arguments):
    """Be the supervisor that a relay starts, on such a disk."""
    if arguments != ["-P", "-m", supervisor.__name__]:
        raise ValueError(f"no supervisor was asked for, but {arguments}")
    kept = {"fsync": os.fsync, "fdatasync": os.fdatasync}

    def failing(name):
        def flush(descriptor):
            if os.path.exists(flag):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            kept[name](descriptor)

        return flush

    for name in kept:
        setattr(os, name, failing(name))
    return supervisor.main()


if __name__ == "__main__":
    sys.executable = sys.argv[1]
    sys.exit(relay.main(["open"]))
