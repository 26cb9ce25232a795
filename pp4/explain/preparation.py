"""Pages about staging a runner tree."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NO_OUTPUT: Final = "Nothing at --out; what was built beside it is taken away."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.BAD_MANIFEST,
        "A manifest of `pp4 prepare` is unreadable, no TOML, has a key that is missing, "
        "unknown or of another form, or contradicts itself: two edits of one name, a package "
        "within another.",
        "Nothing: a manifest is judged before the tree is looked at.",
        "Correct the key that the message names; docs/prepare.md lists all of them.",
    ),
    (
        Code.BAD_TREE,
        "A tree holds what cannot be staged the same way on every machine: a name that is not "
        "UTF-8, two names that differ only in case, a link that is absolute, leaves the tree or "
        "ends nowhere, a pipe, socket or device, or more files than a receipt can list.",
        _NO_OUTPUT,
        "Take what the message names out of the tree, or rename it, and have the tree reviewed "
        "again: its sha256 is another one then.",
    ),
    (
        Code.NOT_REVIEWED,
        "A file or a tree is not the one that the manifest pins: its sha256 is another one, or it "
        "is not there. Both are in the message.",
        _NO_OUTPUT,
        "Fetch the reviewed tree. If the new one was reviewed, pin its sha256 in the manifest.",
    ),
    (
        Code.NOT_ONCE,
        "A package or a passage that is to be replaced was not found exactly once, at the place "
        "that the manifest names. The message lists every place that was found.",
        _NO_OUTPUT,
        "Look at the places: a second copy would go on being imported. Correct the tree or the "
        "manifest.",
    ),
    (
        Code.GUARD_CHANGED,
        "A guard that has to remain is gone, doubled, weakened, moved, or could be passed by, in "
        "the tree before or after its edits. docs/prepare.md says what counts as a guard.",
        _NO_OUTPUT,
        "Restore the guard at the place that the message names, in exactly the reviewed form.",
    ),
    (
        Code.SWITCH_SET,
        "A file of the tree sets a switch of the sampled path to something other than 0, or cannot "
        "be read well enough to say that it does not. The switches are a person's to set.",
        _NO_OUTPUT,
        "Take the assignment out of the file and line that the message names, or set it to 0.",
    ),
)
