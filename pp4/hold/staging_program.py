"""How the coordinator runs :mod:`pp4.hold.unpack` on a host without pp4, and reads its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from pp4.clock import Deadline
from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.receipts.canonical import parse, read_file, shown
from pp4.transport.interface import Host, Stream
from pp4.wire.frames import Model

WIDE: Final = 400
"""Letters of a refusal that may name a path with a digest in it, and what is wrong there."""

_ANSWER = 64 << 10
_SHOWN = 200
_OLDEST = (3, 11)
_PATIENCE_S = 30.0
_NO_PROGRAM = (126, 127)
# read and never imported: the coordinator may run where their locks do not exist
_TEXTS = ("staged_files.py", "unpack.py")

# In the words that every Python 3 has, so that one that is too old can say so; the modules are
# given to the program under their own names, whatever else may be installed.
_FIRST: Final = """\
import sys
if sys.version_info < (3, 11):
    sys.stdout.write('{"python": "%d.%d.%d"}\\n' % sys.version_info[:3])
else:
    import types
    ground, program = sys.argv[1:3]
    del sys.argv[1:3]
    sys.modules["pp4.hold.staged_files"] = types.ModuleType("pp4.hold.staged_files")
    exec(ground, sys.modules["pp4.hold.staged_files"].__dict__)
    exec(program)
"""


class _Refused(Model):
    code: str
    where: str
    expected: str
    found: str
    again: bool


class AgainError(RefusedError):
    """The upload was not what it should be; from nothing it may succeed."""


class Looked(Model):
    """What a host has.

    Attributes:
        python: version.
        platform: ``sys.platform``.
        directory: where staged code goes.
        path: of the tree, None where there is none that is intact.
        damage: what is wrong with the one that is there.
        free: bytes.
        writable: whether the directory takes files.
    """

    python: str
    platform: str
    directory: str
    path: str | None
    damage: str | None
    free: int
    writable: bool


class Prepared(Model):
    """The directory is there and may be believed."""

    directory: str


class There(Model):
    """The tree is there, with the digest of its source as the host computed it."""

    path: str
    source: str


class Removed(Model):
    """Names that are gone from the directory of staged code."""

    removed: tuple[str, ...]


A = TypeVar("A", bound=Model)


@dataclass(frozen=True, slots=True)
class Program:
    """The program of :mod:`pp4.hold.unpack` on one host.

    Attributes:
        host: the way to it.
        python: the interpreter there.
        directory: where staged code goes; empty for the account's own.
        digest: of the source that it is about.
        deadline: of everything that is asked.
    """

    host: Host
    python: str
    directory: str
    digest: str
    deadline: Deadline

    def ask(self, answer: type[A], verb: str, *arguments: str) -> A:
        """Run one verb.

        Raises:
            RefusedError: what the program refuses; ``UNREADABLE``, no such Python; ``NOT_STAGED``,
                it is too old.
            WrongError: ``BAD_FRAME``, it answers otherwise; ``CONNECTION_LOST``.
            TimedOutError: ``STEP_TIMEOUT``.
        """
        # half of what is left: it should be able to say that it waited in vain
        limit = f"{min(_PATIENCE_S, self.deadline.remaining_s() / 2):.3f}"
        texts = [read_file(Path(__file__).with_name(name)).decode() for name in _TEXTS]
        argv = [self.python, "-I", "-S", "-c", _FIRST, *texts]
        stream = self.host.run(
            [*argv, verb, self.directory, self.digest, limit, *arguments], self.deadline
        )
        try:
            raw = _all(stream, self.deadline)
            # who writes without an end is not waited for
            status = stream.finish(self.deadline) if len(raw) <= _ANSWER else None
            lines = stream.last_lines()
        finally:
            stream.close()
        if status in _NO_PROGRAM and not raw:
            found = shown(" | ".join(lines) or f"exit status {status}")
            raise self.refuse(Code.UNREADABLE, self.python, "a Python that starts", found)
        tree = _one_object(raw) if status == 0 else None
        if tree is not None:
            self._require_python(tree.get("python"))
        try:
            if tree is not None and "refusal" in tree:
                raise self._refusal(_Refused.model_validate(tree["refusal"]))
            if tree is not None:
                return answer.model_validate_json(raw)
        except ValidationError:
            # the same sentence as for text that is no JSON
            pass
        raise self._no_answer(raw, status, lines)

    def _no_answer(self, raw: bytes, status: int | None, lines: tuple[str, ...]) -> WrongError:
        output = shown(raw[:_SHOWN].decode(errors="replace")) or "no output"
        ended = f"more than {_ANSWER} bytes" if status is None else f"exit status {status}"
        found = "; ".join((ended, output, *map(shown, lines)))
        where, expected = f"{shown(self.python)}, staging pp4", "one line of JSON from its program"
        return WrongError(Refusal(Code.BAD_FRAME, where, expected, found, host=self.host.address))

    def _require_python(self, version: object) -> None:
        if not isinstance(version, str):
            return
        numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
        if numbers < _OLDEST:
            expected = ".".join(map(str, _OLDEST)) + " or newer"
            raise self.refuse(Code.NOT_STAGED, self.python, f"Python {expected}", shown(version))

    def _refusal(self, said: _Refused) -> RefusedError:
        code = Code.UNWRITABLE if said.code == Code.UNWRITABLE else Code.NOT_STAGED
        where, expected = shown(said.where, WIDE), shown(said.expected, WIDE)
        found, address = shown(said.found, WIDE), self.host.address
        refusal = Refusal(code, where, expected, found, host=address)
        return AgainError(refusal) if said.again else RefusedError(refusal)

    def refuse(self, code: Code, where: str, expected: str, found: str) -> RefusedError:
        """Return a refusal that was met on the host."""
        return RefusedError(Refusal(code, where, expected, found, host=self.host.address))


def _all(stream: Stream, deadline: Deadline) -> bytes:
    """Everything that it wrote; more than any answer has is cut, and then no JSON any more."""
    raw = b""
    while len(raw) <= _ANSWER:
        piece = stream.read(deadline)
        if not piece:
            break
        raw += piece
    return raw


def _one_object(raw: bytes) -> dict[str, object] | None:
    """The JSON object that is all of an output, None where it is anything else."""
    try:
        tree = parse(raw, "answer")
    except RefusedError:
        return None
    return tree if isinstance(tree, dict) and raw.count(b"\n") == 1 else None
