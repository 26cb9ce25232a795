"""The log of a worker: one line for each event on standard error, for a machine or for a person.

A line is written whole or not at all: where nobody reads, it is dropped and counted, since a log
that waits for its reader would make everybody else wait.  A request's key and its features are in
no line, whoever hands them over.
"""

from __future__ import annotations

import json
import logging
import math
import os
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

Form = Literal["json", "text"]
OURS: Final = "pp4.worker"
"""Name of the logger of a worker's events."""
LONGEST: Final = 4000
"""Bytes of a line; a pipe that takes anything takes a page at once."""
_SECRET: Final = frozenset({"key", "keys", "features", "nonce", "anchor", "tokens", "granted"})
_OFTEN: Final = frozenset({"block"})
_KEPT_BACK: Final = "not logged"
_LONGEST_FIELD: Final = 500
_FIELDS: Final = "pp4_fields"


class EventLog:
    """Tells events; a call is one line.

    Args:
        logger: where it goes.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def __call__(
        self, event: str, fields: Mapping[str, object] | None = None, /, **more: object
    ) -> None:
        """Tell what happened, in a word and its circumstances."""
        level = logging.DEBUG if event in _OFTEN else logging.INFO
        self._tell(level, event, {**(fields or {}), **more})

    def warn(self, event: str, /, **fields: object) -> None:
        """Tell what an operator should look at."""
        self._tell(logging.WARNING, event, fields)

    def fail(self, event: str, /, **fields: object) -> None:
        """Tell what ended the worker's work."""
        self._tell(logging.ERROR, event, fields)

    def _tell(self, level: int, event: str, fields: Mapping[str, object]) -> None:
        self._logger.log(level, "%s", event, extra={_FIELDS: fields})


class Lines(logging.Formatter):
    """Formats a record as one line: a JSON object, or text.

    Args:
        form: which.
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, without its end."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
        }
        if record.name == OURS:
            head["event"] = record.getMessage()
        else:
            # of a library: its words, without what is private to it
            head |= {"event": "library", "logger": record.name, "message": _message(record)}
            if record.exc_info and record.exc_info[1]:
                head["error"] = repr(record.exc_info[1])
        fields = getattr(record, _FIELDS, {})
        # the head comes last: no field can take its place
        tree = {name: _plain(name, one) for name, one in (head | dict(fields) | head).items()}
        return _as_json(tree) if self._form == "json" else _as_text(tree)


class _Bounded(logging.Handler):
    """Writes lines to a descriptor and never waits for whoever reads it.

    Args:
        descriptor: where lines go.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor, self._dropped = descriptor, 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, or drop it."""
        if self._dropped:
            fields = getattr(record, _FIELDS, {})
            setattr(record, _FIELDS, {**fields, "dropped_before": self._dropped})
        line = self.format(record).encode("ascii", "backslashreplace") + b"\n"
        try:
            _, free, _ = select.select([], [self._descriptor], [], 0)
            if free and os.write(self._descriptor, line) == len(line):
                self._dropped = 0
                return
        except (OSError, ValueError):
            # nobody is left to tell it to
            self._dropped += 1
            return
        self._dropped += 1


def start_logging(form: Form, descriptor: int = 2, *, blocks: bool = False) -> EventLog:
    """Send the log of this process to a descriptor, what libraries log included.

    Args:
        form: of the lines.
        descriptor: standard error where none is given.
        blocks: whether each block gets its line, of which there can be thousands a second.
    """
    handler = _Bounded(descriptor)
    handler.setFormatter(Lines(form))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    ours = logging.getLogger(OURS)
    ours.setLevel(logging.DEBUG if blocks else logging.INFO)
    return EventLog(ours)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:
        # the arguments do not fit: somebody else's mistake, which must not reach whoever logged
        return str(record.msg)


def _plain(name: str, value: object) -> object:
    """What a field holds, as JSON has it; what is a request's own is kept back."""
    if name in _SECRET:
        return _KEPT_BACK
    if isinstance(value, Mapping):
        return {str(key): _plain(str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain("", one) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        # bytes are features or worse, by whatever name
        return _KEPT_BACK
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no word for it
        return repr(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST_FIELD else f"{text[: _LONGEST_FIELD - 3]}..."


def _as_json(tree: Mapping[str, Any]) -> str:
    line = json.dumps(tree, ensure_ascii=True)
    if len(line) < LONGEST:
        return line
    head = {name: tree[name] for name in ("time", "level", "event")}
    return json.dumps({**head, "cut": len(line)}, ensure_ascii=True)


def _as_text(tree: Mapping[str, Any]) -> str:
    head = f"{tree['time']} {tree['level']:<7} {tree['event']}"
    rest = [
        f"{name}={json.dumps(value, ensure_ascii=True)}"
        for name, value in tree.items()
        if name not in ("time", "level", "event")
    ]
    line = " ".join([head, *rest])
    return line if len(line) < LONGEST else f"{line[: LONGEST - 4]}..."
