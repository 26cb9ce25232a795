"""The README's trained pair on a CPU, run as it stands there: a worker, and a text with it.

``python -m tests.trained_pair`` from a checkout; .ci/run does it beside something else, since it
takes longer than a test should.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pp4.clock import Deadline, SystemClock
from pp4.errors import Pp4Error
from pp4.transport.worker_socket import ask_status
from tests.lines import joined
from tests.pages import ROOT, section, steps

LIMIT_S = 300.0
TITLE = "### Decode with a trained pair, on a CPU"


def main():
    """Run the section; -> exit code."""
    text = section((ROOT / "README.md").read_text(), TITLE)
    ((lines, _),) = steps(text)
    *_, serve, generate = (re.sub(r"\s+", " ", line) for line in joined(lines))
    with tempfile.TemporaryDirectory(prefix="pp4-") as name:
        place = Path(name)
        worker = started(serve.removesuffix("&"), place)
        try:
            wait_for(worker, place / "mini")
            said = done(generate, place).stdout
            assert said.startswith("class Reader:"), said
            assert re.search(r"^accepted: [1-9]", said, re.MULTILINE), said
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(LIMIT_S) == 0
        finally:
            worker.kill()
            worker.wait(LIMIT_S)
    print(said.partition("\n\n")[0])
    return 0


def words(line, place):
    """Environment and arguments of a line, its places in another directory."""
    given, argv = {}, shlex.split(line.replace("/tmp/pp4", str(place)))
    while "=" in argv[0]:
        name, _, value = argv.pop(0).partition("=")
        given[name] = value
    program, *rest = argv
    module = {"python": [], "pp4": ["-m", "pp4"]}[program]
    ours = {"PP4_STATE_DIR": str(place / "state"), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **ours, **given}, [sys.executable, *module, *rest]


def done(line, place):
    """Run a line to its end."""
    environment, argv = words(line, place)
    options = {"cwd": ROOT, "env": environment, "timeout": LIMIT_S}
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, **options)


def started(line, place):
    """Start a line that goes on."""
    environment, argv = words(line, place)
    return subprocess.Popen(argv, cwd=ROOT, env=environment)


def wait_for(worker, path):
    """Wait until a worker serves."""
    deadline = Deadline.after(SystemClock(), LIMIT_S)
    while True:
        assert worker.poll() is None, "the worker has ended"
        deadline.require("a worker that serves")
        try:
            if ask_status(path).state == "serving":
                return
        except Pp4Error:
            # not there yet
            pass
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
