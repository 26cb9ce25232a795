"""How a program ended over SSH, including what paramiko does not listen to."""

from __future__ import annotations

import signal
from typing import Any

from paramiko.common import MSG_CHANNEL_REQUEST

_UNNAMED = 128


def note_signals(transport: Any) -> None:
    """Make a transport keep the signal that ended a program (RFC 4254, 6.10).

    Paramiko knows exit statuses only and would tell nothing at all of a program that was killed.
    """
    table = dict(transport._channel_handler_table)
    usual = table[MSG_CHANNEL_REQUEST]

    def noted(channel: Any, message: Any) -> None:
        at = message.packet.tell()
        if message.get_text() == "exit-signal":
            message.get_boolean()
            channel.pp4_signal = message.get_text()
        message.packet.seek(at)
        usual(channel, message)

    table[MSG_CHANNEL_REQUEST] = noted
    transport._channel_handler_table = table


def status_of(channel: Any) -> int | None:
    """The status of a program that has ended, None where the host never said it.

    Returns:
        Its own status; 128 and the number of the signal that ended it, and 128 alone for a signal
        that has no portable name.
    """
    name = getattr(channel, "pp4_signal", None)
    if name is None:
        status = int(channel.exit_status)
        return status if status >= 0 else None
    number = getattr(signal.Signals, f"SIG{name}", None) if name.isalnum() else None
    return _UNNAMED + (int(number) if number is not None else 0)
