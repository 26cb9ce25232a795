"""Pipes that close, disks that are full, terminals, and names that attack them."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp4.console import visible
from pp4.console.streams import Stream
from pp4.errors import Code, RefusedError

ROOT = Path(__file__).parents[2]
PP4 = [sys.executable, "-m", "pp4"]


def start(arguments, **streams):
    """Start the command in a process of its own."""
    return subprocess.Popen([*PP4, *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, **streams)


@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["doctor", "--json"]])
def test_a_reader_that_left_changes_nothing(arguments):
    read, write = os.pipe()
    os.close(read)
    process = start(arguments, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_a_reader_that_left_does_not_hide_a_failure():
    read, write = os.pipe()
    os.close(read)
    process = start(["verify-receipt", "gone.json"], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith(b"code      UNREADABLE\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["explain"], ["--help"], ["doctor", "--json"]])
def test_a_full_disk_is_one_refusal(arguments):
    with open("/dev/full", "wb") as full:
        process = start(arguments, stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    if "--json" not in arguments:
        assert err.count(b"\n") == 8
        assert err.startswith(b"code      UNWRITABLE\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_without_streams_the_exit_code_still_speaks(closed):
    command = f'exec "$0" -m pp4 verify-receipt gone.json {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], cwd=ROOT, capture_output=True, timeout=60
    )
    assert done.returncode == 3
    assert b"Traceback" not in done.stdout + done.stderr


def test_an_encoding_that_lacks_a_sign_gets_it_spelled_out():
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    process = start(
        ["verify-receipt", "größe.json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert b"gr\\xf6" in out
    assert b"gr\\xf6" in err


@pytest.mark.parametrize("color", [True, False])
def test_a_terminal_gets_a_table_and_colour_only_if_wanted(color):
    leader, follower = pty.openpty()
    env = {name: text for name, text in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    env |= {"TERM": "xterm-256color", "COLUMNS": "100"} | ({} if color else {"NO_COLOR": "1"})
    process = start(["doctor"], stdout=follower, stderr=follower, env=env)
    os.close(follower)
    out = _drain(leader)
    assert process.wait(timeout=60) == 0
    assert "─" in out
    assert ("\x1b[32m" in out) is color


def _drain(descriptor):
    out = b""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        out += part
    os.close(descriptor)
    return out.decode()


@given(st.text())
def test_whatever_is_shown_is_printable(text):
    assert visible(text).isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/red] ä", "plain [red]text[/red] ä"),
        ("\x1b[31m", "\\x1b[31m"),
        ("a\nb\r", "a\\nb\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udcff", "\\udcff"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


def test_a_stream_that_fails_says_so_once():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    stream = Stream(Full(), "standard output")
    with pytest.raises(RefusedError) as caught:
        stream.write("x")
    assert caught.value.refusal.code is Code.UNWRITABLE
    assert caught.value.refusal.found == "No space left on device"
    stream.write("y")
    assert stream.file is None
