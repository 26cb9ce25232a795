"""What a worker is started with: ``python -m pp4.worker.serve`` gets it as one JSON document.

The switch is no part of it: :func:`pp4.config.sampled_switch` reads that one, so no file that is
kept somewhere turns the sampled path on.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NoReturn, Self

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import parse, shown
from pp4.receipts.envelope import Sha256
from pp4.wire.facts import Waits
from pp4.wire.frames import Model

WHERE: Final = "worker settings"
LARGEST: Final = 32
"""Rows of the largest batch that is captured."""
DEPTHS: Final = (4, 5)
LONGEST_SOCKET: Final = 107
"""Bytes of a socket's path; the kernel's structure holds 108 with the zero at its end."""
_OURS: Final = "pp4_setting"
_UUID: Final = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_LONGEST: Final = 4096


def _refuse(expected: str, found: str, member: str = "") -> NoReturn:
    # the context carries the parts to the refusal; pydantic itself would keep one text
    context = {"expected": expected, "found": found, "member": member}
    raise PydanticCustomError(_OURS, "{expected}", context)


def _require(holds: bool, expected: str, found: str) -> None:
    if not holds:
        _refuse(expected, found)


def _require_rising(numbers: tuple[int, ...], allowed: tuple[int, ...], which: str) -> None:
    rises = list(numbers) == sorted(set(numbers)) and set(numbers) <= set(allowed)
    found = ", ".join(map(str, numbers)) or "none"
    _require(rises and bool(numbers), f"rising whole numbers {which}, at least one", found)


def _absolute(path: str) -> str:
    sound = path.startswith("/") and path.isprintable() and len(path) <= _LONGEST
    _require(sound, "an absolute path", path)
    return path


def _uuid(name: str) -> str:
    expected = "a UUID as nvidia-smi -L spells it (GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)"
    _require(_UUID.fullmatch(name) is not None, expected, name)
    return name


Device = Literal["gpu", "interpreter", "reference"]
Uuid = Annotated[str, AfterValidator(_uuid)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Size = Annotated[int, Field(ge=1, le=1 << 20)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class Tcp(Model):
    """Where a worker listens beside its socket: a number of the loopback interface, and a port.

    Attributes:
        host: no name, since a name may come to mean another machine.
        port: 0 for any that is free.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)]

    @field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        try:
            here = ipaddress.ip_address(host).is_loopback
        except ValueError:
            here = False
        _require(here, "an address of the loopback interface (127.0.0.1, ::1)", host)
        return host


class Nobody(Model):
    """Nobody has allowed anything: enough for a switch that is off, or where nothing is a GPU."""

    kind: Literal["none"] = "none"


class ByQualification(Model):
    """A qualification of scope ``full`` allows the switch.

    Attributes:
        path: the receipt.
        sha256: of the file as whoever started the worker has judged it.
    """

    kind: Literal["qualification"] = "qualification"
    path: AbsolutePath
    sha256: Sha256


class ByGrant(Model):
    """The grant of an open HOLD allows the switch; it comes over standard input."""

    kind: Literal["grant"] = "grant"


class Limits(Model):
    """How long a host waits, in seconds.

    Attributes:
        start_s: from the start to serving; a cold cache compiles for a minute or two.
        block_s: for both ranks to answer a block, or anything else that a client asks for, whatever
            their own bounds are.
        stop_s: for what is waiting to be answered, and again for both ranks to be gone.
        hand_over_s: for a grant to come over standard input.
    """

    start_s: Seconds = 600.0
    block_s: Seconds = 30.0
    stop_s: Seconds = 20.0
    hand_over_s: Seconds = 20.0


class Serve(Model):
    """Everything that a worker is told.

    Attributes:
        checkpoint: directory of the drafter.
        target: directory of the target, for what the drafter's checkpoint leaves to it.
        device: what its ranks run on.
        gpus: UUIDs, rank 0 first: two, or one of a solo worker; none on other devices.
        solo: whether both shards are in one launch, on one device.
        socket: path of the Unix socket.
        tcp: where it listens besides; nowhere where None.
        batches: batch sizes that are captured, rising.
        depths: numbers of positions that are captured, rising.
        slots: requests that can be open at once.
        context: tokens that a request may have features of.
        cache_mib: MiB of cached bias rows on each rank.
        metrics_port: of 127.0.0.1, 0 for any that is free; no metrics over HTTP where None.
        permission: what allows the switch.
        waits: bounds of the waits of one exchange.
        limits: bounds of the host's own waits.
        state: directory of what belongs to this worker alone.
        compiled: directory of compiled kernels, kept from worker to worker.
        exit_when_failed: end when the ranks have failed, rather than refuse until somebody ends it.
        log: form of the log on standard error.
        log_blocks: whether each block gets a line of it.
    """

    checkpoint: AbsolutePath
    target: AbsolutePath | None = None
    device: Device
    gpus: tuple[Uuid, ...] = ()
    solo: bool = False
    socket: AbsolutePath
    tcp: Tcp | None = None
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    depths: tuple[int, ...] = DEPTHS
    slots: Annotated[int, Field(ge=1, le=4096)] = 64
    context: Size = 4096
    cache_mib: Annotated[int, Field(ge=0, le=1 << 20)] = 256
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    permission: Annotated[Nobody | ByQualification | ByGrant, Field(discriminator="kind")] = (
        Nobody()
    )
    waits: Waits = Waits()
    limits: Limits = Limits()
    state: AbsolutePath
    compiled: AbsolutePath
    exit_when_failed: bool = False
    log: Literal["json", "text"] = "json"
    log_blocks: bool = False

    @field_validator("socket")
    @classmethod
    def _short(cls, path: str) -> str:
        size = len(path.encode())
        expected = f"a path of at most {LONGEST_SOCKET} bytes"
        _require(size <= LONGEST_SOCKET, expected, f"{size} bytes")
        return path

    @field_validator("batches")
    @classmethod
    def _batches(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        _require_rising(sizes, tuple(range(1, LARGEST + 1)), f"from 1 to {LARGEST}")
        return sizes

    @field_validator("depths")
    @classmethod
    def _depths(cls, depths: tuple[int, ...]) -> tuple[int, ...]:
        _require_rising(depths, DEPTHS, "out of 4 and 5")
        return depths

    @field_validator("waits")
    @classmethod
    def _bounded(cls, waits: Waits) -> Waits:
        for name, value in waits.model_dump().items():
            _require(value is None or value >= 1, f"{name} of at least 1", str(value))
        return waits

    @model_validator(mode="after")
    def _one_machine(self) -> Self:
        wanted = 0 if self.device != "gpu" else 1 if self.solo else 2
        if len(self.gpus) != wanted or len(set(self.gpus)) != wanted:
            kind = f"device {self.device}{', solo' if self.solo else ''}"
            found = ", ".join(self.gpus) or "none"
            _refuse(f"{wanted} different GPUs for {kind}", found, "gpus")
        if self.permission.kind == "qualification" and (self.solo or self.device != "gpu"):
            expected = "a pair of GPUs, which is what a qualification is about"
            found = "a solo worker" if self.solo else f"device {self.device}"
            _refuse(expected, found, "permission")
        return self


def read_settings(raw: bytes) -> Serve:
    """Read the settings of a worker.

    Args:
        raw: JSON text.

    Raises:
        RefusedError: ``BAD_SETTING``, with the first member that will not do, what it has to be
            and what it is.
    """
    try:
        # a member that stands there twice means two things; pydantic would take the last one
        parse(raw, WHERE)
    except RefusedError as error:
        refusal = error.refusal
        raise _bad(WHERE, refusal.expected, refusal.found) from error
    try:
        return Serve.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = _place(first)
        raise _bad(f"{WHERE}{place and ', '}{place}", *_said(first)) from None


def settings_of(members: Mapping[str, object]) -> Serve:
    """Make settings.

    Args:
        members: by the names of :class:`Serve`, as JSON has them.

    Raises:
        RefusedError: as :func:`read_settings`.
    """
    return read_settings(json.dumps(members).encode())


def _said(first: ErrorDetails) -> tuple[str, str]:
    """What was expected, and what was found."""
    if first["type"] == _OURS:
        return str(first["ctx"]["expected"]), str(first["ctx"]["found"])
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(first["loc"][-1]), Serve.model_fields, n=1)
        return f"a known setting{f' (perhaps {near[0]})' if near else ''}", "an unknown one"
    if first["type"] == "missing":
        return "a value", "nothing"
    return first["msg"].removeprefix("Input should be "), repr(first["input"])


def _place(first: ErrorDetails) -> str:
    member = first.get("ctx", {}).get("member")
    return member or ".".join(str(part) for part in first["loc"])


def _bad(where: str, expected: str, found: str) -> RefusedError:
    refusal = Refusal(Code.BAD_SETTING, shown(where), shown(expected), shown(found))
    return RefusedError(refusal)
