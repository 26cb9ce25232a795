"""Pages about holding GPUs: locks, fences, quarantine, deadlines."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NOTHING = "Nothing: it refuses before anything is started."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.HELD_BY,
        "Another HOLD has a GPU that this one asks for; only one may run at a time.",
        "Nothing of this run. The other HOLD goes on untouched.",
        "Wait until it has closed; the message says which process it is and since when.",
    ),
    (
        Code.STALE_FENCE,
        "Work came under a fence or a HOLD that is no longer the one that was granted last.",
        _NOTHING,
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
        "A process of an earlier HOLD could not be proven dead, so its GPU is not given out.",
        "The quarantine of the GPU, until the machine restarts or an operator ends it.",
        "Look for the process that the message names. Once it is gone and the GPU is idle, give "
        "your word with pp4 hold clear on that host, or restart the machine.",
    ),
    (
        Code.EXCLUSION,
        "The directory of locks and fences, or that of this user's journals, cannot be relied "
        "on: a network or unknown file system, a symbolic link, another owner, or writable by "
        "everyone.",
        _NOTHING,
        "Give PP4_HOST_DIR a directory of this machine that belongs to its administrator, and "
        "PP4_STATE_DIR one of your own on a local file system.",
    ),
    (
        Code.DEADLINE,
        "The HOLD has reached its deadline; nothing may be started under it any more.",
        "Whatever the HOLD had started is ended when it closes.",
        "Open a new HOLD; ask for less work or a longer bound.",
    ),
    (
        Code.NOT_IDLE,
        "A GPU is in use by somebody else: a compute process or memory that no HOLD of pp4 "
        "accounts for.",
        _NOTHING,
        "End what uses the GPU (nvidia-smi shows it), or choose other GPUs.",
    ),
    (
        Code.UNKNOWN_HOLD,
        "There is no HOLD of that id on the receiving host, or it is one of another fence.",
        "Nothing: no other HOLD is touched in its place.",
        "See what 'pp4 hold status' lists for that host.",
    ),
    (
        Code.LEASE_LOST,
        "The lease of the HOLD ran out: the host did not hear of the coordinator in time, "
        "or the coordinator did not hear of the host and stopped itself.",
        "The receiving host ends everything that the HOLD had started and closes it.",
        "Run 'pp4 hold recover' to read what the host wrote down, then open a new HOLD.",
    ),
)
