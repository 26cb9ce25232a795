"""A further host for hops: a real SSH server with accounts, directories and a Python of its own."""

import json
import os
import subprocess
import sys
import sysconfig

from pp4.hold.processes import Owned
from pp4.wire.hops import FarLogin, FarStep
from tests.faults.windows import DRILLS, ROOT, public, tombstone

FAR_TTL_S = 2.0


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
