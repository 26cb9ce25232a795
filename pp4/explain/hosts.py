"""Pages about receiving hosts: how they are reached, who they are, what is put there."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NOTHING = "Nothing: it refuses before anything is started."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.BAD_HOLD_FILE,
        "A HOLD file cannot be read, or says what it cannot mean: an unknown key, a value out "
        "of its range, a missing table.",
        _NOTHING,
        "The message names the key and, where there is one, the key that was probably meant; "
        "`pp4 hold new FILE` writes a file with every key and a comment for each.",
    ),
    (
        Code.UNREACHABLE,
        "Nobody answered in time, or nothing listens there: a receiving host at its address "
        "and port, or a worker at its socket.",
        "Nothing: it refuses before anything is started.",
        "Of a host look at address, port and network; the same with `ssh -v` says more. A "
        "worker may not be up yet, or listen elsewhere: `pp4 worker status SOCKET`.",
    ),
    (
        Code.HOST_KEY,
        "The receiving host has another key than the HOLD file names, or the file names none. "
        "A key is never accepted because it is new.",
        "Nothing of this run. A HOLD that was open there closes itself at the end of its lease.",
        "Ask whoever runs the host for its key; if it was changed on purpose, put the new one "
        "into the HOLD file.",
    ),
    (
        Code.AUTHENTICATION,
        "The receiving host did not take the one key that the HOLD file names, or asks for a "
        "password, which pp4 never types.",
        _NOTHING,
        "Put the public key into the account's authorized keys, or name another identity file.",
    ),
    (
        Code.CONNECTION_LOST,
        "The connection ended while something ran at its other end, a receiving host or a "
        "worker: what became of it is unknown, which is not the same as failed.",
        "A HOLD closes itself at the end of its lease and ends everything that it started. A "
        "worker forgets the requests of that connection.",
        "Of a HOLD run `pp4 hold recover ID --hold FILE` once the host answers: it reads what "
        "the host wrote down. Connect to a worker anew; `pp4 worker status` says how it is.",
    ),
    (
        Code.NOT_STAGED,
        "The code that should run on the receiving host is not there, or not with the digest "
        "of the code here; or its Python is none that pp4 runs on.",
        "Nothing was started; what was brought there is kept for the next try.",
        "Try again: an upload goes on where it was cut off. If the digests differ, look for "
        "another copy of pp4 in the Python that the HOLD file names.",
    ),
)
