"""``pp4`` as a person runs it on the coordinator's side, with the HOLD file of a server."""

import json
import os
import subprocess
import sys

from tests.faults.windows import PATIENCE_S, ROOT
from tests.ssh.loopback import FILE


class Command:
    """``pp4`` on the coordinator's side, with a HOLD file of a server."""

    def __init__(self, server, place, ttl_s, more=""):
        self.file, self.place = place / "hold.toml", place
        told = vars(server) | {"host_key": server.host_key, "place": place}
        text = FILE.format(python=sys.executable, **told)
        self.file.write_text(text.replace("[hold]\n", f"[hold]\nttl = {ttl_s:g}\n") + more)
        self.mine = place / "mine"

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "pp4", *arguments, "--hold", str(self.file)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PP4_STATE_DIR": str(self.mine)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments):
        """Its status and its JSON document."""
        process = self.start(*arguments, "--json")
        said, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, json.loads(said or errors)

    def working(self, process):
        """The HOLD that is open, once the gates in it have begun."""
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        for journal in (self.place / "state" / "holds").glob("*/journal.jsonl"):
            if b"gate-0/" in journal.read_bytes():
                return journal.parent.name
        return None
