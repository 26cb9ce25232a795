"""Pages about drafters: their checkpoints, and the features that are kept for requests."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.BAD_CHECKPOINT,
        "A drafter's checkpoint is not what its config says: a tensor is missing, unexpected, "
        "misshapen, of another type, cut off or not finite; a key of config.json is missing or "
        "makes no sense; a file is pickled, or lies outside of the directory.",
        "Nothing: headers are held against the config before a tensor is read, and nothing is "
        "ever unpickled.",
        "The message names the first of them and how many more there are. Fetch the checkpoint "
        "again, or write it again where it was made; 'pp4 drafter inspect' looks without loading.",
    ),
    (
        Code.UNSUPPORTED_CHECKPOINT,
        "A sound checkpoint of a drafter that pp4 has no code for: a gated or rnn Markov head or "
        "none, a backbone that is not of the Qwen3 family, sliding windows, a quantized one, a "
        "block that starts after its anchor.",
        "Nothing was loaded.",
        "Use a DSpark checkpoint with a vanilla Markov head in BF16; docs/drafter.md says which.",
    ),
    (
        Code.CACHE_FULL,
        "There is no room for features: every slot of the cache belongs to a live request, or the "
        "request has reached the context limit.",
        "The requests that are live, unchanged: none is ever evicted for another.",
        "Close a request that has ended, or start with more slots or a longer context.",
    ),
)
