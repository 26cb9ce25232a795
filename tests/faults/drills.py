"""A step for drills, run under a guard like any other: it does what its arguments say.

``start`` names children: ``plain``, ``deaf`` (ignores TERM), ``setsid`` (a session of its own, no
environment), ``twice`` (a double fork).  It tells their pids, then waits for the end of its input,
or answers at once where ``answer`` is given.  Each run adds one byte to the file ``mark``.
``fill`` fills a directory's disk (``work``: its own), ``touch`` makes a file, ``then`` asks for
many lines of the journal after that.  ``flood`` tells without end.  ``unread`` asks for so many
lines and reads no answer.  ``own`` has other processes entered as its own.
"""

import os
import signal
import subprocess
import sys
import time

from pp4.clock import Deadline, SystemClock
from pp4.hold.inner import Supervisor
from pp4.transport.pipes import Pipes
from pp4.wire import Reply, Request

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]
DEAF = [sys.executable, "-c", "import signal,time; signal.signal(15, 1); time.sleep(1000)"]


def _twice():
    """Fork twice; -> pid of the grandchild, whose parent has ended."""
    source, sink = os.pipe()
    if os.fork() == 0:
        pid = os.fork()
        if pid == 0:
            os.close(source)
            os.close(sink)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while True:
                time.sleep(1000)
        os.write(sink, str(pid).encode())
        os._exit(0)
    os.close(sink)
    pid = int(os.read(source, 32))
    os.close(source)
    os.wait()
    return pid


def _fill(directory):
    """Write until nothing more fits."""
    with open(os.path.join(directory, "fill"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


STARTS = {
    "plain": lambda: subprocess.Popen(SLEEP).pid,
    "deaf": lambda: subprocess.Popen(DEAF).pid,
    "setsid": lambda: subprocess.Popen(SLEEP, start_new_session=True, env={}).pid,
    "twice": _twice,
}


def main():
    pipes = Pipes.take_over()
    request = pipes.receive(Deadline.after(SystemClock(), 60))
    given = request.arguments["arguments"]
    supervisor = Supervisor(pipes)
    if given.get("mark"):
        with open(given["mark"], "ab") as file:
            file.write(b"x")
    for text in given.get("journal", ()):
        supervisor.ask("journal", {"step": text, "event": "note"})
    if given.get("noise"):
        chunk = b"x" * (1 << 16)
        for _ in range(given["noise"] >> 16):
            os.write(2, chunk)
    if given.get("fill"):
        _fill(given["fill"] if given["fill"] != "work" else request.arguments["granted"]["work"])
    pids = [STARTS[kind]() for kind in given.get("start", ())]
    supervisor.tell({"pid": os.getpid(), "pids": pids})
    if given.get("touch"):
        open(given["touch"], "xb").close()
    # more than what is left of the last block
    for _ in range(1000 if given.get("then") else 0):
        supervisor.ask("journal", {"step": given["then"], "event": "note"})
    for number in range(given.get("unread", 0)):
        line = {"step": "unread", "event": "note", "found": "x" * 400, "after": 0}
        pipes.send(Request(sequence=number, verb="journal", arguments=line))
    for pid in given.get("own", ()):
        supervisor.ask("own", {"pid": pid, "label": "other"})
    if "answer" in given:
        pipes.send(Reply(sequence=request.sequence, facts=given["answer"]))
        return
    while given.get("flood"):
        supervisor.tell({"more": "x" * 100})
    if given.get("stop"):
        os.kill(os.getpid(), signal.SIGSTOP)
    while os.read(pipes._source, 1 << 16):
        pass


if __name__ == "__main__":
    main()
