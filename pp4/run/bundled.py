"""The pair of models that comes with pp4, and how it gets into a HOLD.

A checkout has it in ``examples/mini``, an installed package in ``pp4/mini``.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pp4.errors import Code, Refusal, RefusedError
from pp4.hold.hop_files import bring
from pp4.hold.reach import Place
from pp4.hold.window import Window
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import sha256_hex, tree_digest
from pp4.wire.hops import LONGEST_FILE, Brought
from pp4.wire.measuring import Pair

MINI: Final = "mini"
"""What commands call it."""
PROMPTS: Final = "prompts.jsonl"
_TARGET: Final = "target"
_DRAFTER: Final = "drafter"
_THERE: Final = "pair"
"""Directory in the working directory of a HOLD."""
_PACKAGE: Final = Path(__file__).resolve().parents[1]
_PLACES: Final = (_PACKAGE / "mini", _PACKAGE.parent / "examples" / "mini")
_LOADED: Final = ("config.json", "model.safetensors")
"""What a worker loads of a drafter that is one file."""


@dataclass(frozen=True, slots=True)
class Bundled:
    """The pair as it lies here.

    Attributes:
        directory: where.
        files: (relative name, sha256), sorted by name.
    """

    directory: Path
    files: tuple[tuple[str, str], ...]

    @property
    def checkpoint_sha256(self) -> str:
        """Digest of the drafter, as a worker that has loaded it names it."""
        digests = dict(self.files)
        return tree_digest([[name, digests[f"{_DRAFTER}/{name}"]] for name in _LOADED])

    def rows(self) -> list[list[str]]:
        """Names and digests as a JSON tree."""
        return [[name, digest] for name, digest in self.files]


def pair_there() -> Pair:
    """The pair as a step of a HOLD finds it."""
    names = (_TARGET, _DRAFTER, PROMPTS)
    target, drafter, prompts = (posixpath.join(_THERE, name) for name in names)
    return Pair(target=target, drafter=drafter, prompts=prompts)


def bundled(places: tuple[Path, ...] = _PLACES) -> Bundled:
    """Find the pair that comes with pp4.

    Args:
        places: directories that may hold it; the first that does is taken.

    Raises:
        RefusedError: ``UNREADABLE``: it is in none of them, or a file of it cannot be read.
    """
    for directory in places:
        if (directory / PROMPTS).is_file():
            return Bundled(directory, _files(directory))
    found = f"none in {' or '.join(shown(str(one)) for one in places)}"
    raise RefusedError(
        Refusal(
            Code.UNREADABLE,
            "the pair that comes with pp4",
            "a target, a drafter and prompts",
            found,
            next="pip install --force-reinstall pp4",
        )
    )


def _files(directory: Path) -> tuple[tuple[str, str], ...]:
    parts = (directory / part for part in (_TARGET, _DRAFTER))
    paths = [directory / PROMPTS, *(path for part in parts for path in part.iterdir())]
    names = sorted(path.relative_to(directory).as_posix() for path in paths if path.is_file())
    missing = [name for name in _LOADED if f"{_DRAFTER}/{name}" not in names]
    if missing:
        where = shown(str(directory / _DRAFTER))
        expected = " and ".join(_LOADED)
        found = f"no {' and no '.join(missing)}"
        raise RefusedError(Refusal(Code.UNREADABLE, where, expected, found))
    return tuple((name, sha256_hex(read_file(directory / name, LONGEST_FILE))) for name in names)


def bring_pair(pair: Bundled, window: Window, place: Place) -> str:
    """Bring the pair into a HOLD, each file checked there; -> the drafter's directory on the host.

    Raises:
        Pp4Error: what the host refuses; ``DIGEST_MISMATCH``: a file changed here meanwhile.
    """
    for name, digest in pair.files:
        source = str(pair.directory / name)
        target = posixpath.join(_THERE, name)
        bring(window, place, Brought(source=source, target=target, sha256=digest))
    return posixpath.join(window.granted.work, _THERE, _DRAFTER)
