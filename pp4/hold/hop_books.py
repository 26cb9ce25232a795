"""What a HOLD knows of its hops: small files, each written once and before it is needed.

``hop-N.json`` is there before anything is contacted, ``hop-N.asked.json`` before the far host is
asked for a child, ``hop-N.granted.json`` once it has granted one, ``hop-N.closed.json`` once the
far end is proven over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pp4.hold import durable
from pp4.hold.records import read_model, unreadable
from pp4.wire.frames import Model
from pp4.wire.holds import Granted
from pp4.wire.hops import Recorded

HOP = "hop-"
"""Begins the label of a step that is a hop, and of no other."""
_FILE = re.compile(r"hop-([1-9][0-9]{0,8})\.json", re.ASCII)
M = TypeVar("M", bound=Model)


class Asked(Model):
    """The far host is about to be asked: from here on it may have a child."""

    hop: int


class Ended(Model):
    """The far end of a hop is over.

    Attributes:
        how: what proves it: the ``tombstone`` of the child; that it was ``refused``; that there
            is none and none can be opened any more (``never``); that the far host has restarted
            since (``reboot``).
        boot_id: boot of the far host that said so, None where it refused.
        tombstone: of the child.
    """

    how: Literal["tombstone", "refused", "never", "reboot"]
    boot_id: str | None = None
    tombstone: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class HopBook:
    """One hop as its files tell it.

    Attributes:
        directory: of its HOLD, its user's own.
        recorded: what was asked for.
        asked: whether the far host may have been asked for a child.
        granted: what it granted, None where that is not known.
        ended: what proves its end, None where nothing does.
    """

    directory: Path
    recorded: Recorded
    asked: bool
    granted: Granted | None
    ended: Ended | None

    @property
    def unproven(self) -> bool:
        """Whether something of it may still run, once its near step is dead."""
        return self.asked and self.ended is None

    def __str__(self) -> str:
        hold = "of unknown id" if self.granted is None else self.granted.hold
        return f"HOLD {hold} of {self.recorded.label} at {self.recorded.login}"

    @property
    def found(self) -> str:
        """How it stands, in a few words that name no host."""
        if self.ended is None:
            return "unproven" if self.asked else "nothing was asked for there"
        tombstone = self.ended.tombstone
        return self.ended.how if tombstone is None else f"tombstone: {tombstone.get('why')}"

    def say_asked(self) -> None:
        """Write down that the far host is asked next; see :func:`write_book` for what it raises."""
        write_book(self.directory, self.recorded.hop, Asked(hop=self.recorded.hop))

    def say_granted(self, granted: Granted) -> None:
        """Write down what it granted."""
        write_book(self.directory, self.recorded.hop, granted)

    def say_ended(self, ended: Ended) -> None:
        """Write down what proves its end."""
        write_book(self.directory, self.recorded.hop, ended)


_NAMES: dict[type[Model], str] = {
    Recorded: "",
    Asked: ".asked",
    Granted: ".granted",
    Ended: ".closed",
}


def _path(directory: Path, hop: int, model: type[Model]) -> Path:
    return directory / f"{HOP}{hop}{_NAMES[model]}.json"


def write_book(directory: Path, hop: int, model: Model) -> None:
    """Write one of the files durably, for this user alone.

    Raises:
        RefusedError: ``UNWRITABLE``.
    """
    path = _path(directory, hop, type(model))
    durable.replace(path, model.model_dump_json().encode(), 0o600)


def read_hop(directory: Path, hop: int) -> HopBook | None:
    """Read one hop, None where there is none.

    Raises:
        RefusedError: ``UNREADABLE``: a file is none of a hop; ``EXCLUSION``: a symbolic link.
    """
    recorded = _read(directory, hop, Recorded)
    if recorded is None:
        return None
    return HopBook(
        directory,
        recorded,
        asked=_read(directory, hop, Asked) is not None,
        granted=_read(directory, hop, Granted),
        ended=_read(directory, hop, Ended),
    )


def read_hops(directory: Path) -> tuple[HopBook, ...]:
    """Read every hop of a HOLD, the first one first.

    Raises:
        RefusedError: as :func:`read_hop`; the directory may not be looked into.
    """
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise unreadable(directory, error.strerror or str(error)) from error
    numbers = sorted(int(match[1]) for name in names if (match := _FILE.fullmatch(name)))
    found_books = (read_hop(directory, number) for number in numbers)
    return tuple(book for book in found_books if book is not None)


def _read(directory: Path, hop: int, model: type[M]) -> M | None:
    return read_model(_path(directory, hop, model), model)
