"""Help of the commands that qualify."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

_DUTY: Final = "launch/windows/PP4-COORDINATOR.md"

HELP: Final[dict[str, Help]] = {
    "pair-qualify": Help(
        short="Two GPUs of one host, in a HOLD: the gates",
        needs="with --dry-run, the extra pp4[gpu] (torch, Triton) on Linux and no GPU. With "
        "--hold local, two GPUs of this machine that reach each other, free of other work. With "
        "--hold FILE, the same on the host of that file, reached over SSH, and Python with pp4's "
        "packages there. Scope full needs both receipts of pp4 solo-qualify, of these GPUs.",
        leaves="one receipt, written once the HOLD is closed: qualification-ID.json and its "
        "tombstone, or rehearsal-ID.json, which opens nothing. On the host a closed HOLD, risen "
        "fences and compiled kernels; both GPUs are free again and restore commands have run.",
        examples=(
            "pp4 pair-qualify --dry-run --out rehearsal",
            "pp4 pair-qualify --hold local --soak 10",
            "pp4 pair-qualify --hold hold.toml --solo solo.json",
            "pp4 pair-qualify --hold hold.toml --dry-run-device --out rehearsal",
        ),
        exits={
            Exit.DONE: "qualified, or rehearsed; the receipt says which",
            Exit.WRONG: "an arm did not come out as it has to: this pair is not to be used",
            Exit.INCONCLUSIVE: "nothing failed, and not every arm was run",
            Exit.TIMEOUT: "",
            Exit.UNCLEAN: "",
        },
        see=("pp4 solo-qualify", "pp4 verify-receipt", "pp4 hold status", _DUTY),
    ),
    "solo-qualify": Help(
        short="One GPU: numerics, graphs and a whole worker",
        needs="one GPU that nothing else uses, here or on the host of a HOLD file, and the extra "
        "pp4[gpu] there.",
        leaves="two receipts: solo-ID.json and whole_worker-ID.json, the references that a pair "
        "of the same GPUs, driver, libraries and source is held to. The GPU is free again.",
        examples=(
            "pp4 solo-qualify",
            "pp4 solo-qualify --gpu 1 --out receipts-here",
            "pp4 solo-qualify --hold hold.toml --checkpoint /models/drafter",
        ),
        exits={
            Exit.WRONG: "an arm did not come out as it has to",
            Exit.INCONCLUSIVE: "nothing failed, and not every arm was run",
            Exit.TIMEOUT: "",
            Exit.UNCLEAN: "",
        },
        see=("pp4 pair-qualify", "pp4 verify-receipt", "docs/receipts.md"),
    ),
    "doctor": Help(
        short="What this machine can do, and how to mend the rest",
        needs="nothing.",
        leaves="nothing: it only looks.",
        examples=("pp4 doctor", "pp4 doctor --strict", "pp4 doctor --json"),
        exits={
            Exit.DONE: "looked; without --strict whatever is missing",
            Exit.REFUSED: "with --strict: something is missing or doubtful",
        },
        see=("pp4 pair-qualify --dry-run", "pp4 host init"),
    ),
}
