"""Bounds of the socket side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pp4.wire.draft_frames import MAX_BODY

Log = Callable[[str, Mapping[str, object]], None]
"""Takes the name of an event and its fields."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may take up.

    Attributes:
        connections: at once.
        largest_body: bytes of one FEATURES.
        unread_bytes: answers that a connection may leave unread before its questions wait too.
        write_s: seconds in which a client has to read something of what waits for it.
        linger_s: seconds that a connection stays half open for its last refusal to be read.
    """

    connections: int = 64
    largest_body: int = MAX_BODY
    unread_bytes: int = 1 << 20
    write_s: float = 10.0
    linger_s: float = 1.0
