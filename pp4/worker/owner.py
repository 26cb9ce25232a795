"""The owner of a pair of ranks: starts, primes, launches, releases or discards, tears down.

``python -m pp4.worker.owner DIRECTORY COMPILED [--solo] [UUID...]`` speaks frames on its standard
streams.  A reply leaves only by the rule of :mod:`pp4.worker.release`; after a reply was kept for
an error the owner is failed, and stays failed until the pair is torn down.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire import Reply, Request, asks
from pp4.wire.facts import Block, Case, Exchange, Grid, Selected, read, refusal_of
from pp4.wire.frames import Model
from pp4.worker.answering import answer_requests, reply_to
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.epochs import Epochs, start_epoch
from pp4.worker.gpus import read_gpus
from pp4.worker.launching import began, launch
from pp4.worker.pair_priming import prime_pair
from pp4.worker.ranks import Pair
from pp4.worker.release import Release, Rule, both_ranks

_PAIR = Seats()
_SOLO = "--solo"
_ASK_S = 60.0
_EXPECT_S = 120.0
Facts = dict[str, Any]
M = TypeVar("M", bound=Model)


class Owner:
    """State of one pair after another.

    Args:
        homes: directories that the ranks may write.
        seats: where both ranks run.
        rule: decides what leaves.
        lifeline: descriptor of the requests; no wait outlasts whoever writes there.
    """

    def __init__(
        self,
        homes: Homes,
        seats: Seats = _PAIR,
        rule: Rule = both_ranks,
        lifeline: int | None = None,
    ) -> None:
        self._homes, self._seats, self._rule, self._lifeline = homes, seats, rule, lifeline
        self._pair: Pair | None = None
        self._sealed = False
        self._priming = False
        self._failed: Code | None = None
        self._generation = 0
        self._epochs = Epochs(0, 0)
        self._doubt = ""
        self._room: int | None = None
        self._verbs: dict[str, Callable[[Facts], Facts]] = {
            "gpus": _with(asks.Plain, self._look),
            "start": _with(asks.Plain, self._start),
            "prime": _with(asks.Prime, self._prime),
            "link": _with(asks.MakeLink, self._link),
            "both": _with(asks.Both, self._both),
            "one": _with(asks.One, self._one),
            "block": _with(asks.RunBlock, self._block),
            "expect": _with(asks.Expect, self._expect),
            "select": _with(asks.Select, self._select),
            "settle": _with(asks.Plain, self._settle),
            "healthy": _with(asks.Plain, self._healthy),
            "teardown": _with(asks.Plain, self._teardown),
        }

    def answer(self, request: Request) -> Reply:
        """Answer one request; every failure is a refusal in the reply."""
        return reply_to(request, self._verbs, "owner")

    # -- life and death ---------------------------------------------------------------------

    @property
    def pair(self) -> Pair:
        """The running pair; refuses where there is none."""
        if self._pair is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "owner", "a running pair", "none"))
        return self._pair

    def _look(self, _: asks.Plain) -> Facts:
        """What the driver says of every GPU."""
        return read_gpus().model_dump(mode="json")

    def _start(self, _: asks.Plain) -> Facts:
        if self._pair is not None:
            raise RefusedError(Refusal(Code.STICKY, "owner", "no running pair", "one"))
        self._pair = Pair(self._homes, self._seats, self._lifeline)
        self._sealed, self._failed, self._doubt = False, None, ""
        self._epochs = Epochs(0, 0)
        self._room = None
        return self._relay("identity")

    def _teardown(self, _: asks.Plain) -> Facts:
        buried = self.pair.bury()
        self._pair = None
        self._unlink()
        return {**buried, "links_left": len(self._links())}

    def _links(self) -> list[Path]:
        """Workspaces on disk."""
        return sorted(self._homes.pair.glob("link-*"))

    def _unlink(self) -> None:
        for path in self._links():
            path.unlink(missing_ok=True)

    def _settle(self, _: asks.Plain) -> Facts:
        """What this owner still has: running ranks, and workspaces on disk.

        The ranks map workspaces and the owner never does; who has one mapped is seen from outside.
        """
        return {
            "ranks": [] if self._pair is None else [end.pid for end in self._pair.ends],
            "links": [path.name for path in self._links()],
        }

    def _healthy(self, _: asks.Plain) -> Facts:
        """Whether there is a pair that may launch."""
        try:
            self._require_ready()
        except RefusedError as error:
            return {"healthy": False, "why": error.refusal.found}
        lost = [end.rank for end in self.pair.ends if not (end.alive and end.running)]
        why = f"rank {lost[0]} has ended" if lost else self._doubt
        return {"healthy": not why, "why": why}

    def close(self) -> None:
        """Leave no rank and no workspace behind."""
        if self._pair is not None:
            self._pair.bury()
            self._pair = None
        self._unlink()

    def _relay(
        self, verb: str, arguments: tuple[Facts, Facts] = ({}, {}), limit_s: float = _ASK_S
    ) -> Facts:
        """Ask both; -> facts or refusal of each rank."""
        replies = self.pair.both(verb, arguments, limit_s)
        return {"ranks": [{"facts": r.facts, "refusal": r.refusal} for r in replies]}

    def _demand(self, verb: str, arguments: tuple[Facts, Facts] = ({}, {})) -> None:
        """Ask both for something that neither may refuse."""
        for rank in self._relay(verb, arguments)["ranks"]:
            if rank["facts"] is None:
                raise WrongError(refusal_of(rank["refusal"]))

    def _both(self, asked: asks.Both) -> Facts:
        found = self._relay(asked.verb_of_rank, asked.arguments, asked.limit_s)
        for rank in found["ranks"]:
            self._notice(asked.verb_of_rank, rank["facts"])
        return found

    def _notice(self, verb: str, facts: Facts | None) -> None:
        """What went wrong past the owner's rules keeps a pair from serving again."""
        if any((facts or {}).get(name) for name in ("own_error", "peer_error", "mismatches")):
            self._doubt = f"{verb} went wrong on it"

    def _one(self, asked: asks.One) -> Facts:
        """What :meth:`_both` does, with one rank while the other hears nothing."""
        self.pair.ask(asked.rank, asked.verb_of_rank, asked.arguments)
        end = self.pair[asked.rank]
        deadline = Deadline.after(SystemClock(), asked.limit_s)
        self.pair.until(lambda: end.settled, deadline, asked.verb_of_rank)
        reply = end.answer(asked.verb_of_rank)
        self._notice(asked.verb_of_rank, reply.facts)
        return {"facts": reply.facts, "refusal": reply.refusal}

    # -- priming ----------------------------------------------------------------------------

    def _prime(self, asked: asks.Prime) -> Facts:
        """Prime both ranks, then seal both: nothing launches before, nothing compiles after."""
        self._priming = True
        try:
            facts = prime_pair(self.pair, asked, self._try_launch)
        finally:
            self._priming = False
        known = [room for one in facts["primed"] if (room := one["resident"]) is not None]
        self._room = min(known, default=None)
        self._require_room(self._epochs.rows)
        self._demand("seal")
        self._sealed = True
        return facts

    def _require_room(self, rows: int) -> None:
        """Refuse as many rows as blocks are resident.

        One block of each row may wait for the peer.  Where those leave no room, each rank could
        wait for rows whose tiles the other has no room to run.
        """
        if self._room is not None and rows >= self._room and not self._seats.solo:
            expected = f"fewer rows than the {self._room} blocks that a GPU holds at once"
            raise RefusedError(Refusal(Code.OCCUPANCY, "launch", expected, f"{rows} rows"))

    def _try_launch(self, probe: asks.RunBlock | None) -> str:
        """Whether a launch is refused while a rank is not primed; -> the code of the refusal."""
        if probe is None:
            return ""
        try:
            self._block(probe)
        except Pp4Error as error:
            return str(error.refusal.code)
        return ""

    def _link(self, asked: asks.MakeLink) -> Facts:
        """A new rendezvous: both make their words, then both map the peer's."""
        self._require_room(asked.rows)
        self._generation += 1
        start = start_epoch(asked.nonce, asked.fence, self._generation)
        given = {"generation": self._generation, "rows": asked.rows, "start": start}
        first, second = ({**given, "waits": waits.model_dump()} for waits in asked.waits)
        self._demand("link", (first, second))
        self._demand("connect")
        self._epochs = Epochs(start, asked.rows)
        return {"generation": self._generation, "start": start}

    # -- blocks -----------------------------------------------------------------------------

    def _require_ready(self) -> None:
        """Whatever launches on both ranks needs them primed, compared, and without a fault."""
        pair = self.pair
        if not self._sealed or self._priming:
            raise RefusedError(Refusal(Code.UNPRIMED, "launch", "both ranks primed", "one is not"))
        failed = self._failed or pair.broken
        if failed is not None:
            raise RefusedError(
                Refusal(Code.STICKY, "launch", "a healthy pair", f"it failed with {failed}")
            )

    @contextlib.contextmanager
    def _launching(self, order: Sequence[int]) -> Iterator[None]:
        """What one rank launched and nobody can answer for must not be launched upon."""
        try:
            yield
        except Exception as error:
            if any(began(self.pair[rank]) for rank in order):
                self._failed = error.refusal.code if isinstance(error, Pp4Error) else Code.INTERNAL
            raise

    def _decide(self, blocks: Sequence[Block], case: Case, stamps: Grid) -> Release:
        """Release a reply or keep it, and remember which."""
        release = self._rule(blocks, stamps)
        if release.released:
            self._epochs.advance(case.modes, case.n_out)
        else:
            self._failed = release.why
        return release

    def _block(self, asked: asks.RunBlock) -> Facts:
        """Launch a block on both ranks and release or discard its reply."""
        self._require_ready()
        order: list[int] = []
        with self._launching(order):
            launch(self.pair, asked, order)
            blocks, died = self._collect()
            stamps = self._epochs.expected(asked.case.modes, asked.case.n_out)
        release = self._decide(blocks, asked.case, stamps)
        exchange = Exchange(
            blocks=tuple(blocks),
            released=release.released,
            why=str(release.why or ""),
            died=tuple(died),
            order=tuple(order),
            expected_stamps=stamps,
        )
        return exchange.model_dump(mode="json")

    def _collect(self) -> tuple[list[Block], list[int]]:
        blocks, died = [], []
        for end in self.pair.ends:
            if end.reply is not None and end.reply.facts is not None:
                blocks.append(read(Block, end.reply.facts))
            elif end.reply is not None:
                raise WrongError(refusal_of(end.reply.refusal))
            elif not end.alive:
                died.append(end.rank)
        return blocks, died

    def _select(self, asked: asks.Select) -> Facts:
        """The branch between the selectors, on both ranks; what is sampled leaves by the rule."""
        self._require_ready()
        given = asked.model_dump()
        with self._launching((0, 1)):
            found = self._relay("select", (given, given))
            blocks = [block for rank in found["ranks"] if (block := _sampled(rank))]
            if not blocks and not any(began(end) for end in self.pair.ends):
                return {**found, "released": None, "why": ""}
            stamps = self._epochs.expected(asked.case.modes, asked.case.n_out)
        release = self._decide(blocks, asked.case, stamps)
        return {**found, "released": release.released, "why": str(release.why or "")}

    def _expect(self, asked: asks.Expect) -> Facts:
        """One way on each rank, both meanwhile."""
        ends = self.pair.ends[: len(asked.by)]
        for end, by in zip(ends, asked.by, strict=True):
            self.pair.ask(end.rank, "expect", {"case": asked.case.model_dump(), "by": by})
        deadline = Deadline.after(SystemClock(), _EXPECT_S)
        self.pair.until(lambda: all(end.settled for end in ends), deadline, "expect")
        answers = [end.answer("expect") for end in ends]
        return {"ranks": [{"facts": one.facts, "refusal": one.refusal} for one in answers]}


def _sampled(rank: Facts) -> Block | None:
    """What a rank's answer to ``select`` reports of a launch."""
    return None if rank["facts"] is None else read(Selected, rank["facts"]).block


def _with(model: type[M], verb: Callable[[M], Facts]) -> Callable[[Facts], Facts]:
    """Read the arguments of a verb before it is called."""
    return lambda arguments: verb(read(model, arguments))


def serve(owner: Owner) -> None:
    """Answer requests on the standard streams until they end, then leave no rank behind."""
    try:
        answer_requests(owner.answer)
    finally:
        owner.close()


def places(arguments: Sequence[str]) -> tuple[Homes, Seats]:
    """Read the command line of an owner: two directories, ``--solo`` or not, UUIDs of GPUs."""
    pair, compiled, *rest = arguments
    gpus = tuple(one for one in rest if one != _SOLO)
    if gpus:
        # once here, and not in every rank that is forked
        from pp4.worker import cuda

        cuda.preload()
    return Homes(Path(pair), Path(compiled)), Seats(gpus, solo=_SOLO in rest)


if __name__ == "__main__":
    serve(Owner(*places(sys.argv[1:]), lifeline=0))
