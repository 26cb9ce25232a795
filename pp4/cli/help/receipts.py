"""Help of the commands that read receipts, and of codes."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

HELP: Final[dict[str, Help]] = {
    "verify-receipt": Help(
        short="What a receipt proves, and what it does not",
        needs="the files of the receipts, and of those that they rest on where these are to be "
        "checked too; no GPU, no torch, no network. Signatures need ssh-keygen.",
        leaves="nothing: it only reads.",
        examples=(
            "pp4 verify-receipt --kind rehearsal rehearsal/*.json",
            "pp4 verify-receipt --history receipts/*.json",
            "pp4 verify-receipt --max-age 90d --allowed-signers keys qualification.json",
            "pp4 verify-receipt staged/verifier-k1-receipt.json --tree staged",
        ),
        exits={
            Exit.DONE: "no check failed",
            Exit.WRONG: "a receipt was changed, or contradicts itself or its evidence",
            Exit.REFUSED: "no receipt that will do: unreadable, of another kind, too old",
        },
        see=("pp4 explain CODE", "pp4 gate", "docs/receipts.md"),
    ),
    "explain": Help(
        short="A code of a refusal: cause, what is left, way out",
        needs="nothing.",
        leaves="nothing.",
        examples=("pp4 explain", "pp4 explain HELD_BY", "pp4 explain not_canonical --json"),
        exits={},
        see=("pp4 doctor", "pp4 hold status", "launch/windows/PP4-COORDINATOR.md"),
    ),
    "gate": Help(
        short="May a worker with the switch on start here?",
        needs="a qualification's file and the pair of GPUs that it is about, in this machine: its "
        "GPUs, libraries and kernels are looked at under the locks of the pair.",
        leaves="nothing. A service manager can have it run first (launch/pp4-worker.service).",
        examples=(
            "pp4 gate qualification.json",
            "pp4 gate qualification.json --max-age 30d --same-boot",
        ),
        exits={
            Exit.DONE: "it may",
            Exit.REFUSED: "it may not; everything against it is listed",
            Exit.TIMEOUT: "",
        },
        see=("pp4 status", "pp4 pair-qualify", "docs/receipts.md"),
    ),
    "status": Help(
        short="What this machine is qualified for",
        needs="nothing; without receipts there is nothing to judge. With some, its GPUs are "
        "looked at as by pp4 gate.",
        leaves="nothing.",
        examples=("pp4 status", "pp4 status receipts --same-boot", "pp4 status --json"),
        exits={
            Exit.DONE: "a qualification stands",
            Exit.REFUSED: "none does; what ended each is listed",
        },
        see=("pp4 gate", "pp4 verify-receipt"),
    ),
    "prepare": Help(
        short="Stage a reviewed runner tree for an experiment",
        needs="a manifest, the reviewed tree whose sha256 it pins, and a directory that does not "
        "exist yet.",
        leaves="the staged tree with verifier-k1-receipt.json in it; after a refusal nothing.",
        examples=(
            "pp4 prepare launch/manifests/runner.toml --out staged",
            "pp4 prepare manifest.toml --source reviewed --out staged",
        ),
        exits={
            Exit.WRONG: "the disk gave back other bytes than were written",
            Exit.REFUSED: "not the reviewed tree, or a change that does not apply once",
        },
        see=("pp4 verify-receipt --tree", "docs/prepare.md"),
    ),
}
