"""The channel of one program over SSH: what leads to it and what comes back."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import paramiko

from pp4.clock import Deadline
from pp4.errors import TimedOutError, reason_of
from pp4.receipts.canonical import shown
from pp4.transport.attempt import bounded
from pp4.transport.output import Errors, Output, lost
from pp4.transport.ssh_signals import status_of

_READ = 1 << 16
_SEND = 1 << 15
# What paramiko raises where a connection is gone; some of it depends on the moment.
LOST = (paramiko.SSHException, EOFError, OSError)
_POLL_S = 0.01


def abandon(channel: Any) -> None:
    """Close a channel from a thread of its own: saying goodbye to a dead peer may never return."""

    def close() -> None:
        # the connection below it may end at the same moment: then there is nobody to tell
        with contextlib.suppress(*LOST):
            channel.close()

    threading.Thread(target=close, name="ssh: closing", daemon=True).start()


def drain(channel: Any, output: Output, errors: Errors, label: str) -> None:
    """Start to take both outputs of a program at the same time.

    Each has its thread: whichever came second would otherwise fill the window that they share,
    and the program would never get to the end of the first.
    """

    def out() -> None:
        found = _pump(channel.recv, output.feed)
        # only what the host itself said is an end: a dead connection reads empty as well
        if found is None and channel.eof_received:
            output.end()
        else:
            output.break_off(found or "the connection has ended")

    def err() -> None:
        _pump(channel.recv_stderr, errors.feed)
        errors.end()

    for target, name in ((out, "output"), (err, "errors")):
        threading.Thread(target=target, name=f"{label}: {name}", daemon=True).start()


def _pump(receive: Callable[[int], bytes], feed: Callable[[bytes], None]) -> str | None:
    """Move bytes until there are no more; -> what went wrong."""
    try:
        # ends with the channel: closing it, or the connection below it, makes it read empty
        while data := receive(_READ):
            feed(data)
    except LOST as error:
        return shown(reason_of(error) or repr(error))
    return None


class ChannelEnds:
    """See :class:`pp4.transport.drained.Ends`.

    A write has arrived when the host has taken it into its window: whether the program reads it,
    only the program can say.
    """

    def __init__(self, channel: Any, label: str) -> None:
        self._channel, self._label = channel, label
        self._given_up = False

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send all of it in pieces that fit a packet."""
        where = f"{self._label}: input"
        try:
            bounded(lambda: self._send(data, where), deadline, where, left="a part of it was sent")
        except LOST as error:
            raise lost(where, shown(reason_of(error) or repr(error))) from error
        except TimedOutError:
            # the piece that waits may still go, and nothing after it
            self._given_up = True
            raise

    def _send(self, data: bytes, where: str) -> None:
        done = 0
        while done < len(data) and not self._given_up:
            sent = self._channel.send(data[done : done + _SEND])
            # paramiko drops what is sent into a connection that has ended, and says it was sent
            if sent == 0 or self._channel.closed or not self._channel.get_transport().is_active():
                raise lost(where, "the program or the connection has ended")
            done += sent

    def end_input(self, deadline: Deadline) -> None:
        """Send the end of the input."""
        where = f"{self._label}: input"
        try:
            bounded(self._channel.shutdown_write, deadline, where, left="the program may still run")
        except LOST as error:
            raise lost(where, shown(reason_of(error) or repr(error))) from error

    def exit_status(self, deadline: Deadline) -> int | None:
        """Ask until the host has said it: waiting for it with paramiko may never end."""
        pause = threading.Event()
        while not self._channel.exit_status_ready():
            deadline.require(f"{self._label}: end", left="the program may still run")
            pause.wait(_POLL_S)
        return status_of(self._channel)

    def let_go(self) -> None:
        """Close the channel, without waiting."""
        abandon(self._channel)
