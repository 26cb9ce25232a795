"""What a HOLD over SSH costs on loopback: to reach the host, to open, to keep, to close, to look.

``python -m benchmarks.hold_overhead`` starts an SSH server of its own (openssh-server) and touches
no GPU.  Times are medians in milliseconds.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pp4.config.hold_file import load_hold_file
from pp4.hold.reach import reached
from tests.faults.windows import DRILLS, tokens, window
from tests.ssh.hosts import connect
from tests.ssh.loopback import FILE, filled
from tests.ssh.servers import Sshd

ROUNDS = 5
KEPT_S = 30.0


def timed(call):
    began = time.monotonic()
    found = call()
    return found, (time.monotonic() - began) * 1e3


def cpu_s(pid):
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reach(file):
    """Connect, stage and let go; then the same and ask for the status of the host."""
    times, looks = [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        with reached(file) as place:
            times.append((time.monotonic() - began) * 1e3)
            looks.append(timed(lambda: place.ask("pp4", "hold", "status", "--json"))[1])
    return times, looks


def hold(server, place):
    opens, closes = [], []
    for _ in range(ROUNDS):
        host = connect(server)
        one = window(place, host=host, transport="ssh", ttl_s=30.0)
        _, took = timed(one.__enter__)
        opens.append(took)
        closes.append(timed(lambda one=one: one.__exit__(None, None, None))[1])
    return opens, closes


def kept(server, place):
    """Processor time per second of all that keeps an idle HOLD alive, in percent of a core."""
    with window(place, host=connect(server), transport="ssh", ttl_s=30.0) as one:
        registered = place / "host" / "holds" / one.granted.hold / "registration.json"
        supervisor = int(registered.read_text().split('"pid":')[1].split(",")[0])
        watched = [os.getpid(), supervisor, *server.pids()]
        before = sum(map(cpu_s, watched))
        time.sleep(KEPT_S)
        idle = sum(map(cpu_s, watched)) - before
        assert one.run("drill", DRILLS, {"answer": {}}) == {}
        assert tokens(supervisor)
    return 100 * idle / KEPT_S


def main():
    with tempfile.TemporaryDirectory(prefix="pp4-overhead-") as directory:
        place = Path(directory)
        server = Sshd(place / "sshd")
        try:
            file = place / "hold.toml"
            file.write_text(filled(FILE, server, place))
            rows = dict(
                zip(("reach and stage", "status"), reach(load_hold_file(file)), strict=True)
            )
            rows |= dict(zip(("open", "close"), hold(server, place), strict=True))
            for name, times in rows.items():
                sys.stdout.write(
                    f"{name:16} {statistics.median(times):8.0f} ms  "
                    f"({', '.join(f'{one:.0f}' for one in times)})\n"
                )
            sys.stdout.write(f"kept alive       {kept(server, place):8.2f} % of a core\n")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
