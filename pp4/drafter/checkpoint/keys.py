"""Reads the keys of a config one by one and collects what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from pp4.drafter.checkpoint.problems import Problem, shown

_MISSING: Final = object()
LARGEST: Final = (1 << 31) - 1
"""Largest number that a config may give for a size."""


class Keys:
    """A config's object, or one inside it; each reader gives a value that fits or a stand-in.

    Args:
        tree: the object.
        inside: what it is, as problems name it.
        problems: where to put what is wrong; unsupported values go to ``unsupported``.
        unsupported: likewise for values that are sound, but that pp4 has no code for.
    """

    def __init__(
        self,
        tree: Mapping[str, Any],
        *,
        inside: str = "config.json",
        problems: list[Problem],
        unsupported: list[Problem],
    ) -> None:
        self._tree, self._inside = tree, inside
        self.problems, self.unsupported = problems, unsupported

    def has(self, key: str) -> bool:
        """Whether the key is there and is not null."""
        return self._tree.get(key) is not None

    def zero(self, key: str) -> bool:
        """Whether the key holds the integer 0."""
        value = self._tree.get(key)
        return type(value) is int and value == 0

    def under(self, key: str) -> Keys:
        """The object under a key; an empty one, noted, where there is none."""
        tree = self._tree.get(key, _MISSING)
        if not isinstance(tree, dict):
            self._note(key, "an object", tree)
            tree = {}
        return Keys(
            tree,
            inside=self._path(key),
            problems=self.problems,
            unsupported=self.unsupported,
        )

    def integer(self, key: str, least: int = 1, most: int = LARGEST) -> int:
        """An integer between two bounds; ``least`` stands in."""
        value = self._tree.get(key, _MISSING)
        if type(value) is int and least <= value <= most:
            return value
        self._note(key, f"an integer from {least} to {most}", value)
        return least

    def real(self, key: str) -> float:
        """A finite number above zero; 1 stands in."""
        value = self._tree.get(key, _MISSING)
        if type(value) in (int, float) and 0 < value <= LARGEST and isfinite(value):
            return float(value)
        self._note(key, f"a number above 0, at most {LARGEST}", value)
        return 1.0

    def truth(self, key: str, default: bool | None = None) -> bool:
        """A truth value; without a default the key has to be there, and false stands in."""
        value = self._tree.get(key, _MISSING)
        if value is _MISSING and default is not None:
            return default
        if isinstance(value, bool):
            return value
        self._note(key, "true or false", value)
        return bool(default)

    def rising(self, key: str, least: int) -> tuple[int, ...]:
        """A nonempty list of rising integers from ``least``; a list of that one stands in."""
        value = self._tree.get(key, _MISSING)
        fits = isinstance(value, list) and bool(value) and all(type(one) is int for one in value)
        if fits and value == sorted(set(value)) and least <= value[0] and value[-1] <= LARGEST:
            return tuple(value)
        self._note(key, f"a list of rising layers from {least}", value)
        return (least,)

    def words(self, key: str) -> tuple[str, ...] | None:
        """A list of words; None where there is none, which is noted unless the key is absent."""
        value = self._tree.get(key)
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        if value is not None:
            self._note(key, "a list of words", value)
        return None

    def only(self, key: str, *allowed: Any, default: Any = None) -> None:
        """Note a value that is none of those that there is code for; an absent one is fine."""
        value = self._tree.get(key, default)
        if value is not default and not any(value is one or value == one for one in allowed):
            words = " or ".join(shown(one) for one in allowed) or "no such key"
            self.refuse(key, words, shown(value))

    def needed(self, key: str, *allowed: Any) -> None:
        """As :meth:`only`, and the key has to be there."""
        if key in self._tree:
            self.only(key, *allowed, default=_MISSING)
        else:
            self._note(key, " or ".join(shown(one) for one in allowed), _MISSING)

    def refuse(self, key: str, expected: str, found: str) -> None:
        """Collect what is sound, but not supported."""
        self.unsupported.append(Problem(self._path(key), expected, found))

    def note(self, key: str, expected: str, found: str) -> None:
        """Collect what is wrong with a key."""
        self.problems.append(Problem(self._path(key), expected, found))

    def _note(self, key: str, expected: str, value: Any) -> None:
        self.note(key, expected, "no such key" if value is _MISSING else shown(value))

    def _path(self, key: str) -> str:
        return f"{self._inside}.{key}"
