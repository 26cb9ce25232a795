"""Pages about receipts and the evidence that commands ask for."""

from __future__ import annotations

from typing import Final

from pp4.errors import Code
from pp4.explain.page import Page, pages

_READ_ONLY = "Nothing: verification only reads."
_CLOSED = "Nothing: no window was opened and no other machine was contacted."

PAGES: Final[dict[Code, Page]] = pages(
    (
        Code.TOO_LARGE,
        "There is more of it than pp4 takes: a receipt, a plan or a header beyond 16 MiB or "
        "500,000 values, a manifest, a file that a HOLD brings along, or output of a program "
        "that nobody reads in time. The message has the limit.",
        "Nothing of it was used; the size of a file is seen before its content is read.",
        "Give the file that is meant, and not a log or an archive.",
    ),
    (
        Code.TOO_DEEP,
        "Lists or objects of a JSON document, such as a receipt or an answer, are nested "
        "deeper than anything of pp4 needs (64 levels).",
        _READ_ONLY,
        "It was not written by pp4; ask for the original.",
    ),
    (
        Code.NOT_UTF8,
        "The bytes of a receipt, a plan, a header or the index of an archive are no UTF-8 "
        "text, or a string holds half of a surrogate pair.",
        _READ_ONLY,
        "Give the file itself; a binary file or another encoding cannot be one.",
    ),
    (
        Code.NOT_JSON,
        "The text of a receipt, a plan or a header is not exactly one JSON document; or a "
        "file of held-out documents is no list of lists of token ids.",
        _READ_ONLY,
        "A cut-off copy is the usual reason: compare its size with the original. "
        "docs/replay.md has the form of documents.",
    ),
    (
        Code.DUPLICATE_KEY,
        "An object of a receipt, a plan or a header names the same member twice, so two "
        "readers could see two different documents.",
        _READ_ONLY,
        "Treat the file as forged or damaged and ask for the original.",
    ),
    (
        Code.NOT_FINITE,
        "A number of a receipt, a plan or a header is NaN, infinite or too large for a double.",
        _READ_ONLY,
        "pp4 never writes such numbers; ask for the original.",
    ),
    (
        Code.NUMBER_RANGE,
        "An integer of a receipt, a plan or a header exceeds 2^53 - 1, which not every JSON "
        "reader keeps exact.",
        _READ_ONLY,
        "Numbers of 64 bits belong into such a file as decimal text; ask whoever made it.",
    ),
    (
        Code.NOT_CANONICAL,
        "A receipt, a plan of a fleet or the header of a held-out file differs from its one "
        "canonical byte form: a space, a line end, a byte order mark, another order of "
        "members or another spelling of a value.",
        _READ_ONLY,
        "Editors and pretty-printers do this; give the untouched file.",
    ),
    (
        Code.UNKNOWN_KIND,
        "The `kind` of a receipt, or the kind that was asked for, is none that pp4 knows; or "
        "a file that should be a held-out one does not say that it is.",
        _READ_ONLY,
        "The message lists the known kinds, or names the format. A held-out file is made by "
        "`pp4 replay make-heldout`.",
    ),
    (
        Code.UNKNOWN_VERSION,
        "The file says that it is of a version that this pp4 does not read: the member "
        "`schema` of a receipt or of a fleet's plan, the format of a held-out file, or the "
        "numerical definition under which its draws were made.",
        _READ_ONLY,
        "Use the pp4 that wrote it (docs/receipts.md, docs/replay.md), or make the file again "
        "with this one.",
    ),
    (
        Code.SCHEMA,
        "Something is missing, unknown, of the wrong type or spelled in a form that is not "
        "allowed: a member of a receipt or of a fleet's plan, the header, a name, type or "
        "shape of a held-out file, a row of an archive's index.",
        _READ_ONLY,
        "The message names the first such place. schemas/ has the published schema of each "
        "kind of receipt, docs/replay.md the held-out file, docs/fleet.md the plan.",
    ),
    (
        Code.DIGEST_MISMATCH,
        "Bytes are not those that a digest was taken of: a receipt changed after sealing, a "
        "tensor of a held-out file, a staged tree (or what was read back of it), a file or "
        "the source that a HOLD brought to another host.",
        "Nothing was used of it. What `pp4 prepare` had built is taken away, and so is an upload.",
        "Do not rely on the file; fetch the original again, or make it again, and compare. "
        "Twice in a row it is the disk or somebody's hand.",
    ),
    (
        Code.JOURNAL_CHAIN,
        "A line of a journal does not carry the hash of the line before it, or the head is "
        "another: in a receipt, or in the record of who ended quarantines of a GPU.",
        "The receipt, which shows nothing as long as its journal is broken; or the "
        "quarantine, which was not ended.",
        "Lines were removed, changed or reordered: ask for the original of a receipt. A "
        "record of quarantines is put aside with the command that the message names, and "
        "kept.",
    ),
    (
        Code.PLAN_MISMATCH,
        "The journal records other steps, or another order, than the gates of the receipt.",
        "The receipt, which cannot count as a run of its plan.",
        "Run the qualification again; report it if a fresh receipt does the same.",
    ),
    (
        Code.CROSS_CHECK,
        "Two things that have to agree do not: two parts of a receipt, such as a verdict and "
        "its arms or a sum and its parts; receipts of two HOLDs and their fences; an "
        "archive's index and its files.",
        _READ_ONLY,
        "The check's name says which parts; the receipt proves neither of them. An index is "
        "written anew from its receipts.",
    ),
    (
        Code.WRONG_KIND,
        "It is intact but of another kind than was asked for: a receipt; a HOLD of a "
        "rehearsal where GPUs are meant; a command that opens no HOLD.",
        "Nothing: no window was opened, and no worker was started.",
        "The message says what was found and what was meant; give a file of the right kind.",
    ),
    (
        Code.WRONG_ROLE,
        "Evidence was offered in a role that the command, or the kind of receipt, does not "
        "have, or twice in the same. A rehearsal has no role that opens anything.",
        _CLOSED,
        "Offer what the message asks for, each once, under `[evidence]` of the HOLD file or "
        "with the options of the command.",
    ),
    (
        Code.EVIDENCE_MISSING,
        "A receipt that this command or this receipt rests on was not given, or the file that "
        "`[evidence]` of a HOLD file names cannot be read. A worker with the switch on asks "
        "for a qualification of scope full, or for a HOLD's grant.",
        _CLOSED,
        "Make it with the command that the message names, or add its file; `pp4 status` shows "
        "what this machine is qualified for.",
    ),
    (
        Code.EVIDENCE_MISMATCH,
        "A given receipt is not the one that is referred to (by the sha256 of a HOLD file, of "
        "another receipt or of what was judged a moment ago), or two receipts are bound to "
        "different GPUs, libraries, kernels or inputs.",
        _CLOSED,
        "Find the file with the expected sha256, or make the set again on one machine.",
    ),
    (
        Code.SUBJECT_MISMATCH,
        "The evidence is about another machine, boot, GPU, library, kernel, model or plan "
        "than the one at hand, or what it must be compared with is not known here; or the "
        "source changed while a run used it, or differs on the receiving host.",
        "Nothing was opened on that evidence. A run whose source changed was ended and has no "
        "receipt.",
        "The message names what differs; qualify this machine as it is now. `pp4 status` "
        "lists all that ended a qualification.",
    ),
    (
        Code.HISTORICAL,
        "The receipt is bound to another source than the installed one. It stays true as history.",
        _CLOSED,
        "Run the qualification again with the installed source; to read it as history, `pp4 "
        "verify-receipt --history FILE`.",
    ),
    (
        Code.TOO_OLD,
        "The receipt is older than was allowed, has no date or is dated ahead; or a budget "
        "has expired.",
        _CLOSED,
        "Make a fresh one with the command that the message names, or allow a greater age.",
    ),
    (
        Code.NOT_PROVEN,
        "The receipt is intact and records a run that did not come out well, or covers less "
        "than is needed here, such as scope kernels where scope full is asked for.",
        _CLOSED,
        "Read its verdict and scope with `pp4 verify-receipt FILE`, repair the reason and run "
        "again.",
    ),
    (
        Code.OVER_BUDGET,
        "The projected time of a HOLD, as a budget receipt has it, exceeds the bound of the HOLD.",
        "Nothing: no HOLD was opened and no other machine was contacted.",
        "Ask for less (fewer rounds or batch sizes), or raise `bound_minutes` of the HOLD "
        "file, 90 at most; then make the budget again.",
    ),
    (
        Code.NOT_RESTORED,
        "The first HOLD of a comparison, which the receipt of its measurement names, is not "
        "proven closed with production restored.",
        "The first HOLD in whatever state it is; the second was not opened.",
        "See `pp4 hold status`, finish the first with `pp4 hold recover ID`, then start the "
        "second.",
    ),
    (
        Code.SIGNATURE_MISSING,
        "Signers were named, and the receipt has no signature file beside it.",
        "Nothing; the receipt may still be intact, but nobody vouches for it.",
        "Get FILE.sig from the maker, or verify without --allowed-signers.",
    ),
    (
        Code.SIGNATURE_BAD,
        "The signature does not fit the file, has another namespace, or its key is not allowed.",
        "The receipt and its signature, neither of which to trust.",
        "Get both again from the maker. A redacted copy cannot keep its signature.",
    ),
    (
        Code.SIGNATURE_UNVERIFIABLE,
        "There is a signature of the receipt, and this machine cannot judge it: no "
        "ssh-keygen, no list of allowed signers, or ssh-keygen failed for a reason of its "
        "own. Evidence that came without a file has no signature beside it either.",
        "Nothing; the question stays open.",
        "Install OpenSSH and give `--allowed-signers`.",
    ),
)
