"""The near end of a HOLD's socket, as a program: bytes between its standard streams and there.

``python -m pp4.hold.relay open`` takes one frame, starts a supervisor with it, passes its answer on
and is then a relay to its socket.  ``python -m pp4.hold.relay attach HOLD [STATE_DIR [HOST_DIR]]``
is a relay to a HOLD that is open, and answers for one that is not: with its tombstone, or with what
is known.  A directory that is empty or not given is that of the settings here.

The supervisor outlives this program; this program outlives neither its input nor the socket.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pp4.config import child_environment, load_settings
from pp4.errors import (
    BadInputError,
    Code,
    Exit,
    Pp4Error,
    Refusal,
    RefusedError,
    WrongError,
    reason_of,
)
from pp4.hold import durable
from pp4.receipts.canonical import shown
from pp4.wire import Decoder, Reply, Request, encode, encode_reply
from pp4.wire.holds import SOCKET, Closed

_READ = 1 << 16
_CONNECT_S = 10.0
_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_SOURCE = Path(__file__).resolve().parents[2]


def _messages(decoder: Decoder, descriptor: int) -> list[Reply | Request] | None:
    """What comes next; None at the end."""
    data = os.read(descriptor, _READ)
    if not data:
        return None
    return [one for one in decoder.feed(data) if isinstance(one, Reply | Request)]


def _one(descriptor: int) -> Reply | Request:
    """Read one message and nothing behind it."""
    decoder = Decoder()
    while True:
        found = _messages(decoder, descriptor)
        if found is None:
            raise WrongError(Refusal(Code.CONNECTION_LOST, "relay", "a message", "the end"))
        if found:
            return found[0]


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def start_supervisor(request: Request) -> Reply:
    """Start a supervisor that outlives this process; -> its answer.

    Raises:
        WrongError: ``CONNECTION_LOST``, it ended without one; what it said is in the refusal.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pp4.hold.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment({"PYTHONPATH": str(_SOURCE)}),
        cwd="/",
        start_new_session=True,
    )
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise ValueError("a supervisor is asked through pipes")
    # left to itself from here on: nobody waits for it, and it has let go of these pipes soon
    process.returncode = 0
    with process.stdin, process.stdout, process.stderr:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(encode(request))
            process.stdin.flush()
        try:
            answer = _one(_unless_left(process.stdout.fileno(), process.pid))
        except WrongError as error:
            said = process.stderr.read(_READ).decode(errors="replace").strip().splitlines()
            found = "none; " + (said or ["nothing said"])[-1][:300]
            refusal = Refusal(Code.CONNECTION_LOST, "supervisor", "an answer", found)
            raise WrongError(refusal) from error
    if not isinstance(answer, Reply):
        raise WrongError(Refusal(Code.BAD_FRAME, "supervisor", "a reply", answer.kind))
    return answer


def _unless_left(answer: int, supervisor: int) -> int:
    """Wait for an answer; whoever asked and leaves before it wants no HOLD; -> its descriptor.

    Nobody speaks before the answer, so whatever comes is the end of the input.  A supervisor that
    is asked to end takes back what it has begun, and says so.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(answer, selectors.EVENT_READ)
        with contextlib.suppress(PermissionError, ValueError):
            # a file or no input at all cannot say that somebody has left
            selector.register(0, selectors.EVENT_READ)
        while answer not in {key.fd for key, _ in selector.select()}:
            selector.unregister(0)
            # not waited for, so the id is its own
            os.kill(supervisor, signal.SIGTERM)
    return answer


def connect(directory: Path) -> socket.socket | None:
    """Return a connection to the supervisor of a HOLD; None where nobody listens."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # by its short name: the whole one may be longer than a socket's may be
        os.chdir(directory)
        # one that hangs takes nobody any more
        link.settimeout(_CONNECT_S)
        link.connect(SOCKET)
        link.setblocking(True)
    except OSError:
        link.close()
        return None
    return link


def pump(link: socket.socket, source: int, sink: int) -> None:
    """Pass bytes on in both directions until either side ends."""
    ends = {source: link.fileno(), link.fileno(): sink}
    with selectors.DefaultSelector() as selector:
        for descriptor in ends:
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                data = os.read(key.fd, _READ)
                if not data:
                    return
                _write(ends[key.fd], data)


def _known(public: Path, request: Request) -> Reply:
    """What there is to say of a HOLD whose supervisor does not listen.

    Its tombstone answers a close of exactly this HOLD, and nothing else.
    """
    try:
        tombstone = durable.read_object(public / "closed.json")
        registered = durable.read(public / "registration.json") is not None
    except Pp4Error as error:
        return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
    if tombstone is not None:
        return _of_closed(tombstone, request)
    code = Code.LEASE_LOST if registered else Code.UNKNOWN_HOLD
    found = "registered, without a tombstone, and nobody listens" if registered else "none"
    where, again = f"HOLD {public.name}", f"pp4 hold recover {public.name}"
    refusal = Refusal(code, where, "an open HOLD", found, next=again)
    return Reply(sequence=request.sequence, refusal=refusal.as_dict())


def _of_closed(tombstone: dict[str, object], request: Request) -> Reply:
    hold, fence = tombstone.get("hold"), tombstone.get("fence")
    asked = request.arguments.get("hold"), str(request.arguments.get("fence"))
    if request.verb == "close" and asked == (hold, fence):
        facts = Closed(tombstone=tombstone).model_dump(mode="json")
        return Reply(sequence=request.sequence, facts=facts)
    expected = "an open HOLD" if asked == (hold, fence) else f"HOLD {hold}, fence {fence}"
    found = f"HOLD {asked[0]}, fence {asked[1]}"
    if asked == (hold, fence):
        found = f"one that is closed ({tombstone.get('why')})"
    refusal = Refusal(Code.STALE_FENCE, f"HOLD {hold}", expected, found)
    return Reply(sequence=request.sequence, refusal=refusal.as_dict())


def places_of(hold: str, state: str = "", host: str = "") -> tuple[Path, Path]:
    """Where the supervisor of a HOLD listens, and where its registration lies.

    Raises:
        BadInputError: ``hold`` is no id of a HOLD, and no path may be made of it.
    """
    if not _ID.fullmatch(hold):
        raise BadInputError.of("HOLD", "16 lower-case hexadecimal digits", shown(hold))
    settings = load_settings()
    state_dir = Path(state) if state else settings.state_dir
    host_dir = Path(host) if host else settings.host_dir
    public = host_dir / "holds" / hold
    own = state_dir / "holds" / hold
    return own, public if public.is_dir() else own


def answer_for(public: Path, source: int, sink: int) -> None:
    """Answer every request with what is known of a HOLD that is not served any more."""
    decoder = Decoder()
    while (found := _messages(decoder, source)) is not None:
        for request in found:
            if isinstance(request, Request):
                _write(sink, encode_reply(_known(public, request)))


def _refuse_all(error: Pp4Error, source: int, sink: int) -> None:
    """Answer every request with one refusal: whoever asks must not take it for a lost way."""
    decoder = Decoder()
    while (found := _messages(decoder, source)) is not None:
        for request in found:
            refusal = error.refusal.as_dict()
            _write(sink, encode_reply(Reply(sequence=request.sequence, refusal=refusal)))


def _open() -> Path | None:
    """Start a supervisor as asked and pass its answer on; -> where it listens."""
    request = _one(0)
    if not isinstance(request, Request):
        raise RefusedError(Refusal(Code.BAD_FRAME, "relay", "a request", request.kind))
    try:
        answer = start_supervisor(request)
    except Pp4Error as error:
        answer = Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
    _write(1, encode_reply(answer))
    return None if answer.facts is None else Path(str(answer.facts["directory"]))


def main(arguments: Sequence[str]) -> int:
    """Relay as asked; -> exit code."""
    try:
        if list(arguments) == ["open"]:
            directory = _open()
            if directory is None:
                return int(Exit.REFUSED)
            link = connect(directory)
            if link is None:
                return int(Exit.REFUSED)
        elif 2 <= len(arguments) <= 4 and arguments[0] == "attach":
            try:
                own, public = places_of(*arguments[1:])
            except Pp4Error as error:
                _refuse_all(error, 0, 1)
                return int(Exit.REFUSED)
            link = connect(own)
            if link is None:
                answer_for(public, 0, 1)
                return int(Exit.DONE)
        else:
            return int(Exit.USAGE)
        with link:
            pump(link, 0, 1)
    except (OSError, Pp4Error) as error:
        sys.stderr.write(f"relay: {reason_of(error)}\n")
        return int(Exit.WRONG)
    return int(Exit.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
