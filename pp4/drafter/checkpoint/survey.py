"""Holds a whole checkpoint against its config, before anything of it is loaded."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pp4.drafter.checkpoint.bundle import Bundle, read_bundle
from pp4.drafter.checkpoint.configs import read_config
from pp4.drafter.checkpoint.headers import Entry
from pp4.drafter.checkpoint.lent import missing, read_lent
from pp4.drafter.checkpoint.problems import Problem, refused, shown
from pp4.drafter.checkpoint.tensors import MAP, Wanted, wanted
from pp4.drafter.config import DrafterConfig


@dataclass(frozen=True, slots=True)
class Survey:
    """A checkpoint that is what its config says.

    Attributes:
        path: its directory.
        config: what it is.
        tensors: what the config calls for and the files have, in order of use.
        entries: where each of them lies.
        token_map: emitted id per draft id, strictly rising; None where the ids are the same.
    """

    path: Path
    config: DrafterConfig
    tensors: Mapping[str, Wanted]
    entries: Mapping[str, Entry]
    token_map: tuple[int, ...] | None


def survey(path: Path, target: Path | None = None) -> Survey:
    """Look at a checkpoint's config and headers; its values are not read, but for the token map.

    Args:
        path: directory with ``config.json`` and safetensors.
        target: directory of the target's checkpoint, for what the drafter's leaves to it.

    Raises:
        RefusedError: ``UNREADABLE``, ``BAD_CHECKPOINT`` or ``UNSUPPORTED_CHECKPOINT``; the first
            thing that is wrong, and how many more there are.
    """
    bundle = read_bundle(path)
    config = read_config(path)
    calls = wanted(config)
    entries = {**bundle.entries, **_borrowed(bundle, calls, target)}
    problems = misfits(bundle, calls, entries, target)
    if problems:
        raise refused(path, problems)
    present = {name: one for name, one in calls.items() if name in entries}
    token_map = _token_map(path, entries[MAP], config.vocab) if config.mapped else None
    return Survey(path, config, present, {name: entries[name] for name in present}, token_map)


def misfits(
    bundle: Bundle,
    calls: Mapping[str, Wanted],
    entries: Mapping[str, Entry],
    target: Path | None = None,
) -> list[Problem]:
    """Hold tensors against what a config calls for.

    Args:
        bundle: what the headers say; its own problems come first.
        calls: what the config calls for, by name.
        entries: the bundle's tensors and what was borrowed for it.
        target: where was looked for what may be left to the target.

    Returns:
        What is missing, unexpected, misshapen or of another type.
    """
    problems = list(bundle.problems)
    blamed = {problem.what for problem in problems}
    unread = any(problem.what in bundle.files for problem in problems)
    problems += [
        _absent(one, target)
        for name, one in calls.items()
        if one.required and not unread and name not in entries and name not in blamed
    ]
    problems += [
        Problem(name, "no such tensor", f"{entry.dtype} {list(entry.shape)}")
        for name, entry in entries.items()
        if name not in calls
    ]
    present = {name: one for name, one in calls.items() if name in entries}
    return problems + [
        wrong for name, one in present.items() if (wrong := _misfit(one, entries[name])) is not None
    ]


def _borrowed(bundle: Bundle, calls: Mapping[str, Wanted], target: Path | None) -> dict[str, Entry]:
    """The target's tensors in place of those that the checkpoint leaves to it."""
    names = [name for name, one in calls.items() if one.lent and name not in bundle.entries]
    lent = read_lent(target) if target and names else {}
    return {name: lent[name] for name in names if name in lent}


def _absent(one: Wanted, target: Path | None) -> Problem:
    if one.lent:
        return missing(one.name, one.shape, target)
    return Problem(one.name, f"{' or '.join(one.dtypes)} {list(one.shape)}", "no such tensor")


def _misfit(one: Wanted, entry: Entry) -> Problem | None:
    if entry.dtype in one.dtypes and entry.shape == one.shape:
        return None
    expected = f"{' or '.join(one.dtypes)} {list(one.shape)}"
    return Problem(one.name, expected, f"{entry.dtype} {list(entry.shape)}")


def _token_map(path: Path, entry: Entry, vocab: int) -> tuple[int, ...]:
    """Read the differences of a reduced vocabulary and return the ids that are emitted.

    Ids have to rise strictly: then ties fall to the lower id in both vocabularies alike.
    """
    try:
        with entry.file.open("rb") as file:
            file.seek(entry.start)
            raw = file.read(entry.bytes)
    except OSError as error:
        found = error.strerror or str(error)
        raise refused(path, [Problem(MAP, "a readable tensor", found)]) from error
    if len(raw) != entry.bytes:
        raise refused(path, [Problem(MAP, f"{entry.bytes} bytes", f"{len(raw)}")])
    words = array("q", raw)
    if sys.byteorder == "big":
        words.byteswap()
    ids = tuple(index + offset for index, offset in enumerate(words))
    if not all(a < b for a, b in pairwise(ids)) or ids[0] < 0 or ids[-1] >= vocab:
        falls = next((f"{a} before {b}" for a, b in pairwise(ids) if a >= b), "")
        found = falls or f"ids from {ids[0]} to {ids[-1]}"
        expected = f"differences that give strictly rising ids below {vocab}"
        raise refused(path, [Problem(MAP, expected, shown(found))])
    return ids
