"""Rehearse over SSH: a server on this machine, a HOLD file for it, and the command as it is.

``python -m tests.ssh.loopback OUT`` leaves the receipt in OUT; its status is that of the command.
"""

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


def main(out):
    if MISSING:
        sys.stderr.write("needs sshd and ssh-keygen (openssh-server)\n")
        return 3
    with tempfile.TemporaryDirectory(prefix="pp4-loopback-") as directory:
        place = Path(directory)
        server = Sshd(place / "sshd")
        try:
            file = place / "hold.toml"
            told = vars(server) | {"host_key": server.host_key, "place": place}
            file.write_text(FILE.format(python=sys.executable, **told))
            argv = ["pair-qualify", "--hold", str(file), "--dry-run-device", "--out", out]
            return subprocess.run(
                [sys.executable, "-m", "pp4", *argv],
                env={**os.environ, "PP4_STATE_DIR": str(place / "mine")},
                check=False,
            ).returncode
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
