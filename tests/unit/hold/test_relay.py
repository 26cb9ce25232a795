"""A relay is started for every connection."""

import errno
import os
import socket
from pathlib import Path

from pp4.errors import Exit
from pp4.hold import relay
from tests.unit.processes import printed


def test_what_it_loads_is_light():
    heavy = {"paramiko", "typer", "rich", "torch", "pp4.receipts.models", "pp4.hold.supervisor"}
    loaded = printed("import sys, pp4.hold.relay\nprint(*sys.modules)")
    assert "pp4.wire.holds" in loaded
    assert heavy & set(loaded) == set()


def test_what_ended_it_is_said_in_words_alone(monkeypatch, capsys):
    """Its last line is quoted to people by the coordinator whose connection it was."""

    def reset(*_):
        raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    near, far = socket.socketpair()
    monkeypatch.setattr(relay, "places_of", lambda *_: (Path("own"), Path("public")))
    monkeypatch.setattr(relay, "connect", lambda _: near)
    monkeypatch.setattr(relay, "pump", reset)
    with far:
        assert relay.main(["attach", "own"]) == Exit.WRONG
    assert capsys.readouterr().err == "relay: Connection reset by peer\n"
