"""Help of the commands that draft, and of those that look at what drafts."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

HELP: Final[dict[str, Help]] = {
    "worker serve": Help(
        short="Serve drafts of a checkpoint over a socket",
        needs="a drafter's checkpoint and the extra pp4[gpu]; two GPUs that reach each other, one "
        "with --solo, none with --device reference. With DSPARK_SAMPLED_TOP32=1 on GPUs a "
        "qualification of scope full that stands here; without it the greedy selector drafts.",
        leaves="while it serves, a socket that only your user can use; afterwards its directory "
        "of logs, and both ranks proven dead.",
        examples=(
            "pp4 worker serve /models/drafter",
            "pp4 worker serve examples/mini/drafter --device reference \\\n"
            "    --depths 5 --context 512 --socket /tmp/pp4/mini --log text",
            "pp4 worker serve /models/drafter --solo --gpu 1 --metrics-port 9400",
        ),
        exits={
            Exit.DONE: "it was asked to end, by SIGTERM, and has",
            Exit.WRONG: "the ranks had failed",
            Exit.REFUSED: "settings, checkpoint or permission will not do",
            Exit.TIMEOUT: "it did not come up in time",
            Exit.UNCLEAN: "a process of it may still be there",
            Exit.INTERRUPTED: "as 0, by Ctrl-C",
            Exit.TERMINATED: "ended by SIGTERM or SIGHUP before it had begun to start",
        },
        see=("pp4 worker status", "pp4 gate", "docs/worker.md"),
    ),
    "worker status": Help(
        short="How a worker is",
        needs="the socket of a worker of this user; no torch.",
        leaves="nothing.",
        examples=("pp4 worker status", "pp4 worker status /tmp/pp4/mini --json"),
        exits={
            Exit.DONE: "it serves",
            Exit.WRONG: "its ranks have failed",
            Exit.REFUSED: "nobody answers there, or it ends",
            Exit.INCONCLUSIVE: "it is starting",
        },
        see=("pp4 worker serve", "docs/worker.md"),
    ),
    "drafter inspect": Help(
        short="What a checkpoint holds, and which rank gets what",
        needs="a directory with config.json and safetensors files; only headers are read. The "
        "extra pp4[gpu] for safetensors.",
        leaves="nothing.",
        examples=(
            "pp4 drafter inspect examples/mini/drafter",
            "pp4 drafter inspect /models/drafter --target /models/target --json",
        ),
        exits={
            Exit.REFUSED: "no checkpoint that pp4 can draft with",
            Exit.TIMEOUT: "",
        },
        see=("pp4 worker serve", "docs/drafter.md"),
    ),
    "replay run": Help(
        short="Replay a held-out file; the word may be left out",
        needs="a held-out file and the extra pp4[gpu]; no GPU unless --device cuda.",
        leaves="nothing: figures and digests are printed.",
        examples=(
            "pp4 replay examples/mini/heldout.safetensors",
            "pp4 replay examples/mini/heldout.safetensors --part 4 --json",
            "pp4 replay heldout.safetensors --device cuda",
        ),
        exits={
            Exit.WRONG: "other draws than the definition has, or a changed file",
            Exit.TIMEOUT: "",
        },
        see=("pp4 replay make-heldout", "docs/replay.md"),
    ),
    "replay make-heldout": Help(
        short="Make a held-out file of a target and its drafter",
        needs="both checkpoints, a JSON list of documents as token ids that neither was trained "
        "on, and the extra pp4[gpu]; a GPU only with --device cuda.",
        leaves="the file of --out; it must not exist before.",
        examples=(
            "pp4 replay make-heldout --target examples/mini/target \\\n"
            "    --drafter examples/mini/drafter --tokens documents.json \\\n"
            "    --out heldout.safetensors",
            "pp4 replay make-heldout --target /models/target --drafter /models/drafter \\\n"
            "    --tokens documents.json --device cuda --out heldout.safetensors",
        ),
        exits={Exit.TIMEOUT: ""},
        see=("pp4 replay HELDOUT", "docs/replay.md", "examples/mini/README.md"),
    ),
}
