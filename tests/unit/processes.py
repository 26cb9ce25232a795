"""Processes as the kernel lists them, and conditions that have to come about."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LONG = 120.0
"""Seconds; only a hang takes them."""


def state(pid):
    """The letter of a process's state as the kernel lists it, "" where it lists none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def running(pid):
    """Whether the kernel lists a process that is no zombie."""
    return state(pid) not in ("", "Z", "X")


def within(condition, limit_s=LONG):
    """Whether a condition comes about before a deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def halt(pid):
    """Stop a process; returns when the kernel lists it as stopped, not at the signal."""
    os.kill(pid, signal.SIGSTOP)
    assert within(lambda: state(pid) == "T")


def printed(script, *arguments):
    """Run a script in a process of its own that has to end well; -> the words that it printed."""
    argv = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
