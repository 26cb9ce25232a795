"""The shape of what ``--help`` says beside the options of a command, and how it is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pp4.errors import Exit

WIDTH: Final = 76
"""Characters of a line of an example: help is 80 wide at most, less a margin and an indent."""
SHORT: Final = 50
"""Characters of a command's line in the list of its group, which has to fit beside the names."""
_MEANS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "done as asked",
    Exit.WRONG: "pp4 itself failed, where it had started nothing",
    Exit.USAGE: "the command line asks for what does not exist; nothing was done",
    Exit.REFUSED: "refused; the lines `left` and `next` say what is there and what to do",
    Exit.INCONCLUSIVE: "inconclusive",
    Exit.TIMEOUT: "a wait, a limit or the lease ran out",
    Exit.UNCLEAN: "something that was started may still run: see pp4 hold status",
    Exit.INTERRUPTED: "ended by Ctrl-C; nothing is left",
    Exit.TERMINATED: "ended by SIGTERM or SIGHUP; nothing is left",
}
_SOME: Final = frozenset({Exit.INCONCLUSIVE, Exit.TIMEOUT, Exit.UNCLEAN})
_ALWAYS: Final = frozenset(_MEANS) - _SOME
"""What any command can end with, if only because a setting is bad or somebody presses Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Help:
    """What a person needs to know of a command before it is run.

    Attributes:
        short: its line in the list of commands, at most :data:`SHORT` characters.
        needs: what has to be there first.
        leaves: what is there afterwards that was not before.
        examples: lines of a shell that can be typed, at most :data:`WIDTH` characters each; one
            that is longer goes on in the next after a backslash.
        exits: exit codes that it can end with, beside those that any command can, and what they
            mean here; an empty text stands for what a code means everywhere.
        see: commands and pages to go on with.
    """

    short: str
    needs: str
    leaves: str
    examples: tuple[str, ...]
    exits: Mapping[Exit, str]
    see: tuple[str, ...]

    @property
    def epilog(self) -> str:
        """What stands below the options: paragraphs for a formatter that fills lines."""
        codes = sorted(_ALWAYS | self.exits.keys())
        ends = [f"  {code.value:<3}  {self.exits.get(code) or _MEANS[code]}" for code in codes]
        return "\n\n".join(
            [
                f"Needs: {self.needs}",
                f"Leaves: {self.leaves}",
                _as_it_stands("Examples:", *(f"  {line}" for line in self.lines)),
                _as_it_stands("Exit codes:", *ends),
                f"See also: {', '.join(self.see)}",
            ]
        )

    @property
    def lines(self) -> list[str]:
        """The examples, line by line."""
        return [line for example in self.examples for line in example.splitlines()]


def _as_it_stands(*lines: str) -> str:
    """A paragraph whose lines are kept, which the formatter knows by its first."""
    return "\n".join(["\b", *lines])
