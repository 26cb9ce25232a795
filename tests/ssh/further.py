"""A further host for hops: a real SSH server with directories and a Python of its own."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from pp4.hold.processes import Owned, marked
from pp4.wire.hops import FarLogin, FarStep
from tests.faults.windows import DRILLS, ROOT, Coordinator, public, tombstone


def interpreter(directory):
    """A Python that finds the drills behind whatever source is staged; -> its path."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=120
    )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = [sysconfig.get_path("purelib"), str(ROOT)]
    site = directory / "lib" / version / "site-packages"
    (site / "drills.pth").write_text("\n".join(paths) + "\n")
    return str(directory / "bin" / "python")


class Further:
    """A host behind an SSH server, as a HOLD of another host sees it.

    Attributes:
        server: the SSH server.
        place: what lies there: ``state`` and ``host``, as :func:`tests.faults.windows.public` reads
            them.
    """

    def __init__(self, server, place):
        self.server, self.place = server, place
        place.mkdir(exist_ok=True)
        self._python = interpreter(place / "python")

    def login(self, **different):
        """The login of a hop."""
        given = {
            "address": "127.0.0.1",
            "port": self.server.port,
            "user": self.server.user,
            "identity_file": str(self.server.identity_file),
            "host_key": self.server.host_key,
            "python": self._python,
            "state_dir": str(self.place / "state"),
            "host_dir": str(self.place / "host"),
            **different,
        }
        return FarLogin.model_validate_json(json.dumps(given))

    def holds(self):
        """Ids of the HOLDs that got as far as a registration."""
        found = [self.place / where / "holds" for where in ("host", "state")]
        return sorted(
            {
                path.parent.name
                for directory in found
                if directory.exists()
                for path in directory.glob("*/registration.json")
            }
        )

    def registration(self, hold):
        return json.loads((public(self.place, hold) / "registration.json").read_text())

    def supervisor(self, hold):
        found = self.registration(hold)["coordinator"]
        return Owned(found["pid"], found["start_token"], "far supervisor")

    def tombstone(self, hold):
        return tombstone(self.place, hold)


def drill(**arguments):
    """A far step that is a drill."""
    return FarStep(label="drill", module=DRILLS, arguments=arguments)


def books(one, number, what=""):
    """A file of the near books about a hop; None where there is none."""
    name = f"hop-{number}.{what}.json" if what else f"hop-{number}.json"
    path = os.path.join(one.granted.directory, name)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


COORDINATE = """
import json, sys, threading
from pathlib import Path
from pp4.wire.hops import FarLogin
from tests.faults.windows import window
from tests.ssh.further import drill
place, arguments, more = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
login = FarLogin.model_validate_json(arguments.pop("login"))
with window(place, **more) as one:
    def told(item):
        named = {"hold": one.granted.hold, "fence": one.granted.fence}
        print(json.dumps({**named, **item}), flush=True)
    one.watching.told = told
    one.hop("engine", login, drill(**arguments))
"""


class Hopping(Coordinator):
    """A coordinator in a process of its own, with a far drill that runs on.

    Attributes:
        far_hold: id of the child.
    """

    script = COORDINATE

    def __init__(self, place, far, arguments=None, **more):
        self.place = place
        before = far.holds()
        login = far.login().model_dump_json()
        super().__init__(place, {"login": login, **(arguments or {})}, **more)
        (self.far_hold,) = [hold for hold in far.holds() if hold not in before]

    def near_step(self):
        """The process that is the hop."""
        step = [b"-P", b"-m", b"pp4.hold.hop"]
        found = [one for one in marked(self.hold) if arguments_of(one.pid)[1:4] == step]
        (one,) = found
        return one


def arguments_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
