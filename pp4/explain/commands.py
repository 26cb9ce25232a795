"""Pages about the command line, the machine, processes and time."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_NOTHING = "Nothing: no file was written and no process was started."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.USAGE,
        "The command line names a command, an option, a value or a code that does not exist, "
        "leaves out one that is needed, or puts together what excludes each other.",
        _NOTHING,
        "Type it again with what the message expects. The same command with `--help` has its "
        "options and examples; `pp4 --help` lists all commands, `pp4 explain` all codes.",
    ),
    (
        Code.BAD_SETTING,
        "A setting has no meaning here: a variable of the environment, such as "
        "CUDA_VISIBLE_DEVICES with numbers that leave a GPU out; a directory of pp4 that is "
        "relative or on a network file system; a socket, an address beyond loopback or a port "
        "that is taken, of a worker; a solo worker with the switch on, which no qualification "
        "is about.",
        _NOTHING,
        "Correct or unset what the message names, then run the command again; `pp4 doctor` "
        "shows the directories that are used.",
    ),
    (
        Code.UNREADABLE,
        "Something that has to be read or started is not there, not permitted or not what it "
        "has to be: a file that is a directory, pipe or device; a directory of receipts (of a "
        "fleet, of an archive) or of a checkpoint; a tree that is to be staged; a held-out "
        "file that is cut off; a record of a HOLD that pp4 has not written; an interpreter or "
        "program that does not start.",
        "Nothing of its own: pipes and devices are recognised by type and are not read from. "
        "A record that cannot be read is left as it is, and so is the HOLD that it belongs "
        "to.",
        "Check the path and its permissions, and give the file itself. For a record of a HOLD "
        "see `pp4 hold status`; restore it from a copy, and never write one by hand.",
    ),
    (
        Code.UNWRITABLE,
        "Something could not be created, filled or flushed to disk: a receipt, a plan, a "
        "staged tree, a checkpoint, a journal, a socket, a peer's workspace, the code on a "
        "receiving host or standard output. No space, no permission, no such directory, a "
        "file system without hard links; or only the administrator may do it.",
        "No half of a file and no temporary one, unless `left` names it. A run whose receipt "
        "was not stored has no result. With exit 6 a journal of a HOLD broke off: what the "
        "HOLD started is ended by its host.",
        "Make room or choose another directory, then run the command again; after exit 6 look "
        "with `pp4 hold status` first.",
    ),
    (
        Code.EXISTS,
        "Something of that name is there already and is never written over: a receipt, a "
        "plan, a HOLD file, a held-out file, a checkpoint, a staged tree, a directory of "
        "scripts, a file that was brought to a host. Or a name is taken: a socket on which a "
        "worker listens, or which is no socket; the label of a step; a close that is kept for "
        "the same HOLD under another fence.",
        "What is there, unchanged.",
        "Choose another name or directory, or move what is there away yourself. `pp4 worker "
        "status` says what listens on a socket.",
    ),
    (
        Code.MISSING_PACKAGE,
        "A Python package that this command needs is not installed, such as torch or triton "
        "for a run, safetensors for a checkpoint or a held-out file, nvidia-ml-py for GPUs: "
        "here, or in the Python of the receiving host where the message names that host.",
        _NOTHING,
        "Install the extra that the message names, `pip install 'pp4[gpu]'`, in the Python "
        "that runs pp4 there; `pp4 doctor` on that machine shows what is missing.",
    ),
    (
        Code.NO_GPU_PAIR,
        "The GPUs that were asked for are not there: no driver that answers, fewer than are "
        "needed, none of the name that was given or several, one that is cut into slices, or "
        "two that may not read and write each other's memory.",
        _NOTHING,
        "See `pp4 doctor` and `nvidia-smi -L` for what is there; rehearse without any with "
        "`pp4 pair-qualify --dry-run`. One GPU is enough for `pp4 solo-qualify`.",
    ),
    (
        Code.INTERRUPTED,
        "The run was stopped before it ended: Ctrl-C, a signal, or a close of its HOLD that "
        "somebody asked for. A worker says it of requests that it gives up because it ends, "
        "or because nobody waits for them any more.",
        "Processes of the run were ended; no receipt claims a result. A second Ctrl-C cuts "
        "this short: exit 6, and the host closes by itself when the lease has run out.",
        "Run the command again. If the exit code was 6, see `pp4 explain SURVIVOR` first.",
    ),
    (
        Code.INTERNAL,
        "pp4 itself, or a library under it, failed in a way that nobody foresaw. No result "
        "may be drawn from it. In a check of a receipt it means that the check did not come "
        "to an end, so the receipt is not accepted.",
        "Nothing (exit 1) where the command had started nothing; otherwise not known (exit 6).",
        "Set PP4_DEBUG=1, run again and report the traceback; after exit 6 look with `pp4 "
        "hold status` first.",
    ),
    (
        Code.RANK_DIED,
        "A process that runs a rank, or another one that answers for a run, ended or closed "
        "its stream although nobody had asked it to.",
        "Its partner is ended as well and memory of the pair is given back. A worker discards "
        "the reply and stays failed; a run has an arm that failed, or no receipt if no rank "
        "ever spoke.",
        "Read the last lines of the process in the message; look for memory shortage or a "
        "driver fault, then run again. A worker has to be started anew.",
    ),
    (
        Code.STEP_TIMEOUT,
        "A wait on the host ran out: a step of a plan, an answer of a rank, a worker, a "
        "supervisor or another process of this machine, a compilation, or a worker that did "
        "not come up.",
        "A step's processes were ended and whatever they had computed is discarded. Where a "
        "host or a worker did not answer, what became of it is not known; `left` says what "
        "may still be there.",
        "Compare elapsed time and limit in the message. An overloaded machine needs quiet, a "
        "hanging step needs its gate looked at; of a HOLD `pp4 hold status` tells, of a "
        "worker `pp4 worker status`.",
    ),
    (
        Code.BAD_FRAME,
        "A message between processes or hosts was too long, cut off, of another version, "
        "malformed, or not one that belongs there: an unknown verb, facts without their "
        "members, an answer of a worker or of a host to another question or about another "
        "HOLD.",
        "The connection is closed; nothing is believed of what came over it. Processes behind "
        "it are ended, and a HOLD closes at the end of its lease.",
        "Make sure that both ends run the same source (a socket may belong to another pp4); "
        "then run again. Report it if they do.",
    ),
    (
        Code.SURVIVOR,
        "A process that belongs to the run could not be proven dead; or the kernel gives no "
        "way to prove it later, or a step named a process that is not its own, so nothing was "
        "started.",
        "With exit 6: that process, named by id and start token; its GPUs count as unsafe. "
        "With exit 3: nothing.",
        "Wait for it or end it by id, and check that the GPU is idle. If it was in a HOLD, "
        "see `pp4 hold status` and follow the recovery of launch/windows/PP4-COORDINATOR.md. "
        "Only then run again.",
    ),
)
