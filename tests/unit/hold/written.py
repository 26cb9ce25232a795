"""HOLDs as files, and the processes that they speak of."""

import os
import subprocess
import sys
from contextlib import contextmanager

from pp4.hold.processes import COOKIE, Owned, boot_id, namespace, start_token
from pp4.hold.records import Coordinator, Registration, Tombstone, write
from pp4.receipts.canonical import dump
from pp4.receipts.journal import head, next_line
from tests.unit.hold.holds import GPUS
from tests.unit.processes import state, within

WAITS = "import sys\nprint('ready', flush=True)\nsys.stdin.read()"
OPENED = "2026-01-01T00:00:00Z"

MARKED = os.urandom(8).hex()
"""A HOLD of this run of the tests alone: others look for marked processes at the same time."""


@contextmanager
def living(label="rank 0", mark=None):
    """A process that waits, asleep by the kernel's word; ended and reaped afterwards."""
    environment = {**os.environ, **({COOKIE: mark} if mark else {})}
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        assert within(lambda: state(process.pid) == "S")
        token = start_token(process.pid)
        assert token is not None
        yield Owned(process.pid, token, label)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def zombie(owned):
    """Kill a child and leave it to be reaped."""
    os.kill(owned.pid, 9)
    assert within(lambda: not owned.alive())
    assert os.path.exists(f"/proc/{owned.pid}")


def dead(label="rank 0"):
    """A process that was there and is gone."""
    with living(label) as owned:
        pass
    return owned


def reused(label="rank 0"):
    """A process whose id is somebody else's now: this very process's."""
    return Owned(os.getpid(), str(int(start_token(os.getpid())) - 1), label)


def me(label="coordinator"):
    """This process."""
    return Owned(os.getpid(), start_token(os.getpid()), label)


def books(owned):
    """Lines of ``procs.jsonl``."""
    return chained([(one.label, {"pid": one.pid, "start_token": one.start_token}) for one in owned])


def chained(steps):
    """Bytes of a journal, and its lines."""
    lines = []
    for step, detail in steps:
        last = lines[-1] if lines else None
        lines.append(next_line(last, step, "process", detail=detail))
    return b"".join(dump(line) + b"\n" for line in lines), lines


def write_hold(
    exclusion,
    hold,
    *,
    gpus=GPUS,
    fence=1,
    holder=None,
    pids="",
    boot="",
    opened=OPENED,
    deadline_ns=10**15,
    procs=(),
    survivors=None,
    closed=None,
    why="done",
    state_dir=None,
):
    """Write the files of one HOLD; -> its directory.

    Args:
        holder: the process that holds; a dead one otherwise.
        pids: its pid namespace; that of this process otherwise.
        boot: its boot; this one otherwise.
        procs: processes in its books.
        survivors: of a HOLD whose end had begun.
        closed: when its tombstone was written.
        state_dir: where its journal is, if not beside its registration.
    """
    directory = exclusion.holds / hold
    own = directory if state_dir is None else state_dir / "holds" / hold
    for one in (directory, own):
        one.mkdir(parents=True, exist_ok=True)
    holder = holder or dead("coordinator")
    raw, lines = chained([("granted", {"note": "x"}), ("gate-0/data-pattern", {})])
    (own / "journal.jsonl").write_bytes(raw)
    write(
        directory / "registration.json",
        Registration(
            hold=hold,
            command="pair-qualify kernels",
            fence=str(fence),
            gpus=tuple(gpus),
            coordinator=Coordinator(
                pid=holder.pid,
                start_token=holder.start_token,
                pid_namespace=pids or namespace(),
                uid=os.geteuid(),
            ),
            nonce_sha256="0" * 64,
            source_digest="0" * 64,
            transport="local",
            exclusion=exclusion.kind,
            boot_id=boot or boot_id(),
            opened_at=opened,
            opened_boottime_ns="0",
            deadline_boottime_ns=str(deadline_ns),
            journal=str(own / "journal.jsonl"),
        ),
    )
    (directory / "procs.jsonl").write_bytes(books(procs)[0])
    if survivors is not None:
        tree = {"hold": hold, "why": why, "survivors": list(map(str, survivors))}
        (directory / "closing.json").write_bytes(dump(tree))
    if closed is not None:
        write(
            directory / "closed.json",
            Tombstone(
                hold=hold,
                fence=str(fence),
                gpus=tuple(gpus),
                why=why,
                journal_head=head(lines),
                survivors=(),
                boot_id=boot or boot_id(),
                closed_at=closed,
                closed_by=holder.pid,
            ),
        )
    return directory


def snapshot(directory):
    """Everything below a directory: bytes of files, targets of links."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            found[path] = os.readlink(path)
        elif path.is_file():
            found[path] = path.read_bytes()
        else:
            found[path] = None
    return found
