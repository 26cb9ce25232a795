"""Who races: names, in the order of the run, and what each needs.  No torch is imported here."""

from dataclasses import dataclass

SOLO, PAIR = "solo", "pair"
DEPTH = 5
"""Positions of a chain."""


@dataclass(frozen=True)
class Entry:
    """A contender's line.

    ``seats``: one GPU or both; ``path``: module and class; ``what``: a word for the table.
    """

    name: str
    seats: str
    path: str
    what: str


# What the targets compare stands first, so that a short budget is spent on it.
FIELD = (
    Entry("pp4_pair", PAIR, "ours:Pair", "pp4, both GPUs, symmetric memory"),
    Entry("nccl_topk", PAIR, "paired:TopK", "torch top-k, all-gather of 32, top-k of 64, draw"),
    Entry("pp4_solo", SOLO, "ours:Solo", "pp4, both shards on one GPU"),
    Entry("flashinfer_topk", SOLO, "libraries:TopK", "FlashInfer top_k, softmax, sample"),
    Entry("flashinfer_logits", SOLO, "libraries:Logits", "FlashInfer top_k_top_p from logits"),
    Entry("nccl_gather", PAIR, "paired:Gather", "all-gather of full logits, top-k, draw"),
    Entry("nccl_argmax", PAIR, "paired:Argmax", "T = 0: argmax by blocks, gather of 2 words"),
    Entry("torch_topk", SOLO, "contenders:TopK", "torch top-k, softmax, draw"),
    Entry("argmax", SOLO, "contenders:Argmax", "T = 0: argmax by blocks"),
    Entry(
        "torch_softmax", SOLO, "contenders:FullSoftmax", "torch softmax of all, exponential race"
    ),
    Entry("empty", SOLO, "contenders:Empty", "five empty kernels, the floor of launches"),
    Entry("torch_compile", SOLO, "contenders:Compiled", "torch_topk by torch.compile"),
)
BY_NAME = {entry.name: entry for entry in FIELD}
FLASHINFER = ("flashinfer_topk", "flashinfer_logits")
