"""Pages about the command line, the machine, processes and time."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NOTHING = "Nothing: no file was written and no process was started."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.USAGE,
        "The command line names an option, a value or a code that does not exist.",
        _NOTHING,
        "Read `pp4 COMMAND --help` and type the command again.",
    ),
    (
        Code.BAD_SETTING,
        "A variable of the environment that belongs to pp4, or a setting of a worker, holds a "
        "value without a meaning, or names a directory that will not do.",
        _NOTHING,
        "Correct or unset what the message names.",
    ),
    (
        Code.UNREADABLE,
        "The path is missing, not permitted, or no regular file: a directory, pipe or device.",
        "Nothing; pipes and devices are recognised by type and are not read from.",
        "Check the path and its permissions; give the receipt's file itself.",
    ),
    (
        Code.UNWRITABLE,
        "A file could not be created, filled or flushed to disk: no space, no permission, no "
        "such directory, or a file system without hard links.",
        "No receipt and no temporary file. A run whose receipt was not stored has no result.",
        "Make room or choose another directory, then run the command again.",
    ),
    (
        Code.EXISTS,
        "A file of that name is there already, and receipts are never written over.",
        "The existing file, unchanged.",
        "Choose another name or directory, or move the old receipt away yourself.",
    ),
    (
        Code.MISSING_PACKAGE,
        "A Python package that this command needs is not installed, such as torch or triton.",
        _NOTHING,
        "Install the extra that the message names, e.g. `pip install 'pp4[gpu]'`.",
    ),
    (
        Code.NO_GPU_PAIR,
        "This machine does not have two GPUs that can reach each other's memory.",
        _NOTHING,
        "See `pp4 doctor` for what is there; rehearse with `pp4 pair-qualify --dry-run`.",
    ),
    (
        Code.INTERRUPTED,
        "The run was stopped by Ctrl-C or a signal before it ended.",
        "Processes of the run were ended; no receipt claims a result.",
        "Run the command again. If the exit code was 6, see `pp4 explain SURVIVOR` first.",
    ),
    (
        Code.INTERNAL,
        "pp4 itself failed in a way that nobody foresaw. No result may be drawn from it.",
        "Nothing (exit 1) where the command had started nothing; otherwise not known (exit 6).",
        "Set PP4_DEBUG=1, run again and report the traceback.",
    ),
    (
        Code.RANK_DIED,
        "One of the two rank processes ended although nobody had asked it to.",
        "The other rank is ended as well; memory of the pair is given back.",
        "Read the last lines of the rank in the message; look for memory shortage or a driver "
        "fault, then run again.",
    ),
    (
        Code.STEP_TIMEOUT,
        "A step did not end within the limit that the plan gives it.",
        "The step's processes were ended; whatever it had computed is discarded.",
        "Compare elapsed time and limit in the message. An overloaded machine needs quiet, "
        "a hanging step needs its gate looked at.",
    ),
    (
        Code.BAD_FRAME,
        "A message between processes was too long, cut off, of another version or malformed.",
        "The connection is closed and the processes behind it are ended.",
        "Make sure that both ends run the same source; then run again.",
    ),
    (
        Code.SURVIVOR,
        "A process that belongs to the run could not be proven dead.",
        "That process, named by id and start token; its GPUs count as unsafe.",
        "Wait for it or end it by id, check that the GPU is idle, and only then run again.",
    ),
)
