"""Pages about holding GPUs: locks, fences, quarantine, deadlines."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NOTHING = "Nothing: it refuses before anything is started."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.HELD_BY,
        "Another HOLD has a GPU that this command asks for; only one may have it at a time. "
        "`pp4 status` and `pp4 gate` say it too: to look at kernels they take the GPUs for a "
        "moment.",
        "Nothing of this run. The other HOLD goes on untouched.",
        "Wait until it has closed; the message says whose it is and since when, `pp4 hold "
        "status` how long it may last.",
    ),
    (
        Code.STALE_FENCE,
        "Work came under a fence or a HOLD that is no longer the one that was granted last, "
        "or that is closing or closed: of a coordinator that slept, a hop that was given up, "
        "a worker whose HOLD has ended.",
        "Nothing of what was asked for. The HOLD that is the right one goes on untouched.",
        "Start again: a new HOLD gets a new fence. An old one can never go on.",
    ),
    (
        Code.FENCE_LOST,
        "The record of the highest fence of a GPU is missing or cannot be read, although HOLDs "
        "were granted on it before.",
        _NOTHING,
        "Make sure that no run of pp4 is alive on the GPU, then restore the file as the message "
        "says.",
    ),
    (
        Code.QUARANTINED,
        "A process of an earlier HOLD could not be proven dead, so its GPU is not given out; "
        "or `pp4 hold clear` still sees one alive.",
        "The quarantine of the GPU, until the machine restarts or an operator ends it.",
        "Look for the process that the message names. Once it is gone and the GPU is idle, "
        "give your word with `pp4 hold clear GPU --operator NAME --why TEXT` on that host, or "
        "restart the machine.",
    ),
    (
        Code.EXCLUSION,
        "A directory or file that keeps others out cannot be relied on: locks and fences, "
        "this user's journals, or where a worker has its socket. A network or unknown file "
        "system, a symbolic link, another owner, or a mode that lets too many or too few in.",
        _NOTHING,
        "Run the command that the message names. PP4_HOST_DIR is a directory of this machine, "
        "made by its administrator with `pp4 host init`; PP4_STATE_DIR is one of your own on "
        "a local file system.",
    ),
    (
        Code.DEADLINE,
        "The HOLD has reached its deadline, or too little is left of it for what should "
        "start; nothing may be started under it any more.",
        "Whatever the HOLD had started is ended when it closes. Arms that were not run stand "
        "in the receipt as such.",
        "Open a new HOLD; ask for less work, or for a longer `bound_minutes` in the HOLD file "
        "(90 at most).",
    ),
    (
        Code.NOT_IDLE,
        "A GPU is in use by somebody else: a compute process or memory that no HOLD of pp4 "
        "accounts for. Or a quiesce command of the HOLD file, which should have made it free, "
        "failed or still runs.",
        "Nothing was started on the GPU. The HOLD closes, and its restore commands are run.",
        "End what uses the GPU by its own service (`nvidia-smi` shows it) or mend the quiesce "
        "command, or choose other GPUs.",
    ),
    (
        Code.UNKNOWN_HOLD,
        "There is no HOLD of that id on that host, it is one of another fence, or it has no "
        "step of that name. A worker says it of a grant whose HOLD its host does not know any "
        "more.",
        "Nothing: no other HOLD is touched in its place.",
        "See what `pp4 hold status --hold FILE` lists for that host, without `--hold` for "
        "this one.",
    ),
    (
        Code.LEASE_LOST,
        "The lease of the HOLD ran out: the host did not hear of the coordinator in time, or "
        "the coordinator did not hear of the host and stopped itself; or a HOLD is registered "
        "there and nobody answers for it any more.",
        "The receiving host ends everything that the HOLD had started and closes it.",
        "Run `pp4 hold recover ID --hold FILE` to read what the host wrote down, then open a "
        "new HOLD.",
    ),
)
