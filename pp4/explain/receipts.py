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
        "The file is longer than any receipt may be (16 MiB).",
        "Nothing; the size was seen before the content was read.",
        "Give the receipt itself and not a log or an archive.",
    ),
    (
        Code.TOO_DEEP,
        "Lists or objects are nested deeper than any receipt needs (64 levels).",
        _READ_ONLY,
        "The file was not written by pp4; ask for the original.",
    ),
    (
        Code.NOT_UTF8,
        "The bytes are no UTF-8 text, or a string holds half of a surrogate pair.",
        _READ_ONLY,
        "Give the receipt's file; a binary file or another encoding cannot be one.",
    ),
    (
        Code.NOT_JSON,
        "The text is not exactly one JSON document.",
        _READ_ONLY,
        "A cut-off copy is the usual reason: compare its size with the original.",
    ),
    (
        Code.DUPLICATE_KEY,
        "An object names the same member twice, so two readers could see two different receipts.",
        _READ_ONLY,
        "Treat the file as forged or damaged and ask for the original.",
    ),
    (
        Code.NOT_FINITE,
        "A number is NaN, infinite or too large for a double.",
        _READ_ONLY,
        "pp4 never writes such numbers; ask for the original.",
    ),
    (
        Code.NUMBER_RANGE,
        "An integer exceeds 2^53 - 1, which not every JSON reader keeps exact.",
        _READ_ONLY,
        "Numbers of 64 bits belong into a receipt as decimal text; ask whoever made the file.",
    ),
    (
        Code.NOT_CANONICAL,
        "The file differs from its one canonical byte form: a space, a line end, a byte order "
        "mark, another order of members or another spelling of a value.",
        _READ_ONLY,
        "Editors and pretty-printers do this; verify the untouched file.",
    ),
    (
        Code.UNKNOWN_KIND,
        "The receipt's `kind`, or the kind that was asked for, is none that pp4 knows.",
        _READ_ONLY,
        "The message lists the known kinds.",
    ),
    (
        Code.UNKNOWN_VERSION,
        "The member `schema` names a version that this pp4 does not read.",
        _READ_ONLY,
        "Use the pp4 version that reads it; docs/receipts.md says which.",
    ),
    (
        Code.SCHEMA,
        "A member is missing, unknown, of the wrong type or spelled in a form that is not allowed.",
        _READ_ONLY,
        "The message names the first such place; schemas/ has the published schema of each kind.",
    ),
    (
        Code.DIGEST_MISMATCH,
        "The digest in the receipt does not fit its content: something was changed after sealing.",
        _READ_ONLY,
        "Do not rely on the file; ask for the original and compare.",
    ),
    (
        Code.JOURNAL_CHAIN,
        "A journal line does not carry the hash of the line before it, or the head is another.",
        "The receipt, which shows nothing as long as its journal is broken.",
        "Lines were removed, changed or reordered; ask for the original.",
    ),
    (
        Code.PLAN_MISMATCH,
        "The journal records other steps, or another order, than the gates of the receipt.",
        "The receipt, which cannot count as a run of its plan.",
        "Run the qualification again; report it if a fresh receipt does the same.",
    ),
    (
        Code.CROSS_CHECK,
        "Two parts of a receipt contradict each other, such as a verdict and its arms or a sum "
        "and its parts.",
        _READ_ONLY,
        "The check's name says which parts; the receipt proves neither of them.",
    ),
    (
        Code.WRONG_KIND,
        "The receipt is intact but of another kind than was asked for.",
        _READ_ONLY,
        "The message lists the kinds that were found; give a file of the right one.",
    ),
    (
        Code.WRONG_ROLE,
        "Evidence was offered in a role that the command, or the kind of receipt, does not have. "
        "A rehearsal has no role that opens anything.",
        _CLOSED,
        "Offer what the message asks for under `[evidence]` of the HOLD file.",
    ),
    (
        Code.EVIDENCE_MISSING,
        "A receipt that this command or this receipt rests on was not given.",
        _CLOSED,
        "Make it with the command that the message names, or add its file.",
    ),
    (
        Code.EVIDENCE_MISMATCH,
        "A given receipt is not the one that is referred to, or two receipts are bound to "
        "different GPUs, libraries, kernels or inputs.",
        _CLOSED,
        "Find the file with the expected sha256, or make the set again on one machine.",
    ),
    (
        Code.SUBJECT_MISMATCH,
        "The evidence is about another machine, library, model or plan than the one at hand, or "
        "what it must be compared with is not known here.",
        _CLOSED,
        "The message names what differs; qualify this machine as it is now.",
    ),
    (
        Code.HISTORICAL,
        "The receipt is bound to another source than the installed one. It stays true as history.",
        _CLOSED,
        "Run the qualification again with the installed source, or verify without --current.",
    ),
    (
        Code.TOO_OLD,
        "The receipt is older than was allowed, has no date, is dated ahead or has expired.",
        _CLOSED,
        "Make a fresh one, or allow a greater age.",
    ),
    (
        Code.NOT_PROVEN,
        "The receipt is intact and records a run that did not come out well or covers less than "
        "is needed here.",
        _CLOSED,
        "Read its verdict, repair the reason and run again.",
    ),
    (
        Code.OVER_BUDGET,
        "The projected time of the window exceeds its bound.",
        "Nothing; a refusal is recorded and no packet was sent.",
        "Measure less (fewer rounds or batch sizes) or raise the bound up to 90 minutes.",
    ),
    (
        Code.NOT_RESTORED,
        "The first window is not proven closed with production restored.",
        "The first window in whatever state it is; the second was not opened.",
        "See `pp4 hold status`, finish the first window, then start the second.",
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
        "There is a signature, and this machine cannot judge it: no ssh-keygen, no list of "
        "allowed signers, or ssh-keygen failed for a reason of its own.",
        "Nothing; the question stays open.",
        "Install OpenSSH and give --allowed-signers.",
    ),
)
