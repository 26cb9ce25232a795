"""Help of the commands that measure, and of those that show receipts."""

from __future__ import annotations

from typing import Final

from pp4.cli.help.page import Help
from pp4.errors import Exit

_REFERENCES: Final = (
    "both receipts of pp4 solo-qualify, made with the drafter that is measured (--checkpoint)"
)
_CUT: Final = (
    "A half that is cut leaves what it has, sealed as not complete; a refusal before contact "
    "leaves a receipt of the refusal."
)
_HALF: Final = {
    Exit.WRONG: "the gates or an arm failed; nothing is claimed",
    Exit.TIMEOUT: "the deadline or the lease ran out; what there is is sealed",
    Exit.UNCLEAN: "",
}

HELP: Final[dict[str, Help]] = {
    "measure budget": Help(
        short="How long a half takes, from a HOLD of its own",
        needs=f"a pair as pp4 pair-qualify does, and {_REFERENCES}. With --dry-run no GPU and no "
        "evidence: the extra pp4[gpu] on Linux.",
        leaves="budget-ID.json and the qualification of the same HOLD. " + _CUT,
        examples=(
            "pp4 measure budget --dry-run",
            "pp4 measure budget --hold local --solo solo.json \\\n    --whole-worker worker.json",
            "pp4 measure budget --hold hold.toml",
        ),
        exits={
            **_HALF,
            Exit.REFUSED: "refused, or the window does not fit into the bound of the HOLD",
        },
        see=("pp4 solo-qualify", "pp4 measure A1B1", "docs/measure.md"),
    ),
    "measure A1B1": Help(
        short="The first half: gates, then OFF, then ON",
        needs=f"a pair that nothing else uses, {_REFERENCES}, and a budget that fits and has not "
        "expired; from the HOLD file's [evidence] or by option. All of it is judged before any "
        "contact.",
        leaves="measurement-ID.json with its tombstone and its file of rounds, and the "
        "qualification of the same HOLD. " + _CUT,
        examples=(
            "pp4 measure A1B1 --dry-run",
            "pp4 measure A1B1 --hold hold.toml --budget budget.json",
        ),
        exits=_HALF,
        see=("pp4 measure B2A2", "pp4 measure seal", "docs/measure.md"),
    ),
    "measure B2A2": Help(
        short="The second half, in a second HOLD: ON, then OFF",
        needs="what the first half needed, and the first half with the tombstone of its HOLD "
        "beside it, restored; the extra pp4[measure] (numpy).",
        leaves="measurement-ID.json with the summary of both halves, its tombstone and its file "
        "of rounds, and the qualification of the same HOLD. " + _CUT,
        examples=(
            "pp4 measure B2A2 --dry-run",
            "pp4 measure B2A2 --hold hold.toml --first A1B1.json",
        ),
        exits={
            **_HALF,
            Exit.DONE: "measured: FASTER, SLOWER or SAME",
            Exit.INCONCLUSIVE: "measured, and UNDECIDED",
        },
        see=("pp4 measure summary", "pp4 report", "docs/measure.md"),
    ),
    "measure summary": Help(
        short="Compute anew what two halves say together",
        needs="the receipts of both halves and the extra pp4[measure] (numpy); no GPU.",
        leaves="nothing: it only reads.",
        examples=(
            "pp4 measure summary A1B1.json B2A2.json",
            "pp4 measure summary A1B1.json B2A2.json --json",
        ),
        exits={
            Exit.DONE: "FASTER, SLOWER or SAME, with the digits that the receipt has",
            Exit.WRONG: "the receipt of the second half has other digits",
            Exit.INCONCLUSIVE: "UNDECIDED",
        },
        see=("pp4 report", "docs/measure.md"),
    ),
    "measure seal": Help(
        short="A receipt of a half whose coordinator was killed",
        needs="its file of rounds, which nobody writes any more.",
        leaves="measurement-ID.json: not complete, without a claim and without a qualification.",
        examples=(
            "pp4 measure seal measurement-ID.rounds.jsonl",
            "pp4 measure seal measurement-ID.rounds.jsonl --out sealed",
        ),
        exits={Exit.DONE: "sealed; it opens nothing"},
        see=("pp4 hold recover", "docs/measure.md"),
    ),
    "report": Help(
        short="Draw receipts: a table here, a page for a browser",
        needs="receipts that verify, and what they rest on where that is to be drawn too. --html "
        "needs the extra pp4[report] (matplotlib, jinja2).",
        leaves="with --html one file that needs nothing else: no script, no network.",
        examples=(
            "pp4 report A1B1.json B2A2.json",
            "pp4 report A1B1.json B2A2.json receipts/*.json --html page.html",
            "pp4 report qualification.json --json",
        ),
        exits={Exit.WRONG: "a receipt does not verify; nothing of it is drawn"},
        see=("pp4 receipts tree", "pp4 measure summary", "docs/report.md"),
    ),
    "receipts table": Help(
        short="Many receipts at a glance, newest first",
        needs="receipts; those kept on this machine where none are named.",
        leaves="nothing: it only reads.",
        examples=("pp4 receipts table", "pp4 receipts table receipts --json"),
        exits={
            Exit.WRONG: "one contradicts itself",
            Exit.REFUSED: "a file is no receipt that will do",
        },
        see=("pp4 status", "pp4 verify-receipt"),
    ),
    "receipts tree": Help(
        short="What receipts rest on, as a tree",
        needs="the receipts, and the directories in which their evidence is looked for.",
        leaves="nothing: it only reads.",
        examples=("pp4 receipts tree B2A2.json receipts", "pp4 receipts tree receipts"),
        exits={
            Exit.WRONG: "a receipt that was found does not verify",
            Exit.INCONCLUSIVE: "a receipt is missing",
        },
        see=("pp4 verify-receipt", "docs/receipts.md"),
    ),
    "receipts export": Help(
        short="A copy for others, without names of machines",
        needs="a receipt that verifies, and a name that no file has yet.",
        leaves="the copy. With --redact host names, UUIDs and PCI ids are blacked out; its digest "
        "stays, its file hash does not.",
        examples=(
            "pp4 receipts export --redact receipt.json --out for-others.json",
            "pp4 receipts export receipt.json --out copy.json --json",
        ),
        exits={Exit.WRONG: "the receipt does not verify"},
        see=("pp4 verify-receipt", "docs/receipts.md"),
    ),
}
