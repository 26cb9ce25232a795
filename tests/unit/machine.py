"""A machine made of plain values, for the doctor to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir

from pp4.config import Settings
from pp4.doctor import Answer, PathFacts, diagnose

GIB = 1 << 30
STATE, HOST, TEMP, SHM = (
    Path("/home/u/st"),
    Path("/var/lib/pp4"),
    Path(gettempdir()),
    Path("/dev/shm"),
)
SETTINGS = Settings(debug=False, color=False, state_dir=STATE, host_dir=HOST)
MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda rw\n23 22 0:5 / /dev/shm rw - tmpfs tmpfs rw\n"
ROW = "{0}, NVIDIA H200, 580.65.06, {1}, {2}"
MATRIX = (
    "\tGPU0\tGPU1\t\n GPU0\tX\t{0}\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Ok\n"
)


def smi(gpus=(("Disabled", "Default"), ("Disabled", "Default")), read="OK", write="OK"):
    """Answers of an nvidia-smi, by its first argument and its last."""
    rows = "\n".join(ROW.format(index, *gpu) for index, gpu in enumerate(gpus))
    return {
        "query": Answer(True, rows + "\n"),
        "r": Answer(True, MATRIX.format(read)),
        "w": Answer(True, MATRIX.format(write)),
    }


@dataclass
class Machine:
    """A machine on which everything is well, unless a test says otherwise."""

    version: tuple[int, int, int] = (3, 11, 9)
    system: tuple[str, str] = ("Linux", "x86_64")
    packages: dict[str, str] = field(
        default_factory=lambda: {"torch": "2.13.0+cpu", "triton": "3.7.1", "numpy": "2.3.1"}
    )
    programs: set[str] = field(default_factory=lambda: {"nvidia-smi", "ssh", "ssh-keygen"})
    answers: dict[str, Answer] = field(default_factory=smi)
    free: dict[Path, int | None] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=lambda: {"/proc/self/mountinfo": MOUNTS})
    paths: dict[Path, PathFacts] = field(
        default_factory=lambda: {
            STATE: PathFacts("directory", 1000, 0o700),
            HOST: PathFacts("directory", 0, 0o1777),
            SHM: PathFacts("directory", 0, 0o1777),
        }
    )
    account: tuple[int, str | None] = (1000, "u")

    def python(self):
        return self.version

    def platform(self):
        return self.system

    def package(self, name):
        return self.packages.get(name)

    def which(self, name):
        return f"/usr/bin/{name}" if name in self.programs else None

    def ask(self, argv: Sequence[str]):
        if argv[0] == "/usr/bin/busctl":
            self.asked = list(argv[1:])
            return self.answers["logind"]
        assert argv[0] == "/usr/bin/nvidia-smi"
        if argv[1].startswith("--query-gpu="):
            return self.answers["query"]
        assert list(argv[1:3]) == ["topo", "-p2p"]
        return self.answers[argv[3]]

    def free_bytes(self, path):
        return self.free.get(path, 10 * GIB)

    def read(self, path):
        return self.files.get(str(path))

    def names(self, directory):
        inside = [Path(name) for name in self.files if Path(name).parent == directory]
        return tuple(sorted(path.name for path in inside))

    def facts(self, path):
        return self.paths.get(path)

    def real(self, path):
        return path

    def user(self):
        return self.account[0]

    def user_name(self):
        return self.account[1]


def check(machine, name):
    """Return the one check of that name."""
    (found,) = [c for c in diagnose(machine, SETTINGS, strict=True).checks if c.name == name]
    return found
