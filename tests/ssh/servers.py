"""Real SSH servers on this machine, each with a directory, keys and a port of its own."""

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

LONG = 60.0
"""Seconds; only a hang takes them."""

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
KEYGEN = shutil.which("ssh-keygen")
MISSING = SSHD is None or KEYGEN is None

needs_sshd = pytest.mark.skipif(MISSING, reason="needs sshd and ssh-keygen (openssh-server)")

_CONFIG = """\
ListenAddress {address}
Port {port}
PidFile none
{host_keys}
AuthorizedKeysFile {authorized}
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
PermitUserEnvironment no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
# Keywords that occur twice count once, the first time: what a test adds comes before these.


def keygen(path, kind="ed25519", passphrase="", form="RFC4716"):
    """Make a key pair; -> the path of the private half."""
    subprocess.run(
        [KEYGEN, "-q", "-t", kind, "-N", passphrase, "-m", form, "-C", "test", "-f", str(path)],
        check=True,
        timeout=LONG,
    )
    return path


def public_line(path):
    """The public half of a key pair as a line of a HOLD file, without its comment."""
    kind, blob = Path(f"{path}.pub").read_text().split()[:2]
    return f"{kind} {blob}"


def fingerprint(path):
    """What ssh-keygen says of a key: ``SHA256:...``."""
    done = subprocess.run(
        [KEYGEN, "-l", "-E", "sha256", "-f", f"{path}.pub"],
        check=True,
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    return done.stdout.split()[1]


def free_port():
    """A port that nobody listens at just now, and that no connection is given by itself.

    Below the range of those that the system gives out, a server that starts anew finds its port as
    it left it.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(max(1024, lowest // 2), lowest) or range(1024, 1 << 16)
    for port in random.sample(ports, len(ports)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port of {ports} is free")


class Sshd:
    """One sshd in the foreground; it has answered once the constructor returns.

    Attributes:
        address: where it listens.
        port: likewise.
        user: the account that may come in, the one that runs the tests.
        identity_file: the private key that is let in.
        host_key: its first host key as a public key line.
        host_keys: the same of all its host keys.
        host_key_files: their private halves.
        log: what it says about itself.
    """

    def __init__(
        self,
        directory,
        *,
        host_key_kinds=("ed25519",),
        extra="",
        sftp="internal-sftp",
        port=None,
        address="127.0.0.1",
        prefix=(),
    ):
        self.address, self._prefix = address, list(prefix)
        self.directory = Path(directory).resolve()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.identity_file = self._key("identity")
        self._authorized = self.directory / "authorized_keys"
        self._authorized.write_text(f"{public_line(self.identity_file)}\n")
        self.host_key_files = [
            self._key(f"host_{number}_{kind}", kind) for number, kind in enumerate(host_key_kinds)
        ]
        self.log = self.directory / "sshd.log"
        self.extra = f"{extra}\nSubsystem sftp {sftp}" if sftp else extra
        self._process = None
        self.start(port)

    def _key(self, name, kind="ed25519"):
        path = self.directory / name
        return path if path.exists() else keygen(path, kind)

    @property
    def host_keys(self):
        return [public_line(path) for path in self.host_key_files]

    @property
    def host_key(self):
        return self.host_keys[0]

    @property
    def pid(self):
        """Process id of the server that listens; each connection has processes of its own."""
        return self._process.pid

    def start(self, port=None):
        """Start it, again or anew, and wait until it answers."""
        if os.getuid() == 0:
            # it changes into this directory before it knows who comes
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        for attempt in range(5):
            self.port = port or free_port()
            self._launch()
            if self._answers():
                return
            # somebody else took the port in between
            if port or attempt == 4 or "Address already in use" not in self.log.read_text():
                raise RuntimeError(f"sshd does not answer: {self.log.read_text()}")

    def _launch(self):
        config = self.directory / "sshd_config"
        host_keys = "\n".join(f"HostKey {path}" for path in self.host_key_files)
        text = _CONFIG.format(
            address=self.address,
            port=self.port,
            host_keys=host_keys,
            authorized=self._authorized,
        )
        config.write_text(f"{self.extra}\n{text}")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self):
        end = time.monotonic() + LONG
        while self._process.poll() is None and time.monotonic() < end:
            try:
                with socket.create_connection((self.address, self.port), timeout=5) as probe:
                    if probe.recv(4) == b"SSH-":
                        return True
            except OSError:
                pass
            time.sleep(0.02)
        return False

    def pids(self):
        """The server and the processes of its connections; not the programs that those run."""
        found, names = [self.pid], {SSHD, os.path.realpath(SSHD)}
        for pid in found:
            for child in _children(pid):
                try:
                    program = os.readlink(f"/proc/{child}/exe")
                except OSError:
                    continue
                if program in names:
                    found.append(child)
        return found

    def signal(self, number):
        """Send a signal to the server and to the processes of its connections."""
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self):
        """Kill it with its connections.  The programs that those ran see the end of their input."""
        if self._process.poll() is None:
            # those that are stopped take the signal too; a new connection could slip in between
            for _ in range(2):
                self.signal(signal.SIGKILL)
        self._process.wait(LONG)


def _children(pid):
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Agent:
    """A real ssh-agent that holds keys."""

    def __init__(self, directory, keys):
        self.socket = Path(directory) / "agent.sock"
        self._process = subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(self.socket)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + LONG
        while not self._listens():
            if time.monotonic() > end or self._process.poll() is not None:
                self.stop()
                raise RuntimeError("ssh-agent does not start")
            time.sleep(0.02)
        for key in keys:
            subprocess.run(
                ["ssh-add", "-q", str(key)],
                env={**os.environ, "SSH_AUTH_SOCK": str(self.socket)},
                check=True,
                capture_output=True,
                timeout=LONG,
            )

    def _listens(self):
        """A socket that is there is not listened at yet, and nobody can connect to it."""
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def stop(self):
        self._process.kill()
        self._process.wait(LONG)
