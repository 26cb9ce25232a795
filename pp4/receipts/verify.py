"""Verify receipts offline: bytes, schema, digest, cross-checks, policy, signature, chain.

Nothing here raises because of a receipt: whatever a file holds, the outcome is a report.  A check
that fails does not stop the ones that do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from pp4.errors import Code, Refusal, UsageError
from pp4.receipts.canonical import difference, dump, parse, read_file
from pp4.receipts.chain import chain_checks, kind_check
from pp4.receipts.checks import Check, Status, compare, from_error, require, skipped
from pp4.receipts.digests import Source, file_digest, installed_source, receipt_digest
from pp4.receipts.models import Receipt, envelope_of, read_model
from pp4.receipts.report import FileReport, Report
from pp4.receipts.run_checks import cross_checks
from pp4.receipts.signature import State, check_signature

_T = TypeVar("_T")
_SKEW: Final = timedelta(minutes=5)
"""How far ahead of ours the clock of a receipt's maker may be."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What is asked of the files beyond being intact.

    Attributes:
        kind: every file that is no evidence of another given file must be of this kind.
        max_age: oldest admissible ``made_at``.
        current: refuse receipts of another source than the installed one.
        history: say which source a receipt is bound to, without judging.
        allowed_signers: who may sign; given, an unsigned receipt is refused.
        require_evidence: refuse where evidence is not among the given files.
        now: the moment that age is counted from; the system's clock where None.
        installed: the source to compare with; that of this package where None.
        keygen: path of ssh-keygen; looked up where None.
    """

    kind: str | None = None
    max_age: timedelta | None = None
    current: bool = False
    history: bool = False
    allowed_signers: Path | None = None
    require_evidence: bool = False
    now: datetime | None = None
    installed: Source | None = None
    keygen: str | None = None


def verify(paths: Sequence[Path], policy: Policy | None = None) -> Report:
    """Verify files.

    Args:
        paths: receipts and, in any order, the receipts that they rest on.
        policy: what is asked beyond integrity; nothing where None.

    Raises:
        UsageError: no file was given.
    """
    policy = policy or Policy()
    return _report([_Examination(str(p), policy).of_path(Path(p)) for p in paths], policy)


def verify_bytes(named: Sequence[tuple[str, bytes]], policy: Policy | None = None) -> Report:
    """Verify receipts that are already in memory; signatures are not looked at.

    Raises:
        UsageError: nothing was given.
    """
    policy = policy or Policy()
    return _report([_Examination(name, policy).of_bytes(raw) for name, raw in named], policy)


def _report(files: list[FileReport], policy: Policy) -> Report:
    if not files:
        raise UsageError(Refusal(Code.USAGE, "verify", "at least one file", "none"))
    overall: list[Check] = []
    steps: dict[str, Callable[[], list[Check]]] = {
        "kind": lambda: kind_check(files, policy.kind),
        "chain": lambda: chain_checks(files, policy.require_evidence),
    }
    for name, step in steps.items():
        try:
            overall += step()
        except Exception as error:
            overall.append(from_error(name, error))
    return Report(tuple(files), tuple(overall))


class _Examination:
    """The checks of one file, collected while its layers are peeled off."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name = name
        self._policy = policy
        self._checks: list[Check] = []
        self._signature: State | None = None

    def of_path(self, path: Path) -> FileReport:
        raw = self._try("file", Code.UNREADABLE, "a regular file", lambda: read_file(path))
        if raw is None:
            return self._done(None, None)
        receipt = self._content(raw)
        self._add("signature", lambda: self._signed(path, raw))
        return self._done(raw, receipt)

    def of_bytes(self, raw: bytes) -> FileReport:
        receipt = self._content(raw)
        code, found = Code.SIGNATURE_UNVERIFIABLE, "bytes without a file beside which one could lie"
        asked = self._policy.allowed_signers is not None
        self._checks.append(
            require("signature", code, False, "a signed file", found)
            if asked
            else skipped("signature", code, "a signed file", found)
        )
        return self._done(raw, receipt)

    def _done(self, raw: bytes | None, receipt: Receipt | None) -> FileReport:
        digest = None if raw is None else file_digest(raw)
        checks = tuple(check.of(self._name) for check in self._checks)
        return FileReport(self._name, digest, receipt, self._signature, checks)

    def _content(self, raw: bytes) -> Receipt | None:
        name = self._name
        read = self._try(
            "json", Code.NOT_JSON, "one unambiguous JSON document", lambda: (parse(raw, name),)
        )
        if read is None:
            for left in ("envelope", "canonical-bytes", "digest", "schema"):
                self._checks.append(skipped(left, Code.NOT_JSON, "a JSON document", "none"))
            return None
        tree = read[0]
        envelope = self._try(
            "envelope", Code.SCHEMA, "a known version and kind", lambda: envelope_of(tree, name)
        )
        if envelope is None:
            # What is no receipt at all has no form that could have been tampered with.
            for left in ("canonical-bytes", "digest", "schema"):
                self._checks.append(skipped(left, Code.SCHEMA, "a receipt", "no known envelope"))
            return None
        self._add("canonical-bytes", lambda: [_canonical(raw, tree, name)])
        self._add("digest", lambda: [_digest_check(envelope)])
        text = raw.removeprefix(b"\xef\xbb\xbf")
        receipt = self._try(
            "schema", Code.SCHEMA, "a receipt of its kind", lambda: read_model(text, name)
        )
        if receipt is None:
            self._checks.append(
                skipped("cross-checks", Code.CROSS_CHECK, "a valid model", "the schema failed")
            )
            return None
        self._add("cross-checks", lambda: cross_checks(receipt))
        self._add("age", lambda: [_age(receipt, self._policy)])
        self._add("source", lambda: [_source(receipt, self._policy)])
        return receipt

    def _signed(self, path: Path, raw: bytes) -> list[Check]:
        policy = self._policy
        signature = check_signature(path, raw, policy.allowed_signers, policy.keygen)
        self._signature = signature.state
        found = f"{signature.state}: {signature.detail}"
        expected = "a signature of an allowed signer"
        code = {
            State.UNSIGNED: Code.SIGNATURE_MISSING,
            State.UNVERIFIABLE: Code.SIGNATURE_UNVERIFIABLE,
        }.get(signature.state, Code.SIGNATURE_BAD)
        if signature.state in (State.GOOD, State.BAD) or policy.allowed_signers is not None:
            return [require("signature", code, signature.state is State.GOOD, expected, found)]
        return [skipped("signature", code, expected, found)]

    def _try(self, name: str, code: Code, expected: str, step: Callable[[], _T]) -> _T | None:
        """Run a step that either returns something or refuses; record both."""
        try:
            value = step()
        except Exception as error:
            self._checks.append(from_error(name, error))
            return None
        self._checks.append(Check(name, Status.PASS, code, expected, expected))
        return value

    def _add(self, name: str, step: Callable[[], list[Check]]) -> None:
        try:
            self._checks += step()
        except Exception as error:
            self._checks.append(from_error(name, error))


def _canonical(raw: bytes, tree: object, name: str) -> Check:
    expected = "the file in its RFC 8785 form, nothing else"
    found = difference(raw, dump(tree, name))
    return require("canonical-bytes", Code.NOT_CANONICAL, found is None, expected, found or "it is")


def _digest_check(tree: dict[str, object]) -> Check:
    found = tree.get("digest")
    return compare("digest", Code.DIGEST_MISMATCH, receipt_digest(tree), found)


def _age(receipt: Receipt, policy: Policy) -> Check:
    if policy.max_age is None:
        return skipped("age", Code.TOO_OLD, "any age", "no limit was asked for")
    expected = f"at most {policy.max_age} old"
    if receipt.made_at is None:
        return require("age", Code.TOO_OLD, False, expected, "no date")
    now = policy.now or datetime.now(UTC)
    age = now - datetime.fromisoformat(receipt.made_at)
    found = f"made at {receipt.made_at}, {age} ago"
    return require("age", Code.TOO_OLD, -_SKEW <= age <= policy.max_age, expected, found)


def _source(receipt: Receipt, policy: Policy) -> Check:
    if not (policy.current or policy.history):
        return skipped("source", Code.HISTORICAL, "any source", "no comparison was asked for")
    installed = (policy.installed or installed_source()).digest
    bound = receipt.source.digest
    if bound == installed:
        return require("source", Code.HISTORICAL, True, installed, f"current: {bound}")
    if policy.current:
        return require("source", Code.HISTORICAL, False, installed, f"historical: {bound}")
    return skipped("source", Code.HISTORICAL, installed, f"historical: {bound}")
