"""The processes of a race as their parent sees them: started, asked, and ended by a deadline.

A rank that hangs in a collective cannot be reasoned with.  The parent waits for an answer until a
deadline and then kills every rank; a new crew races on.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from pp4.config import child_environment
from pp4.worker.lifetime import end_with_parent

ROOT = Path(__file__).parents[2]
GRACE_S = 20.0
"""How long one rank may take to answer after the other has failed."""
_QUIET = {
    # the failure of NVLink multicast can take a whole host's GPUs out of service
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TRITON_DISABLE_LINE_INFO": "1",
}


class LostError(Exception):
    """A rank hangs or is gone; its crew has been ended."""


class Crew:
    """One process for each seat.

    Args:
        seats: 1 or 2.
        device: "cuda", or "cpu" for Triton's interpreter and gloo.
        module: what each process runs.
    """

    def __init__(self, seats, device, module="benchmarks.racing.rank"):
        self.seats, self.device = seats, device
        self._module, self._home, self._ranks = module, None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, job, patience_s, seats=None):
        """Give ranks a job; -> their answers in order.

        Args:
            job: a verb and what it needs.
            patience_s: how long both may take together.
            seats: how many ranks it is for, from rank 0 on; all where None.

        Raises:
            LostError: no answer in time, or a process that ended.
        """
        if not self._ranks:
            self._start()
        asked = self._ranks[: seats or self.seats]
        try:
            for process in asked:
                process.stdin.write(json.dumps(job).encode() + b"\n")
                process.stdin.flush()
            return self._answers(asked, time.monotonic() + patience_s)
        except (LostError, BrokenPipeError) as error:
            self.close()
            raise LostError(str(error)) from error

    def _start(self):
        self._home = tempfile.TemporaryDirectory(prefix="pp4-race-")
        for rank in range(self.seats):
            self._ranks.append(
                subprocess.Popen(
                    [
                        *(sys.executable, "-m", self._module, "--rank", str(rank)),
                        *("--device", self.device, "--directory", self._home.name),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd=ROOT,
                    env=_environment(self.device),
                    preexec_fn=end_with_parent,
                    # compilers that a rank starts end with its group
                    start_new_session=True,
                )
            )

    def _answers(self, asked, deadline):
        answers, parts = {}, dict.fromkeys(range(len(asked)), b"")
        with selectors.DefaultSelector() as selector:
            for place, process in enumerate(asked):
                selector.register(process.stdout, selectors.EVENT_READ, place)
            while len(answers) < len(asked):
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    silent = sorted(set(range(len(asked))) - set(answers))
                    raise LostError(f"no answer of rank {silent} by the deadline{_told(answers)}")
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        raise LostError(f"rank {key.data} ended{_told(answers)}")
                    parts[key.data] += data
                    if parts[key.data].endswith(b"\n"):
                        answers[key.data] = json.loads(parts[key.data])
                        selector.unregister(key.fileobj)
                        if answers[key.data].get("state") == "failed":
                            # the other may wait for this one for ever
                            deadline = min(deadline, time.monotonic() + GRACE_S)
        return [answers[place] for place in range(len(asked))]

    def pids(self):
        """Processes that are there now, in rank order."""
        return [process.pid for process in self._ranks]

    def close(self):
        """End every process and what it started; the next job starts new ones."""
        for process in self._ranks:
            with suppress(ProcessLookupError):
                # the group is the process' own: it was started as its leader
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=60)
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()
        self._ranks = []
        if self._home is not None:
            self._home.cleanup()
            self._home = None


def seats_here(asked):
    """How many processes a run takes, by its options; 0 where this machine has no GPU for it."""
    wanted = 1 if asked.solo else 2
    if asked.device == "cpu":
        return wanted
    import torch

    return min(wanted, torch.cuda.device_count())


def _environment(device):
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    interpret = "1" if device == "cpu" else "0"
    return child_environment(
        {**_QUIET, "PYTHONPATH": os.pathsep.join(paths), "TRITON_INTERPRET": interpret}
    )


def _told(answers):
    failed = [one["found"] for one in answers.values() if one.get("state") == "failed"]
    return f"; another said {failed[0]}" if failed else ""
