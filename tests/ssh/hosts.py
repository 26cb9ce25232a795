"""What the tests of hosts have in common: deadlines, programs and refusals."""

import sys
import time

import pytest

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, TimedOutError, WrongError
from pp4.transport.ssh import SshAddress, SshHost

SHORT, LONG = 0.4, 60.0


def after(seconds):
    return Deadline.after(SystemClock(), seconds)


def past():
    """A deadline that has passed, without waiting for it."""
    return after(0)


def python(text, *arguments):
    """The argv of a program of one text."""
    return [sys.executable, "-c", text, *arguments]


def address_of(server, **different):
    return SshAddress(
        **{
            "address": "127.0.0.1",
            "port": server.port,
            "user": server.user,
            "identity_file": server.identity_file,
            "host_key": server.host_key,
            **different,
        }
    )


def connect(server, **different):
    return SshHost(address_of(server, **different), after(LONG))


def everything(stream):
    """All that a program still writes."""
    data = b""
    while piece := stream.read(after(LONG)):
        data += piece
    return data


def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        piece = stream.read(after(LONG))
        assert piece, f"the output ended after {data!r}"
        data += piece
    return data


def timed_out(call, *arguments):
    """Require that a call ends at its own deadline; -> the refusal."""
    began = time.monotonic()
    with pytest.raises(TimedOutError) as caught:
        call(*arguments)
    # far from the limit of a hang, near enough to show that the deadline ended it
    assert time.monotonic() - began < LONG / 4
    assert caught.value.refusal.code is Code.STEP_TIMEOUT
    return caught.value.refusal


def lost(call, *arguments):
    """Require that a call says that its connection is gone; -> the refusal."""
    with pytest.raises(WrongError) as caught:
        call(*arguments)
    assert caught.value.refusal.code is Code.CONNECTION_LOST
    return caught.value.refusal


def within(condition, limit_s=LONG):
    """Whether a condition comes about."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
