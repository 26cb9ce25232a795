"""Run a fleet's rehearsal through a real Slurm on this machine; see docs/fleet.md.

``python -m tests.slurm.run`` (as root, so that packages can be installed) takes some
minutes, prints what it saw, and leaves nothing behind.  It is no part of ``make test``.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.slurm.cluster import Cluster, ClusterError, install, marked, named, wait_for

ROOT = Path(__file__).parents[2]
REHEARSED_S = 1800.0
MINUTES = 30
NODES = ("node1=4", "node2=3")
# In the order in which each node runs its pairs.  node1: a rehearsal, one that fails, one that does
# not end and is killed (9); after that one nobody may start there.  node2: a rehearsal, one that is
# told to end and does, a small one.
ENDS = {
    "node1_1": ("COMPLETED", "0:0"),
    "node1_2": ("FAILED", "1:0"),
    "node1_3": ("TIMEOUT", "0:9"),
    "node1_4": ("FAILED", "6:0"),
    "node2_1": ("COMPLETED", "0:0"),
    "node2_2": ("FAILED", "143:0"),
    "node2_3": ("COMPLETED", "0:0"),
}

# What the nodes call in the place of pp4: by the pair's directory the real command, a small run
# that leaves its receipt, or one that takes no notice of being told to end.
STAND_IN = """\
#!{python}
import os, signal, subprocess, sys
from pathlib import Path

sys.path.insert(0, {root!r})
out = Path(sys.argv[sys.argv.index("--out") + 1])
place = f"{{out.parent.name}}/{{out.name}}"
if place in {small!r}:
    from tests.slurm.small import leave_receipt

    sys.exit(leave_receipt(out, good={small!r}[place]))
if place == {endless!r}:
    signal.signal(signal.SIGTERM, lambda *_: print("told to end", flush=True))
    child = subprocess.Popen(["sleep", "100000"], start_new_session=True)
    print("started", child.pid, flush=True)
    while True:
        signal.pause()
os.chdir({root!r})
os.execv(sys.executable, [sys.executable, "-m", "pp4", *sys.argv[1:]])
"""


class Check:
    """What was seen, line by line; a line that should not be ends the run at its end."""

    def __init__(self):
        self.started = time.monotonic()
        self.wrong = 0

    def say(self, text):
        print(f"{time.monotonic() - self.started:6.1f} s  {text}", flush=True)

    def equal(self, what, found, expected):
        good = found == expected
        self.wrong += not good
        wrong = "" if good else f", not {expected}"
        self.say(f"{'ok' if good else 'WRONG'}: {what}: {found}{wrong}")


def pp4(*argv):
    """Run the command of this checkout; -> what ended."""
    return subprocess.run(
        [sys.executable, "-m", "pp4", *map(str, argv)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


def emitted(place, check):
    """Plan and emit; -> the directory of the run, the pairs of both nodes, and the scripts."""
    plan, run, program = place / "plan.json", place / "run", place / "stand-in"
    done = pp4("fleet", "plan", *NODES, "--minutes", MINUTES, "--out", plan)
    check.equal("pp4 fleet plan ends with", done.returncode, 0)
    tree = json.loads(plan.read_text())
    first, second = (
        [f"{a}-{b}" for pairs in node["rounds"] for a, b in pairs] for node in tree["nodes"]
    )
    program.write_text(
        STAND_IN.format(
            python=sys.executable,
            root=str(ROOT),
            small={f"node1/{first[1]}": False, f"node2/{second[2]}": True},
            endless=f"node1/{first[2]}",
        )
    )
    program.chmod(0o755)
    done = pp4("fleet", "emit", "slurm", plan, "--out", run, "--pp4", program, "--rehearse")
    check.equal("pp4 fleet emit slurm ends with", done.returncode, 0)
    return run, (first, second), sorted(run.glob("*.sbatch"))


class Watch:
    """The jobs of a run, by the name of their node and the number of their task."""

    def __init__(self, cluster, scripts):
        self.cluster = cluster
        self.names = {}
        for script in scripts:
            text = cluster.ask("sbatch", "--parsable", str(script))
            self.names[text.strip()] = script.stem

    def tasks(self):
        found = {}
        for job in self.cluster.jobs():
            name = self.names.get(job.get("ArrayJobId", ""))
            task = job.get("ArrayTaskId", "")
            if name and task.isdecimal():
                found[f"{name}_{task}"] = job
        return found

    def ended(self):
        """Every task once none waits or runs."""
        waiting = self.cluster.ask("squeue", "--noheader", "--array", "--format=%T")
        return self.tasks() if not waiting.split() else None

    def number(self, name):
        return self.tasks()[name]["JobId"]


def looked_at(run, pairs, jobs, check):
    """What the jobs left, and what the report says of it."""
    for name, end in ENDS.items():
        job = jobs.get(name, {})
        check.equal(f"end of {name}", (job.get("JobState"), job.get("ExitCode")), end)
    first, _ = pairs
    check.equal("pairs of node1 that started", _names(run / "results/node1"), sorted(first[:3]))
    receipts = sorted(run.glob("results/*/*/*.json"))
    check.equal("receipts", len(receipts), 4)
    done = pp4("verify-receipt", "--kind", "rehearsal", *receipts)
    check.equal("pp4 verify-receipt of all ends with", done.returncode, 0)
    done = pp4("fleet", "report", run, "--json")
    check.equal("pp4 fleet report ends with", done.returncode, 1)
    node1, node2 = json.loads(done.stdout)["nodes"]
    results = ["-".join(map(str, one["gpus"])) + " " + one["result"] for one in node1["pairs"]]
    words = ("passed", "failed", "unknown", "unknown", "unknown", "unknown")
    expected = [f"{pair} {word}" for pair, word in zip(first, words, strict=True)]
    check.equal("the report of node1", results, expected)
    suspects = [(one["kind"], one["pairs"]) for one in node1["suspects"]]
    failed = [int(gpu) for gpu in first[1].split("-")]
    check.equal("what it names", suspects, [("undecided", [failed])])
    results = [one["result"] for one in node2["pairs"]]
    check.equal("the report of node2", results, ["passed", "unknown", "passed"])
    check.equal("why", node2["pairs"][1]["says"], "exit code 143, told to end: INTERRUPTED")
    print(pp4("fleet", "report", run).stdout.replace(f"{run}/", ""))


def _says(log, text):
    return log.exists() and text in log.read_text()


def _names(directory):
    return sorted(path.name for path in directory.iterdir())


def rehearse(place, check):
    """The whole way, on a cluster of its own below ``place``."""
    cluster_place = place / "slurm"
    cluster_place.mkdir(mode=0o711)
    run, pairs, scripts = emitted(place, check)
    with Cluster(cluster_place) as cluster:
        check.say(f"{cluster.ask('sinfo', '--version').strip()}, two nodes idle")
        watch = Watch(cluster, scripts)
        told, endless = (
            run / "results" / place / "log.txt"
            for place in (f"node2/{pairs[1][1]}", f"node1/{pairs[0][2]}")
        )
        wait_for("a rehearsal at work", lambda: _says(told, "gate-"), REHEARSED_S)
        cluster.ask("scancel", "--batch", "--signal=TERM", watch.number("node2_2"))
        wait_for("the job that does not end", lambda: _says(endless, "started"), REHEARSED_S)
        # its own limit is that of a pair: shortened, so that nobody waits for it
        number = watch.number("node1_3")
        cluster.ask("scontrol", "update", f"JobId={number}", "TimeLimit=1")
        jobs = wait_for("the end of every job", watch.ended, REHEARSED_S)
        looked_at(run, pairs, jobs, check)
        check.equal("told before it was killed", _says(endless, "told to end"), True)
        check.equal("what rehearsals left", _names(cluster.temporary), [])
        # Slurm takes a moment to end what has nobody left
        with contextlib.suppress(ClusterError):
            wait_for("the end of every step", lambda: not cluster.steps(), limit_s=15)
        check.equal("processes of jobs that are left", list(named(cluster.steps())), [])
    check.equal("processes that are left", marked(cluster_place), [])


def main():
    """Run; -> 0 where everything was as it should be."""
    # an end from outside takes the same way out
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    check = Check()
    place = Path(tempfile.mkdtemp(prefix="pp4-slurm-"))
    place.chmod(0o711)
    try:
        install()
        rehearse(place, check)
    except ClusterError as error:
        check.equal("an error", str(error), None)
    finally:
        shutil.rmtree(place)
    check.say("as it should be" if not check.wrong else f"{check.wrong} WRONG")
    return int(bool(check.wrong))


if __name__ == "__main__":
    sys.exit(main())
