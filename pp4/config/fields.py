"""What the values of a HOLD file may be: names, addresses, paths, programs, GPUs, numbers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final, Literal

from pp4.config import home_dir
from pp4.config.tables import Real, Table, flaw, said

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
_IP: Final = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9._-]+)?", re.ASCII)
_USER: Final = re.compile(r"[^\s-][^\s]{0,255}")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", re.ASCII)
_GPU: Final = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FRACTION: Final = re.compile(r"[0-9]{1,3}\.[0-9]{1,6}", re.ASCII)
_LIST_GPUS: Final = "nvidia-smi -L"
_ADDRESS_LENGTH: Final = 253
_PAIR: Final = 2


def name(table: Table, key: str = "name") -> str:
    """Return a name that can stand in a message, a journal or a file name.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = "a name of at most 64 letters, digits, '.', '_' and '-', first a letter or digit"
    text = table.text(key, expected)
    if not _NAME.fullmatch(text):
        table.refuse(key, expected)
    return text


def address(table: Table, key: str = "address") -> str:
    """Return a host name or an IP address; nothing is looked up.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = "a host name or an IP address alone; port and user have keys of their own"
    text = table.text(key, expected)
    if not (_is_host_name(text) or _is_ip(text)):
        table.refuse(key, expected)
    return text


def _is_host_name(text: str) -> bool:
    labels = text.removesuffix(".").split(".")
    if labels[-1].isdigit():
        # Four numbers are an IPv4 address or a wrong one, never a name.
        return False
    return len(text) <= _ADDRESS_LENGTH and all(_LABEL.fullmatch(label) for label in labels)


def _is_ip(text: str) -> bool:
    # The standard library takes any text for the zone behind a percent sign.
    if not _IP.fullmatch(text):
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def user(table: Table, key: str = "user") -> str:
    """Return the name of an account.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = "the name of an account, without spaces"
    text = table.text(key, expected)
    if not _USER.fullmatch(text):
        table.refuse(key, expected)
    return text


def file_here(table: Table, key: str, environ: Mapping[str, str] | None) -> Path:
    """Return the absolute path of a file of this machine; ``~/`` is this user's home.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``; ``BAD_SETTING``, the home is asked for and not known.
    """
    expected = "an absolute path, or one that begins with ~/"
    text = table.text(key, expected)
    if text.startswith("~/"):
        return home_dir(environ) / text[2:].lstrip("/")
    if not text.startswith("/"):
        table.refuse(key, expected)
    return Path(text)


def file_beside(table: Table, key: str, directory: Path, environ: Mapping[str, str] | None) -> Path:
    """Return the path of a file; a relative one begins in ``directory``.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``; ``BAD_SETTING``, the home is asked for and not known.
    """
    text = table.text(key, "the path of a file")
    return file_here(table, key, environ) if text[0] in "~/" else directory / text


def path_there(table: Table, key: str) -> str:
    """Return an absolute path on the receiving host, as it is written.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = "an absolute path on the receiving host, where no ~ is expanded"
    text = table.text(key, expected)
    if not text.startswith("/"):
        table.refuse(key, expected)
    return text


def path_there_or_none(table: Table, key: str) -> str | None:
    """Return the same, None where the key is not there.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    return path_there(table, key) if table.has(key) else None


def python(table: Table, default: str) -> str:
    """Return the interpreter of a host: a name or an absolute path.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    if not table.has("python"):
        return default
    expected = "the name of a program, or an absolute path where no ~ is expanded"
    text = table.text("python", expected)
    if not _is_program(text):
        table.refuse("python", expected)
    return text


def _is_program(text: str) -> bool:
    return text.startswith("/") or _PROGRAM.fullmatch(text) is not None


def argv(table: Table) -> tuple[str, ...]:
    """Return a command: a program and its arguments.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = 'a list of arguments (["systemctl", "stop", "drafter"]); no shell reads it'
    arguments = []
    for at, one in enumerate(table.items("argv", expected), 1):
        fault = flaw(one) if isinstance(one, str) else "text"
        if not isinstance(one, str) or fault:
            table.refuse("argv", f"{expected}; each {fault}", f"argument {at}: {said(one)}")
        arguments.append(one)
    if not _is_program(arguments[0]):
        expected = "first the name of a program, or its absolute path; no shell reads it"
        table.refuse("argv", expected, said(arguments[0]))
    return tuple(arguments)


def gpus(table: Table, transport: Literal["ssh", "local"]) -> tuple[str, ...] | Literal["auto"]:
    """Return the UUIDs of a pair, rank 0 first, or ``auto`` on this machine.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    value = table.entries.get("gpus", "auto" if transport == "local" else None)
    if value == "auto":
        if transport == "local":
            return "auto"
        expected = 'the UUIDs of two GPUs; "auto" is for transport "local" alone'
        table.refuse("gpus", expected, again=_LIST_GPUS)
    if not isinstance(value, list):
        expected = 'a list of two UUIDs, or "auto" with transport "local"'
        table.refuse("gpus", expected, again=_LIST_GPUS)
    found: list[str] = []
    for one in value:
        if not isinstance(one, str) or not _GPU.fullmatch(one):
            expected = "UUIDs as nvidia-smi spells them: GPU- and 8-4-4-4-12 digits of 0-9, a-f"
            table.refuse("gpus", expected, said(one), _LIST_GPUS)
        if one in found:
            table.refuse("gpus", "two different GPUs", f"{one} twice", _LIST_GPUS)
        found.append(one)
    if len(found) != _PAIR:
        table.refuse("gpus", "exactly two GPUs, a pair", f"{len(found)}", _LIST_GPUS)
    return tuple(found)


def sha256(table: Table, key: str = "sha256") -> str:
    """Return a digest.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    expected = "64 digits of 0-9 and a-f, as sha256sum prints them"
    text = table.text(key, expected)
    if not _SHA256.fullmatch(text):
        table.refuse(key, expected)
    return text


def integers(
    table: Table, key: str, low: int, high: int, default: tuple[int, ...]
) -> tuple[int, ...]:
    """Return different whole numbers within bounds, in the order given.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    if not table.has(key):
        return default
    expected = f"a list of different whole numbers from {low} to {high}"
    numbers: list[int] = []
    for one in table.items(key, expected):
        if isinstance(one, bool) or not isinstance(one, int) or not low <= one <= high:
            table.refuse(key, expected, said(one))
        if one in numbers:
            table.refuse(key, expected, f"{one} twice")
        numbers.append(one)
    return tuple(numbers)


def decimals(
    table: Table, key: str, high: int, default: tuple[Decimal, ...]
) -> tuple[Decimal, ...]:
    """Return different numbers from 0 to ``high``, each in its shortest spelling, in order.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``.
    """
    if not table.has(key):
        return default
    expected = f"a list of different numbers from 0 to {high}, such as 0.7"
    numbers: list[Decimal] = []
    for one in table.items(key, expected):
        number = _decimal(one, high)
        if number is None:
            table.refuse(key, expected, said(one))
        if number in numbers:
            table.refuse(key, expected, f"{said(one)} twice")
        numbers.append(number)
    return tuple(numbers)


def _decimal(value: object, high: int) -> Decimal | None:
    """Return a number in its shortest spelling, None where it is none or out of bounds."""
    if isinstance(value, Real) and _FRACTION.fullmatch(value.text):
        # 1.0 and 1 are one number, and a receipt has one spelling for it.
        number = Decimal(value.text).normalize()
        return number if number <= high else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= high:
        return None
    return Decimal(value)
