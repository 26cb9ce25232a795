"""The chain of evidence as a tree: what each receipt rests on, by the digests that were found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pp4.receipts.models import Receipt
from pp4.receipts.records import Incident, RefusalReceipt
from pp4.receipts.runs import Measurement
from pp4.report.given import Given


@dataclass(frozen=True, slots=True)
class Link:
    """A receipt in the tree.

    Attributes:
        role: as which the receipt above takes it; empty at a root.
        kind: of the receipt, or what the reference says.
        sha256: of the file.
        file: where it was found; None where no given file has that digest.
        verdict: how it ends, in its own word; None where it is missing.
        made_at: when it was made, where it says so.
        digest: the receipt's own, None where it is missing.
        below: what it rests on; empty where it was told above already.
        told: whether it stands at an earlier place of the tree with everything about it.
        intact: whether the file verifies.
    """

    role: str
    kind: str
    sha256: str
    file: str | None
    verdict: str | None = None
    made_at: str | None = None
    digest: str | None = None
    below: tuple[Link, ...] = ()
    told: bool = False
    intact: bool = True

    def every(self) -> Iterator[Link]:
        """Yield this link and all below it."""
        yield self
        for one in self.below:
            yield from one.every()


def missing(chain: Iterable[Link]) -> list[Link]:
    """Return each link that no given file answers, once."""
    links = (link for root in chain for link in root.every() if link.file is None)
    return list({link.sha256: link for link in links}.values())


def trees(files: Sequence[Given], roots: Sequence[str] | None = None) -> tuple[Link, ...]:
    """Return the tree of each root.

    Args:
        files: receipts.
        roots: sha256 of the files that the trees begin with; those that no other rests on where
            None.
    """
    known = {one.sha256: one for one in files}
    used = {reference.sha256 for one in files for reference in one.receipt.evidence}
    chosen = [one.sha256 for one in files if one.sha256 not in used] if roots is None else roots
    told: set[str] = set()
    return tuple(_link("", known[root], known, told) for root in chosen)


def _link(role: str, one: Given, known: Mapping[str, Given], told: set[str]) -> Link:
    # A reference is the digest of bytes that existed before, so nothing can rest on itself; what
    # several rest on is told once.
    receipt = one.receipt
    again = one.sha256 in told
    told.add(one.sha256)
    return Link(
        role=role,
        kind=receipt.kind,
        sha256=one.sha256,
        file=one.file,
        verdict=word_of(receipt),
        made_at=receipt.made_at,
        digest=receipt.digest,
        below=()
        if again
        else tuple(
            _link(reference.role, known[reference.sha256], known, told)
            if reference.sha256 in known
            else Link(reference.role, reference.kind, reference.sha256, None)
            for reference in receipt.evidence
        ),
        told=again,
        intact=one.intact,
    )


def word_of(receipt: Receipt) -> str:
    """Return how a receipt ends, in its own word."""
    if isinstance(receipt, Measurement):
        if receipt.summary is not None:
            return receipt.summary.verdict
        return "complete" if receipt.complete else "not complete"
    if isinstance(receipt, RefusalReceipt):
        return receipt.refusal.code
    if isinstance(receipt, Incident):
        return receipt.state
    return receipt.verdict
