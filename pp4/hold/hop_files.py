"""Files of the near host for a far step: checked here, sent, checked there, and only then named."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import time

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.hold.reach import Place
from pp4.hold.window import Window
from pp4.receipts.canonical import shown
from pp4.wire.hops import LONGEST_FILE, Brought, part_of

_ATTEMPT_S = 30.0
_PAUSE_S = 0.1
_AGAIN = {Code.CONNECTION_LOST, Code.STEP_TIMEOUT, Code.UNREACHABLE}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def checked(file: Brought) -> bytes:
    """Read a file of this host; -> its bytes.

    Raises:
        RefusedError: ``UNREADABLE``; ``TOO_LARGE``; ``DIGEST_MISMATCH``: they are others than were
            meant.
    """
    where = shown(file.source)
    try:
        with os.fdopen(os.open(file.source, _FLAGS), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                expected, found = "a file of this host", "something else"
                raise RefusedError(Refusal(Code.UNREADABLE, where, expected, found))
            data = stream.read(LONGEST_FILE + 1)
    except OSError as error:
        expected, found = "a file of this host", error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNREADABLE, where, expected, found)) from error
    if len(data) > LONGEST_FILE:
        expected = f"at most {LONGEST_FILE} bytes"
        found = f"{status.st_size} bytes"
        raise RefusedError(Refusal(Code.TOO_LARGE, where, expected, found))
    digest = hashlib.sha256(data).hexdigest()
    if digest != file.sha256:
        expected = f"sha256 {file.sha256}"
        raise RefusedError(Refusal(Code.DIGEST_MISMATCH, where, expected, f"sha256 {digest}"))
    return data


def bring(window: Window, place: Place, file: Brought) -> None:
    """Bring one file into the working directory of the child.

    A connection that is lost on the way is made again for as long as the child is ours, and goes
    on where the other end has the bytes already.

    Raises:
        Pp4Error: what the far host refuses, or :func:`checked`; ``LEASE_LOST``.
    """
    data = checked(file)
    part = part_of(window.granted.hold, file.sha256)
    path = posixpath.join(window.granted.work, part)
    while True:
        window.require()
        try:
            place.host.put(data, path, Deadline.after(SystemClock(), _ATTEMPT_S))
            break
        except Pp4Error as error:
            if error.refusal.code not in _AGAIN:
                raise
        time.sleep(_PAUSE_S)
    window.place(part, file.target, file.sha256, len(data))
