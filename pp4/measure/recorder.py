"""What an arm finds, durable and told before anything else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

from pp4.errors import Pp4Error, UncleanError
from pp4.hold.journal import Journal
from pp4.hold.open import OpenHold
from pp4.receipts.envelope import Fact
from pp4.receipts.runs import Round, Snapshot
from pp4.wire.measuring import Arm, Rounded, Step, Stepped

FILE: Final = "rounds.jsonl"
"""In the HOLD's working directory: a chained journal, for whoever comes after a host that died."""


class Teller(Protocol):
    """Who is told; see :class:`pp4.hold.inner.Supervisor`."""

    def tell(self, item: dict[str, Any]) -> None:
        """Pass one item on."""


class Recorder:
    """Writes down and tells; everything of an arm goes through here.

    Args:
        hold: in whose journal arms and phases stand.
        teller: who is told of each.

    Raises:
        UncleanError: ``UNWRITABLE``, something could not be made durable; nothing may follow.
    """

    def __init__(self, hold: OpenHold, teller: Teller) -> None:
        self._hold, self._teller = hold, teller
        self._kept = Journal(hold.directory / FILE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @contextmanager
    def phase(self, arm: Arm, phase: Step) -> Iterator[dict[str, Fact]]:
        """A phase of an arm, from its begin to its end; -> facts that its end will carry."""
        step, facts = f"arm-{arm}/{phase}", dict[str, Fact]()
        self.begin(arm, phase)
        try:
            yield facts
        except UncleanError:
            raise
        except Pp4Error as error:
            self._end(arm, phase, step, f"failed({error.refusal.code})", facts)
            raise
        self._end(arm, phase, step, "pass", facts)

    def begin(self, arm: Arm, phase: Step | None = None) -> None:
        """An arm begins, or a phase of it."""
        self._hold.journal.add(f"arm-{arm}" + (f"/{phase}" if phase else ""), "begin")
        self._tell(Stepped(arm=arm, phase=phase, event="begin"))

    def end(self, arm: Arm, verdict: str, code: str | None) -> None:
        """An arm has ended.

        Args:
            arm: which.
            verdict: of it.
            code: of the refusal that ended it, None for one that is complete.
        """
        self._end(arm, None, f"arm-{arm}", verdict, {} if code is None else {"code": code})

    def _end(
        self, arm: Arm, phase: Step | None, step: str, found: str, facts: dict[str, Fact]
    ) -> None:
        plain = {
            name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()
        }
        self._hold.journal.add(step, "end", found=found, detail=plain)
        self._tell(Stepped(arm=arm, phase=phase, event="end", found=found))

    def round(self, arm: Arm, found: Round) -> None:
        """A timed round."""
        tree = found.model_dump(mode="json")
        self._kept.add(f"arm-{arm}", "round", detail=tree)
        self._tell(Rounded(arm=arm, round=tree))

    def snapshot(self, arm: Arm, found: Snapshot, sha256: str) -> None:
        """A snapshot; its digest stands in the HOLD's journal, so that it cannot become another.

        Args:
            arm: which.
            found: the snapshot.
            sha256: by which it is held fixed.
        """
        tree = found.model_dump(mode="json")
        self._hold.journal.add(f"arm-{arm}/{found.label}", "snapshot", detail={"sha256": sha256})
        self._kept.add(f"arm-{arm}", "snapshot", detail=tree)
        self._tell(Rounded(arm=arm, snapshot=tree))

    def _tell(self, item: Rounded | Stepped) -> None:
        self._teller.tell(item.model_dump(mode="json"))
