"""Help of the commands about HOLDs and their hosts."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

_REACHED: Final = "with --hold FILE, the host of that file, reached over SSH; else nothing."
_FAR: Final = {
    Exit.WRONG: "what answered there is no answer; look again",
    Exit.TIMEOUT: "",
}
_DUTY: Final = "launch/windows/PP4-COORDINATOR.md"

HELP: Final[dict[str, Help]] = {
    "hold new": Help(
        short="Write a HOLD file with a comment for each key",
        needs="a name that no file has yet.",
        leaves="that file. It is an example: address, host key and GPUs are yours to fill in.",
        examples=("pp4 hold new hold.toml", "pp4 hold new hosts/lab-7.toml"),
        exits={Exit.REFUSED: "there is such a file, or it cannot be written"},
        see=("pp4 pair-qualify --hold hold.toml", "docs/hold-file.md"),
    ),
    "hold status": Help(
        short="Which HOLDs there are on a host, and its GPUs",
        needs=_REACHED,
        leaves="nothing.",
        examples=(
            "pp4 hold status",
            "pp4 hold status --hold hold.toml",
            "pp4 hold status --hold hold.toml --json",
        ),
        exits=_FAR,
        see=("pp4 hold close", "pp4 hold recover", _DUTY),
    ),
    "hold close": Help(
        short="Close exactly one HOLD whose coordinator is gone",
        needs="its id, its host and its fence; the fence may be left out where a close of it is "
        "kept here, as after exit 6.",
        leaves="that HOLD closed: its processes proven dead, restore commands run, GPUs free. "
        "Where the host does not answer, the close is kept and delivered at the next contact.",
        examples=(
            "pp4 hold close 1ed73735d25dd0ad --hold hold.toml",
            "pp4 hold close 1ed73735d25dd0ad --fence 7 --hold hold.toml",
        ),
        exits={**_FAR, Exit.UNCLEAN: "the host could not prove all of it dead"},
        see=("pp4 hold status", "pp4 hold recover", "docs/hold.md"),
    ),
    "hold recover": Help(
        short="Bury a HOLD whose holder is gone",
        needs="its id, and with --hold FILE its host. It ends no process: what is alive is told.",
        leaves="an incident receipt with what is known; the HOLD closed if all of it is proven "
        "dead, and restore commands run that were left; in quarantine otherwise.",
        examples=(
            "pp4 hold recover 1ed73735d25dd0ad",
            "pp4 hold recover 1ed73735d25dd0ad --hold hold.toml --out incidents",
        ),
        exits=_FAR,
        see=("pp4 hold clear", "pp4 verify-receipt", _DUTY),
    ),
    "hold clear": Help(
        short="End the quarantine of a GPU, on your word",
        needs="the host itself, the account of the HOLD, and that you have looked: no process of "
        "the HOLD is alive and the GPU is idle. It refuses while it sees one alive.",
        leaves="the GPU free for the next HOLD; who said so and why, in a chained record.",
        examples=(
            'pp4 hold clear GPU-5f1c --operator ada --why "ps and nvidia-smi are empty"',
            'pp4 hold clear "$GPU" --operator "$USER" --why "host was power-cycled"',
        ),
        exits={Exit.REFUSED: "something of it is alive, or the record is damaged"},
        see=("pp4 hold status", "pp4 hold recover", "pp4 explain QUARANTINED"),
    ),
    "hold prune": Help(
        short="Remove records of HOLDs that ended long ago",
        needs="nothing; it is about HOLDs of this host.",
        leaves="fewer records. Fences stay, and so does every HOLD that is not closed.",
        examples=("pp4 hold prune --dry-run", "pp4 hold prune --older-than 4w"),
        exits={},
        see=("pp4 hold status", "docs/hold.md"),
    ),
    "host init": Help(
        short="Make the directory that all users of a host share",
        needs="the administrator of the host (root), once.",
        leaves="the directory of locks and fences (PP4_HOST_DIR, else /var/lib/pp4), so that "
        "HOLDs of different users keep each other out.",
        examples=("sudo pp4 host init", "sudo env PP4_HOST_DIR=/srv/pp4 pp4 host init"),
        exits={Exit.REFUSED: "not the administrator, or a directory that will not do"},
        see=("pp4 doctor", "pp4 hold status", "docs/hold.md"),
    ),
}
