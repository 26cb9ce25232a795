"""Rehearse over SSH: two servers on this machine, a HOLD file, and the command as it is.

The second server is a further host, which only the first one is told to reach.

``python -m tests.ssh.loopback OUT`` leaves the receipt in OUT; its status is that of the command.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.ssh.servers import MISSING, Sshd

FILE = """\
[hold]
name = "loopback"

[receiving_host]
transport = "ssh"
address = "{address}"
port = {port}
user = "{user}"
identity_file = "{identity_file}"
host_key = "{host_key}"
python = "{python}"
state_dir = "{place}/state"
host_dir = "{place}/host"
gpus = [
    "GPU-00000000-0000-4000-8000-00000000000a",
    "GPU-00000000-0000-4000-8000-00000000000b",
]
"""

HOP = """
[[hop]]
name = "further"
address = "{address}"
port = {port}
user = "{user}"
identity_file = "{identity_file}"
host_key = "{host_key}"
python = "{python}"
state_dir = "{place}/further-state"
host_dir = "{place}/further-host"
"""


def filled(text, server, place):
    told = vars(server) | {"host_key": server.host_key, "place": place}
    return text.format(python=sys.executable, **told)


def main(out):
    if MISSING:
        sys.stderr.write("needs sshd and ssh-keygen (openssh-server)\n")
        return 3
    with tempfile.TemporaryDirectory(prefix="pp4-loopback-") as directory:
        place = Path(directory)
        with contextlib.ExitStack() as stack:
            host, further = Sshd(place / "sshd"), Sshd(place / "further-sshd")
            for server in (host, further):
                stack.callback(server.stop)
            file = place / "hold.toml"
            file.write_text(filled(FILE, host, place) + filled(HOP, further, place))
            argv = ["pair-qualify", "--hold", str(file), "--dry-run-device", "--out", out]
            return subprocess.run(
                [sys.executable, "-m", "pp4", *argv],
                env={**os.environ, "PP4_STATE_DIR": str(place / "mine")},
                check=False,
            ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
