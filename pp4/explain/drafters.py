"""Pages about drafters: their checkpoints, features of requests, and the sockets of workers."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.BAD_CHECKPOINT,
        "A checkpoint, of a drafter or of its target, is not what its config says: a tensor "
        "is missing, unexpected, misshapen, of another type, cut off or not finite; a key of "
        "config.json is missing or makes no sense; a file is pickled, or lies outside of the "
        "directory.",
        "Nothing: headers are held against the config before a tensor is read, and nothing is "
        "ever unpickled.",
        "The message names the first of them and how many more there are. Fetch the "
        "checkpoint again, or write it again where it was made; `pp4 drafter inspect DIR` "
        "looks without loading.",
    ),
    (
        Code.UNSUPPORTED_CHECKPOINT,
        "A sound checkpoint that pp4 has no code for. Of a drafter: a gated or rnn Markov "
        "head or none, a backbone that is not of the Qwen3 family, sliding windows, a "
        "quantized one, a block that starts after its anchor, a depth that cannot be sampled. "
        "Of a target: another family. No worker and no held-out file is made of such a one.",
        "Nothing was loaded.",
        "Use a DSpark checkpoint with a vanilla Markov head in BF16; docs/drafter.md says "
        "which, docs/engine.md which targets. A drafter whose depths cannot be sampled still "
        "drafts with the switch off.",
    ),
    (
        Code.CACHE_FULL,
        "There is no room for features: every slot of the cache belongs to a live request, or the "
        "request has reached the context limit.",
        "The requests that are live, unchanged: none is ever evicted for another.",
        "Close a request that has ended, or start with more slots or a longer context.",
    ),
    (
        Code.PEER_USER,
        "The other end of a worker's Unix socket belongs to another user. A worker serves the user "
        "who started it and nobody else, not even root.",
        "Nothing: the connection was closed before anything was read from it.",
        "Run client and worker as the same user.",
    ),
    (
        Code.WORKER_FULL,
        "The worker serves as many connections as it may.",
        "Nothing of this connection; the others go on.",
        "Close a connection that is not needed, or send several requests over one: it takes many.",
    ),
    (
        Code.BAD_PROPOSAL,
        "A worker's reply breaks the definition of a proposal, or belongs to no draft that "
        "was asked for. The message names the check: a sound worker sends nothing of the "
        "kind.",
        "Nothing was drawn from the reply; the engine decodes that step without a draft.",
        "Switch sampled drafting off, keep the message, and qualify the worker's GPUs again.",
    ),
    (
        Code.ABI_MISMATCH,
        "A worker does not offer what an engine was set up for: the meaning of replies, the "
        "numerical definition, its temperature or number of candidates, the depth, the vocabulary, "
        "or the width of features. The message names everything that differs, with both values.",
        "The connection; no draft was asked for.",
        "Serve the drafter that was made for the engine's target, with the pp4 that the engine "
        "has; or set the engine up for the worker that there is.",
    ),
)
