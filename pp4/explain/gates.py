"""Pages about kernels, priming and what the gates find."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_STICKY = "The error word stays set and the whole reply is discarded."
_STOPPED = "The run ends with a receipt that says so; processes of both ranks were ended."
_NO_LAUNCH = "Nothing was launched."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.EMPTY_ROW,
        "No token of the whole vocabulary has a finite logit in this row, on either rank.",
        _STICKY,
        "Look for a mask that forbids everything; then start a fresh worker.",
    ),
    (
        Code.BAD_LOGITS,
        "A row of logits holds NaN or plus infinity: of a drafter, on a rank, or of the "
        "target that an engine verifies with.",
        f"{_STICKY} The peer was told in the same exchange. An engine emits nothing of that "
        "step and does not go on.",
        "Find where the forward leaves the finite range; then start a fresh worker.",
    ),
    (
        Code.PEER_TIMEOUT,
        "The other rank did not answer within the bounded wait of the kernel.",
        f"{_STICKY} Both ranks know.",
        "Check that the peer process lives and its GPU works; then start a fresh worker.",
    ),
    (
        Code.PROTOCOL,
        "A rank saw an epoch from the future or a candidate that cannot exist.",
        f"{_STICKY} The peer memory must not be used again.",
        "Two writers on one workspace, or mixed versions, look like this; restart both ranks.",
    ),
    (
        Code.EPOCH_EXHAUSTED,
        "The range of epochs of a rendezvous is used up; it never wraps around.",
        f"{_STICKY} Nothing was sent.",
        "Start a fresh worker, which makes a new rendezvous.",
    ),
    (
        Code.BAD_INPUT,
        "A value that was given to a command or to an operation is outside of its domain: a "
        "tensor's shape, type or device, a node of a fleet, a size, a value within a held-out "
        "file, a bound.",
        f"{_NO_LAUNCH} No file was written.",
        "Correct the argument that the message names.",
    ),
    (
        Code.UNSUPPORTED_HEAD_MODE,
        "Sampled drafting was asked of a native, partial-rank, margin or traced head execution.",
        f"{_NO_LAUNCH} The original path is untouched.",
        "Switch the sampled path off for this mode of execution.",
    ),
    (
        Code.MISSING_GRAPH,
        "A block was asked for in a batch size or output count for which the original selector has "
        "no captured graph.",
        f"{_NO_LAUNCH} No reply was made.",
        "Pad the batch to a captured size, or capture this one at start-up.",
    ),
    (
        Code.MISSING_SAMPLED_GRAPH,
        "A worker with graphs has no sampled graph for this batch, k and output count, and "
        "running without a graph is not an answer.",
        f"{_NO_LAUNCH} No reply was made.",
        "Capture that shape at start-up or keep requests to captured shapes.",
    ),
    (
        Code.UNPRIMED,
        "Something was asked of kernels that are not compiled and loaded on both ranks yet: a "
        "launch, a capture, or a draft of a worker that has not come up.",
        f"{_NO_LAUNCH} A capture was given up.",
        "Prime both ranks first. Of a worker wait until `pp4 worker status` says that it serves.",
    ),
    (
        Code.COMPILED_AFTER_PRIMING,
        "Something was compiled after priming had ended, while a peer could have been waiting.",
        _STOPPED,
        "The message names the kernel and its key; prime that specialisation too.",
    ),
    (
        Code.LAUNCHED_BEFORE_PRIMED,
        "One rank launched before the other had finished compiling and loading.",
        _STOPPED,
        "The host barrier between priming and launch is missing or was passed too early.",
    ),
    (
        Code.KERNELS_DIFFER,
        "Compiled kernels have other digests than they have to have: the two ranks differ "
        "although nothing in the code depends on rank, or a worker's differ from those of the "
        "archived receipt.",
        f"{_STOPPED} A worker does not come up.",
        "Look for a run-time value that became a constant, or for different library versions.",
    ),
    (
        Code.OCCUPANCY,
        "As many blocks of the kernel could wait for the peer as the GPU holds at once: two ranks "
        "could each wait for rows that the other has no room to run.",
        f"{_NO_LAUNCH} No rendezvous was made.",
        "Make the largest batch smaller than the number of blocks that the message names.",
    ),
    (
        Code.STICKY,
        "An earlier error of this worker is still set and it refuses to go on; or a pair was "
        "to be started where one runs.",
        "The worker, unusable by design.",
        "Tear it down and start a fresh one; the first error's own page tells the reason.",
    ),
    (
        Code.DEVICE_MISMATCH,
        "The GPUs are not the ones that were named, in number, order or UUID; or a receipt "
        "names one GPU for both ranks.",
        "Nothing ran on them.",
        "Compare the UUIDs of `nvidia-smi -L` with the HOLD file.",
    ),
    (
        Code.LIBRARY_CHANGED,
        "A loaded library has another digest than the one that was admitted, or than at the "
        "start of the run.",
        "Nothing of the gates counts that ran with it.",
        "Restore the library, or qualify again with the new one.",
    ),
    (
        Code.PATTERN_MISMATCH,
        "Bytes written into peer memory were read back differently.",
        _STOPPED,
        "Suspect the link or a GPU's memory; look at the driver's error counters.",
    ),
    (
        Code.OUTPUT_MISMATCH,
        "Ids, q or tokens differ from the reference, a replay of a graph differs from the "
        "eager run, a whole worker from its archived receipt, or a replay of held-out inputs "
        "from what the kernel has to give.",
        "The run ends; a receipt of it, if there is one, says so. Processes of both ranks "
        "were ended.",
        "Nothing may be sampled with this build on this machine; report the arm and its facts.",
    ),
    (
        Code.RANKS_DIFFER,
        "Both ranks ended cleanly with different results for the same position, or with "
        "different lengths of a request's features.",
        f"{_STOPPED} A worker discards the reply and stays failed.",
        "Treat it as a wrong kernel or a wrong link, never as noise.",
    ),
    (
        Code.INCOMPLETE,
        "Something is missing although no error was set: the completion stamp of a row, "
        "blocks or rows of a run, a part of a worker's answer.",
        "The run ends; a receipt of it, if there is one, says so. No output that was "
        "incomplete was used.",
        "A launch ended early or was replayed with a stale epoch; see the gate's facts. A "
        "worker has to be started anew.",
    ),
    (
        Code.PTX_ORDER,
        "The compiled code lacks a barrier or an ordering that the protocol rests on.",
        "Nothing was launched with that code.",
        "Use the compiler version that is pinned; report the version otherwise.",
    ),
    (
        Code.MODEL_VIOLATION,
        "The exhaustive model of the exchange reached a state that must be impossible.",
        "A trace of the steps that lead there.",
        "Read the trace; protocol and model have to be brought together again.",
    ),
    (
        Code.T0_NOT_ARGMAX,
        "A row at temperature 0 gave a token that is not the largest logit, or a q that is not 0.",
        _STOPPED,
        "Check the mask that tells greedy rows from sampled ones.",
    ),
    (
        Code.T0_DREW,
        "A row at temperature 0 consumed a random draw.",
        f"{_STOPPED} Later draws of that request would have shifted.",
        "Check that the random domain is advanced by sampled rows alone.",
    ),
    (
        Code.NEIGHBOUR_CHANGED,
        "A sampled row gave another result when only a neighbour's temperature changed.",
        _STOPPED,
        "Rows share state that they must not share; look at indices of keys and masks.",
    ),
    (
        Code.NOT_ORIGINAL,
        "A batch at temperature 0 throughout did not use the original graph and output objects.",
        _STOPPED,
        "The branch before the original selector is wrong; leave the switch off.",
    ),
    (
        Code.WRONG_ERROR_WORD,
        "A planted fault ended in another error word than the one that belongs to it.",
        _STOPPED,
        "Compare expected and found; the order of precedence is in docs/protocol.md.",
    ),
    (
        Code.WAIT_NOT_BOUNDED,
        "A wait of a kernel ended well before or after the budget that it was given.",
        _STOPPED,
        "Look at the GPU's clock and at what else used the GPU; a kernel that waits beyond its "
        "budget must not serve.",
    ),
    (
        Code.RELEASED_ON_ONE_WORD,
        "A reply was released although only one of the two ranks had reported it clean.",
        "The planted reply, which nobody used.",
        "The owner must see both ranks' words, stamps and digests before it releases.",
    ),
    (
        Code.RELEASED_AFTER_ERROR,
        "A reply came out of a worker that had an error set.",
        "The late reply, discarded by the gate.",
        "The owner has to drop everything from the first error until teardown.",
    ),
    (
        Code.NOT_TORN_DOWN,
        "After an error, or after its end, a process of the pair or its memory was still there.",
        "What the message names; the run counts as unclean.",
        "End the named processes by id and check memory before the next run.",
    ),
    (
        Code.LEAK,
        "Memory or files did not return to the sealed baseline.",
        "The difference that the message states.",
        "Find the owner of the remaining allocation; a restart of the worker frees it.",
    ),
    (
        Code.FAILED_ROUNDS,
        "An arm of a measurement decoded rows without a draft after its baseline was sealed; the "
        "message has the causes. Its times are not those of drafting.",
        "The rounds so far, in a receipt that is not complete and claims nothing.",
        "Look at the worker's log in the HOLD's directory; docs/engine.md explains each cause.",
    ),
    (
        Code.CONTROL_NOT_CAUGHT,
        "A planted fault went through a gate. A gate that misses it proves nothing.",
        "A receipt without a good verdict; every arm of the run is void.",
        "Repair the gate before looking at any other result.",
    ),
    (
        Code.GATE_NOT_RUN,
        "A gate, or the arms that it must have, is missing from the run.",
        "A receipt that cannot be good.",
        "Find the first step that stopped the run; its own code says why.",
    ),
)
