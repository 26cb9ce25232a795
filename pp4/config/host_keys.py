"""The key of a host, as a HOLD file pins it: one public key line of OpenSSH.

RFC 4253, section 6.6, says what the decoded part of such a line holds: fields, each behind its
length in four bytes, the first of them the type once more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Final

from pp4.config.tables import Table, flaw

_FIELDS: Final[Mapping[str, int]] = {
    "ssh-ed25519": 2,
    "ecdsa-sha2-nistp256": 3,
    "ecdsa-sha2-nistp384": 3,
    "ecdsa-sha2-nistp521": 3,
    "ssh-rsa": 3,
}
_LINE: Final = "a public key line of OpenSSH (ssh-ed25519 AAAA...)"
_SHOW: Final = "cat /etc/ssh/ssh_host_ed25519_key.pub"
_FINGERPRINT: Final = re.compile(
    r"([0-9]+ )?(SHA256:|MD5:|SHA1:)|([0-9a-f]{2}:){15}[0-9a-f]{2}$", re.ASCII
)
_ED25519_BYTES: Final = 32


def host_key(table: Table, key: str = "host_key") -> str:
    """Return the key line of a host, its comment left out.

    Whether it is the host's key is only known when the host answers.

    Raises:
        RefusedError: ``BAD_HOLD_FILE``, anything else stands there.
    """
    text = table.string(key, _LINE, _SHOW)
    misunderstood = _mistaken(text) or flaw(text)
    if misunderstood:
        table.refuse(key, f"{_LINE}: {misunderstood}", again=_SHOW)
    kind, blob = [*text.split(), "", ""][:2]
    if kind not in _FIELDS:
        table.refuse(key, f"{_LINE}, its type one of {', '.join(_FIELDS)}", again=_SHOW)
    fault = _fault(kind, blob)
    if fault:
        table.refuse(key, f"{_LINE}, whole", f"{kind} and then {fault}", _SHOW)
    return f"{kind} {blob}"


def _mistaken(text: str) -> str:
    """Say what was taken for a key line, where it is something that people do take for one."""
    words = text.split()
    if "PRIVATE KEY" in text:
        return "a private key must never leave its host; the public one is wanted"
    if _FINGERPRINT.match(text):
        return "a fingerprint is too little to pin a key with"
    if text.endswith(".pub") and len(words) == 1:
        return "the line itself, not the name of its file"
    if len(words) > 2 and words[0] not in _FIELDS and words[1] in _FIELDS:
        return "without the name of the host before it"
    return ""


def _fault(kind: str, blob: str) -> str:
    """Say in what a line's second word differs from a key of the type, empty where it is one."""
    try:
        raw = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        # ValueError: characters outside of ASCII
        return "something that is not base64"
    try:
        fields = tuple(_split(raw))
    except ValueError:
        return f"{len(raw)} bytes that are cut off"
    if not fields or fields[0] != kind.encode():
        return "the base64 of another type"
    if len(fields) != _FIELDS[kind] or not all(fields):
        return f"{len(fields)} fields of {_FIELDS[kind]}"
    if kind == "ssh-ed25519" and len(fields[1]) != _ED25519_BYTES:
        return f"{len(fields[1])} bytes of {_ED25519_BYTES}"
    curve = kind.rpartition("-")[2].encode()
    if kind.startswith("ecdsa-") and fields[1] != curve:
        return "another curve"
    return ""


def _split(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4])
        start, at = at + 4, at + 4 + size
        if at > len(raw):
            raise ValueError("a field ends behind the end")
        yield raw[start:at]
