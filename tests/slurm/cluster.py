"""A Slurm of two emulated nodes on this machine's loopback, with a munge of its own.

Everything lies below one directory, and every process that belongs to it, jobs included, has that
directory in its environment: so what is left of it can be found, whatever became of its parents.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

MARK = "FLEET_TEST_PLACE"
NODES = ("node1", "node2")
LONG_S = 60.0
_SBIN = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")

_CONFIG = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=1,sched_interval=5
KillWait=5
MinJobAge=7200
ReturnToService=2
{nodes}
PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


class ClusterError(Exception):
    """The cluster does not do what it has to."""


def wait_for(what, condition, limit_s=LONG_S, every_s=0.5):
    """Return what a condition gives once it gives something, or say what did not come."""
    end = time.monotonic() + limit_s
    while not (found := condition()):
        if time.monotonic() > end:
            raise ClusterError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(every_s)
    return found


def missing():
    """Names of programs that are not installed."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_SBIN) is None]


def install():
    """Install Slurm and munge from the distribution's packages, as root, where they are missing."""
    lacking = missing()
    if not lacking:
        return
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise ClusterError(f"needs slurm-wlm and munge; not found: {', '.join(lacking)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "slurm-wlm", "munge"],
    ):
        subprocess.run(argv, check=True, env=env, stdout=sys.stderr, timeout=900)


def marked(place):
    """Pids of every process but this one that has a place in its environment."""
    mark = os.fsencode(f"{MARK}={place}")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = int(entry.name) == os.getpid()
            words = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if not mine and mark in words and state not in "ZX":
                found.append(int(entry.name))
    return sorted(found)


def named(pids):
    """What processes are called, for a message."""
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            yield f"{pid}: {words.decode(errors='replace').strip()}"


class Cluster:
    """munged, slurmctld and a slurmd for each node; as a context it is stopped on every way out.

    Args:
        place: an empty directory for all of it, which others may pass through: munged wants that.
    """

    def __init__(self, place):
        self.place = place
        self._running = []
        self._idling = set()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def temporary(self):
        """Where jobs put what they need for a while."""
        return self.place / "tmp"

    @property
    def environment(self):
        """Of whatever belongs to the cluster."""
        return {
            **os.environ,
            "PATH": _SBIN + ":/bin:/sbin",
            "SLURM_CONF": str(self.place / "slurm.conf"),
            "PP4_STATE_DIR": str(self.place / "pp4-state"),
            "TMPDIR": str(self.temporary),
            MARK: str(self.place),
        }

    def steps(self):
        """Pids of what belongs to jobs: everything but what was there when the nodes were idle."""
        return sorted(set(marked(self.place)) - self._idling)

    def ask(self, *argv):
        """Run one of Slurm's commands; -> its standard output."""
        done = subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=LONG_S
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def jobs(self):
        """Facts of every job and task of an array, each as Slurm names it."""
        text = self.ask("scontrol", "--oneliner", "show", "jobs")
        lines = [line for line in text.splitlines() if line.startswith("JobId=")]
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def _start(self):
        for name in ("state", "tmp", *(f"spool-{node}" for node in NODES)):
            (self.place / name).mkdir()
        self._munge()
        self._configure()
        self._daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self._daemon("slurmd", "-D", "-N", node)
        wait_for("both nodes idle", self._idle)
        self._idling = set(marked(self.place))

    def _alive(self):
        for process in self._running:
            if process.poll() is not None:
                raise ClusterError(f"{process.args[0]} ended:\n{self._logs()}")
        return True

    def _idle(self):
        self._alive()
        try:
            states = self.ask("sinfo", "--noheader", "--Node", "--format=%t").split()
        except ClusterError:
            return False
        return states == ["idle"] * len(NODES)

    def _logs(self):
        logs = sorted(self.place.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _munge(self):
        key = self.place / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        socket_path = self.place / "munge.socket"
        options = {
            "key-file": key,
            "socket": socket_path,
            "pid-file": self.place / "munge.pid",
            "log-file": self.place / "munged.log",
            "seed-file": self.place / "munge.seed",
        }
        self._daemon("munged", "--foreground", *(f"--{k}={v}" for k, v in options.items()))
        wait_for("the socket of munged", lambda: self._alive() and socket_path.exists())

    def _configure(self):
        host = socket.gethostname()
        control, *ports = _free_ports(1 + len(NODES))
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2"
            for name, port in zip(NODES, ports, strict=True)
        )
        (self.place / "slurm.conf").write_text(
            _CONFIG.format(
                host=host,
                control=control,
                user=pwd.getpwuid(os.getuid()).pw_name,
                place=self.place,
                nodes=nodes,
                names=",".join(NODES),
            )
        )

    def _daemon(self, *argv):
        log = self.place / f"{argv[0]}-{len(self._running)}.log"
        with log.open("wb") as stream:
            self._running.append(
                subprocess.Popen(
                    argv,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                )
            )

    def stop(self):
        """Cancel every job, end every daemon, and then whatever is left of either."""
        with contextlib.suppress(ClusterError, OSError, subprocess.TimeoutExpired):
            if self._running and self.jobs():
                self.ask("scancel", "--state=PENDING,RUNNING", f"--user={os.getuid()}")
                wait_for("the end of every job", lambda: not self.steps())
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(LONG_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(LONG_S)
        self._running.clear()
        for pid in marked(self.place):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("the end of every process", lambda: not marked(self.place), every_s=0.1)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
