"""The way to a host that a HOLD file names: connected, with the code on it, and asked things."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pp4.clock import Deadline, SystemClock
from pp4.config.hold_file import HoldFile
from pp4.config.holds import Login, ReceivingHost
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.hold.line import raised, there
from pp4.hold.staging import Staged, drop, stage, sweep, take
from pp4.receipts.digests import Source, installed_source
from pp4.transport.interface import Host
from pp4.transport.local_host import LocalHost
from pp4.wire.facts import refusal_of

_CONNECT_S = 20.0
_STAGE_S = 300.0
ASK_S = 90.0
"""How long a host is asked one thing."""
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Place:
    """A host with the code on it.

    Attributes:
        host: the host.
        start: what an argument list there begins with; the module and its arguments follow.
        settings: variables that every program there gets.
    """

    host: Host
    start: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    def program(self, module: str, *arguments: str) -> list[str]:
        """The argument list of ``python -m MODULE ARGUMENTS`` there; no shell reads it."""
        given = [f"{name}={text}" for name, text in self.settings.items()]
        return ["env", *given, *self.start, module, *arguments]

    def ask(self, module: str, *arguments: str, limit_s: float = ASK_S) -> dict[str, Any]:
        """Run a module there that prints one JSON object; -> that object.

        Args:
            module: a module of pp4.
            arguments: its arguments.
            limit_s: seconds that it may take.

        Raises:
            Pp4Error: the refusal that it prints.
            WrongError: ``BAD_FRAME``, it prints something else; ``CONNECTION_LOST``.
            TimedOutError: ``STEP_TIMEOUT``.
        """
        deadline = Deadline.after(SystemClock(), limit_s)
        stream = self.host.run(self.program(module, *arguments), deadline)
        said = b""
        while data := stream.read(deadline):
            said += data
        stream.finish(deadline)
        try:
            answer = json.loads(said)
        except ValueError as error:
            last = "; ".join(stream.last_lines(2)) or "nothing said"
            where, expected = f"{module} on {self.host.address}", "one JSON object"
            raise WrongError(Refusal(Code.BAD_FRAME, where, expected, last)) from error
        if not isinstance(answer, dict):
            where, expected = f"{module} on {self.host.address}", "one JSON object"
            raise WrongError(Refusal(Code.BAD_FRAME, where, expected, str(answer)[:200]))
        refusal = answer.get("refusal", answer if _is_refusal(answer) else None)
        if refusal is not None:
            raise raised(there(refusal_of(refusal), self.host))
        return answer


def _is_refusal(answer: Mapping[str, Any]) -> bool:
    """Whether an answer is what a command prints under ``--json`` when it does not go on."""
    return {"code", "where", "expected", "found", "next"} <= set(answer)


def _settings(there: ReceivingHost) -> dict[str, str]:
    given = {"PP4_STATE_DIR": there.state_dir, "PP4_HOST_DIR": there.host_dir}
    return {name: text for name, text in given.items() if text is not None}


def _connected(there: ReceivingHost) -> Host:
    if there.login is None:
        return LocalHost()
    # paramiko is loaded only where it is needed
    from pp4.transport.lasting import LastingHost
    from pp4.transport.ssh import SshAddress

    def address(login: Login, jump: Login | None = None) -> SshAddress:
        return SshAddress(
            address=login.address,
            port=login.port,
            user=login.user,
            identity_file=login.identity_file,
            host_key=login.host_key,
            agent=there.agent,
            jump=None if jump is None else address(jump),
        )

    deadline = Deadline.after(SystemClock(), _CONNECT_S)
    return LastingHost(address(there.login, there.jump), deadline)


@contextlib.contextmanager
def reached(file: HoldFile, source: Source | None = None) -> Iterator[Place]:
    """Connect to the host of a HOLD file, with the code on it for as long as the block runs.

    Args:
        file: which host.
        source: what has to run there; the installed source where none is given.

    Raises:
        RefusedError, WrongError, TimedOutError: what the way there or the staging ends in.
    """
    with reached_host(file.host, source) as place:
        yield place


@contextlib.contextmanager
def reached_host(there: ReceivingHost, source: Source | None = None) -> Iterator[Place]:
    """Connect to a host, with the code on it; see :func:`reached`."""
    with contextlib.closing(_connected(there)) as host:
        if there.transport == "local":
            here = (f"PYTHONPATH={_PACKAGE.parent}", there.python, "-P", "-m")
            yield Place(host, here, _settings(there))
            return
        with _staged(host, there, source or installed_source()) as staged:
            yield Place(host, tuple(staged.argv("")[:-1]), _settings(there))


@contextlib.contextmanager
def _staged(host: Host, there: ReceivingHost, source: Source) -> Iterator[Staged]:
    """Have the code there for as long as the block runs; whoever uses it last takes it away."""
    use = secrets.token_hex(8)
    for last in (False, True):
        deadline = Deadline.after(SystemClock(), _STAGE_S)
        staged = stage(host, there.python, there.state_dir, source, _PACKAGE, deadline)
        try:
            take(host, staged, use, deadline)
            break
        except RefusedError as error:
            # somebody else was its last user a moment ago
            if last or error.refusal.code is not Code.NOT_STAGED:
                raise
    yield staged
    # after anything else than a good end, what was started may still run from it; and what cannot
    # be taken away costs nobody the answer that is there: the use of it ends by itself
    with contextlib.suppress(Pp4Error):
        drop(host, staged, use, Deadline.after(SystemClock(), _STAGE_S))
        sweep(host, staged, Deadline.after(SystemClock(), _STAGE_S))
