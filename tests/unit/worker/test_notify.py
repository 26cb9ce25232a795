"""What a service manager hears, over real datagram sockets."""

import asyncio
import contextlib
import os
import socket

import pytest

from pp4.config import Service
from pp4.worker.notify import Notifier


@contextlib.contextmanager
def manager(tmp_path, abstract):
    """A manager that listens; -> its socket, and how it is called in the environment."""
    name = f"pp4-test-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(20)
        listening.bind(f"\0{name}" if abstract else str(tmp_path / "n"))
        yield listening, f"@{name}" if abstract else str(tmp_path / "n")


def heard(listening):
    return listening.recv(4096).decode().split("\n")


def complaints():
    told = []
    return told, lambda event, **fields: told.append((event, fields))


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_the_life_of_a_worker(tmp_path, abstract):
    told, complain = complaints()
    with manager(tmp_path, abstract) as (listening, where):
        tell = Notifier(Service(where), complain)
        tell.status("compiling")
        tell.ready("serving on /run/s")
        tell.alive()
        tell.stopping("answering what waits")
        assert heard(listening) == ["STATUS=compiling"]
        assert heard(listening) == ["READY=1", "STATUS=serving on /run/s"]
        assert heard(listening) == ["WATCHDOG=1"]
        assert heard(listening) == ["STOPPING=1", "STATUS=answering what waits"]
    assert told == []


def test_a_status_cannot_say_anything_but_a_status(tmp_path):
    with manager(tmp_path, False) as (listening, where):
        Notifier(Service(where), print).status("failed\nREADY=1\n" + "x" * 9999)
        (line,) = heard(listening)
    assert line.startswith("STATUS=failed READY=1 xxx")
    assert len(line) < 400


def test_nobody_to_tell():
    told, complain = complaints()
    Notifier(Service(), complain).ready("serving")
    assert told == []


@pytest.mark.parametrize(
    "where", ["/nowhere/n", "vsock:2:1234", "@nobody-is-here", "/" + "x" * 200]
)
def test_a_manager_that_cannot_be_reached_is_said_once(where):
    told, complain = complaints()
    tell = Notifier(Service(where), complain)
    tell.ready("serving")
    tell.alive()
    tell.stopping("over")
    assert [event for event, _ in told] == ["notify_failed"]
    assert told[0][1]["found"]


def test_a_manager_that_is_back_hears_again(tmp_path):
    """It was started anew, or descriptors were short; its watchdog waits for a word."""
    told, complain = complaints()
    tell = Notifier(Service(str(tmp_path / "n")), complain)
    tell.ready("serving")
    with manager(tmp_path, False) as (listening, _):
        tell.alive()
        assert heard(listening) == ["WATCHDOG=1"]
    assert len(told) == 1


def test_a_manager_that_does_not_read_keeps_nobody_waiting(tmp_path):
    told, complain = complaints()
    with manager(tmp_path, False) as (listening, where):
        tell = Notifier(Service(where), complain)
        # more than its queue takes
        for _ in range(2000):
            tell.alive()
        assert heard(listening) == ["WATCHDOG=1"]
        listening.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while listening.recv(4096):
                pass
        tell.ready("still here")
        listening.settimeout(20)
        assert heard(listening)[0] == "READY=1"
    assert told == []


async def _hears(loop, listening):
    try:
        return await asyncio.wait_for(loop.sock_recv(listening, 99), 0.2)
    except TimeoutError:
        return b""


def test_a_watchdog_hears_of_health_alone(tmp_path):
    healthy = True

    async def main(listening, where):
        nonlocal healthy
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        signs = asyncio.create_task(
            Notifier(Service(where, watchdog_s=0.02), print).keep_alive(lambda: healthy)
        )
        for _ in range(3):
            assert await asyncio.wait_for(loop.sock_recv(listening, 99), 20) == b"WATCHDOG=1"
        healthy = False
        # what was on its way is taken first; after that there has to be silence
        signs_left = 100
        while signs_left and await _hears(loop, listening):
            signs_left -= 1
        assert signs_left
        healthy = True
        assert await asyncio.wait_for(loop.sock_recv(listening, 99), 20) == b"WATCHDOG=1"
        signs.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await signs

    with manager(tmp_path, False) as (listening, where):
        asyncio.run(main(listening, where))


def test_without_a_watchdog_no_sign_is_given(tmp_path):
    with manager(tmp_path, False) as (listening, where):
        asyncio.run(asyncio.wait_for(Notifier(Service(where), print).keep_alive(lambda: True), 20))
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.recv(99)
