"""Near hosts that ask a silent further host for a second beyond its lease, not for ten.

For what is asked in vain: what is to be proven is proven by the product as it is.

``python -m tests.ssh.brief relay PROGRAM`` is ``pp4.hold.relay open`` with PROGRAM for the
interpreter of the supervisor; ``python -m tests.ssh.brief recovery HOLD`` is ``pp4.hold.recovery``.
"""

import sys

from pp4.hold import hop_ends, recovery, relay, supervisor
from tests.faults.windows import program

MORE_S = 1.0
_PROGRAM = """\
#!{python}
import sys
from tests.ssh.brief import supervise
sys.exit(supervise(sys.argv[1:]))
"""


class Brief:
    """Starts supervisors and recoveries that are soon told that nobody answers."""

    def __init__(self, place):
        self._program = place / "brief"
        self._program.write_text(_PROGRAM.format(python=sys.executable))
        self._program.chmod(0o700)

    def program(self, module, *arguments):
        """As :func:`tests.faults.windows.program`."""
        if (module, *arguments) == ("pp4.hold.relay", "open"):
            return program("tests.ssh.brief", "relay", str(self._program))
        if module == "pp4.hold.recovery":
            return program("tests.ssh.brief", "recovery", *arguments)
        return program(module, *arguments)


def supervise(arguments):
    """Be the supervisor that a relay starts."""
    if arguments != ["-P", "-m", supervisor.__name__]:
        raise ValueError(f"no supervisor was asked for, but {arguments}")
    hop_ends.MORE_S = MORE_S
    return supervisor.main()


def main(kind, argument):
    """Be a relay to such a supervisor, or such a recovery; -> exit code."""
    if kind == "relay":
        sys.executable = argument
        return relay.main(["open"])
    hop_ends.MORE_S = MORE_S
    return recovery.main([argument])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
