"""Children that end with whoever started them, however that one ended."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
# loaded here: between fork and exec there is no time to look for a library
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Ask the kernel for SIGKILL at the parent's end; to be called in the child."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with(owner: int) -> None:
    """Like :func:`end_with_parent`, also where the owner ended before it could be asked for."""
    end_with_parent()
    if os.getppid() != owner:
        os._exit(1)
