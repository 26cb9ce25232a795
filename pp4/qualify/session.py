"""The coordinator's end of one owner: asks, reads facts, keeps every pid in the HOLD's books."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pp4.config import INTERPRETED, ON_GPUS
from pp4.errors import Code, WrongError
from pp4.hold.open import OpenHold
from pp4.run.asking import Asker
from pp4.wire.facts import (
    Case,
    Exchange,
    Expectation,
    Identity,
    Launch,
    Shape,
    Source,
    Waits,
    read,
    refusal_of,
)

PRODUCT = "pp4.worker.owner"
CARELESS = "pp4.worker.controls"


class Session:
    """One owner process and the pair that it runs at the moment.

    Args:
        hold: what it runs under.
        label: names the owner's process, unique in the HOLD.
        compiled: where binaries are kept, for every pair that is started here or later.
        module: the owner to start; a control starts a careless one.
        solo: whether each rank holds both shards.
    """

    def __init__(
        self,
        hold: OpenHold,
        label: str,
        compiled: Path,
        module: str = PRODUCT,
        *,
        solo: bool = False,
    ) -> None:
        self._hold, self._label = hold, label
        self._running = False
        self._pairs = 0
        self._primed: tuple[Shape, tuple[str, ...]] | None = None
        directory = hold.directory / label
        directory.mkdir()
        self._channel = hold.start(
            module,
            [str(directory), str(compiled), *(["--solo"] if solo else []), *hold.gpus],
            environment=ON_GPUS if hold.gpus else INTERPRETED,
            label=label,
        )
        self._asker = Asker(hold, self._channel)

    def ask(self, verb: str, *, limit_s: float = 60.0, **arguments: Any) -> dict[str, Any]:
        """Ask the owner one verb.

        Raises:
            WrongError: it refused, or it died.
            TimedOutError: it did not answer in time.
        """
        return self._asker.ask(verb, arguments, limit_s)

    def refusal(self, verb: str, **arguments: Any) -> Code | None:
        """Ask a verb that should be refused; -> the code, None where it went through."""
        try:
            self.ask(verb, **arguments)
        except WrongError as error:
            return error.refusal.code
        return None

    # -- the pair ---------------------------------------------------------------------------

    def start(self) -> tuple[Identity, Identity]:
        """Start a pair and say who it is."""
        self.teardown()
        self._primed = None
        found = self.ask("start")["ranks"]
        self._running = True
        self._pairs += 1
        identities = tuple(read(Identity, facts_of(rank)) for rank in found)
        for identity in identities:
            self._hold.own(identity.pid, f"{self._label}-pair-{self._pairs}-rank-{identity.rank}")
        return identities[0], identities[1]

    def prime(self, shape: Shape, **how: Any) -> dict[str, Any]:
        """Compile and load on both ranks, then seal; -> what each primed and what was tried.

        Args:
            shape: what is compiled.
            how: ``recorded``, ``controls``, ``delayed``, ``probe``; see
                :class:`pp4.wire.asks.Prime`.
        """
        facts = self.ask("prime", limit_s=240.0, shape=shape.model_dump(), **how)
        self._primed = shape, tuple(how.get("controls", ()))
        return facts

    def ready(self, shape: Shape, controls: tuple[str, ...]) -> bool:
        """Whether the running pair has primed exactly this, and nothing went wrong on it."""
        return self._primed == (shape, controls) and self.ask("healthy")["healthy"] is True

    def link(self, rows: int, waits: Sequence[Waits]) -> dict[str, Any]:
        """Make a rendezvous; it primes nothing."""
        return self.ask(
            "link",
            nonce=self._hold.nonce,
            fence=self._hold.fence,
            rows=rows,
            waits=[one.model_dump() for one in waits],
        )

    def teardown(self) -> dict[str, Any]:
        """End the pair, if there is one; -> pids and whether each is proven dead."""
        if not self._running:
            return {"pids": [], "dead": [], "links_left": 0}
        self._running = False
        self._primed = None
        return self.ask("teardown")

    def both(
        self,
        verb: str,
        first: dict[str, Any],
        second: dict[str, Any] | None = None,
        *,
        limit_s: float = 120.0,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask both ranks past the owner's rules; -> what each answered, facts or refusal."""
        arguments = [first, first if second is None else second]
        asked = {"verb_of_rank": verb, "arguments": arguments, "limit_s": limit_s}
        ranks = self._asker.ask("both", asked, limit_s)["ranks"]
        return ranks[0], ranks[1]

    def one(
        self, rank: int, verb: str, arguments: dict[str, Any], *, limit_s: float = 120.0
    ) -> dict[str, Any]:
        """Ask one rank alone past the owner's rules; -> its answer, facts or refusal."""
        asked = {"rank": rank, "verb_of_rank": verb, "arguments": arguments, "limit_s": limit_s}
        return self._asker.ask("one", asked, limit_s)

    def block(
        self, case: Case, launches: tuple[Launch, Launch] | None = None, **how: Any
    ) -> Exchange:
        """Run one block through the owner's rule."""
        pair = launches or (Launch(), Launch())
        facts = self.ask(
            "block", case=case.model_dump(), launches=[one.model_dump() for one in pair], **how
        )
        return read(Exchange, facts)

    def expect(self, case: Case, *by: Source) -> tuple[Expectation, ...]:
        """What a case must give, by one way or two."""
        ranks = self.ask("expect", limit_s=120.0, case=case.model_dump(), by=by)["ranks"]
        return tuple(read(Expectation, facts_of(rank)) for rank in ranks)

    def close(self) -> None:
        """End the owner and whatever pair it still has."""
        self._hold.stop(self._channel)


def facts_of(rank: dict[str, Any]) -> dict[str, Any]:
    """Facts of one rank's answer.

    Raises:
        WrongError: it refused.
    """
    if rank["facts"] is None:
        raise WrongError(refusal_of(rank["refusal"]))
    facts: dict[str, Any] = rank["facts"]
    return facts


def code_of(rank: dict[str, Any]) -> Code | None:
    """Code of one rank's refusal, None where it gave facts."""
    return None if rank["refusal"] is None else Code(rank["refusal"]["code"])
