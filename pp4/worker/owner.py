"""The owner of a pair of ranks: starts, primes, launches, releases or discards, tears down.

``python -m pp4.worker.owner DIRECTORY`` speaks frames on its standard streams.  A reply leaves only
by the rule of :mod:`pp4.worker.release`; after a reply was kept for an error the owner is failed,
and stays failed until the pair is torn down.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire import Decoder, Reply, Request, encode
from pp4.wire.facts import Block, Case, Exchange, Grid, Launch, Primed, Shape, Waits, read
from pp4.worker import libraries
from pp4.worker.ranks import Pair, RankEnd
from pp4.worker.release import Rule, both_ranks

_READ = 1 << 16
_START_RANGE = (1 << 20) - 1
Facts = dict[str, Any]


def start_epoch(nonce: str, fence: int, generation: int) -> int:
    """First epoch of a link: below 2**20, and another one for every rendezvous."""
    seed = hashlib.sha256(f"{nonce}:{fence}:{generation}".encode()).digest()
    return int.from_bytes(seed[:8], "big") % _START_RANGE + 1


class Owner:
    """State of one pair after another.

    Args:
        directory: a directory that the ranks may write.
        rule: decides what leaves.
    """

    def __init__(self, directory: Path, rule: Rule = both_ranks) -> None:
        self._directory, self._rule = directory, rule
        self._pair: Pair | None = None
        self._shape: Shape | None = None
        self._sealed = False
        self._failed: Code | None = None
        self._generation = 0
        self._epochs: list[int] = []
        self._verbs: dict[str, Callable[[Facts], Facts]] = {
            "libraries": self._libraries,
            "start": self._start,
            "prime": self._prime,
            "link": self._link,
            "both": self._both,
            "block": self._block,
            "expect": self._expect,
            "select": self._select,
            "settle": self._settle,
            "teardown": self._teardown,
        }

    def answer(self, request: Request) -> Reply:
        """Answer one request; every failure is a refusal in the reply."""
        try:
            verb = self._verbs.get(request.verb)
            if verb is None:
                raise RefusedError(
                    Refusal(Code.BAD_FRAME, "owner", f"one of {sorted(self._verbs)}", request.verb)
                )
            return Reply(sequence=request.sequence, facts=verb(request.arguments))
        except Pp4Error as error:
            return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
        except Exception as error:
            found = f"{type(error).__name__}: {error}"[:500]
            refusal = Refusal(Code.INTERNAL, f"owner, {request.verb}", "facts", found)
            return Reply(sequence=request.sequence, refusal=refusal.as_dict())

    # -- life and death ---------------------------------------------------------------------

    @property
    def pair(self) -> Pair:
        """The running pair; refuses where there is none."""
        if self._pair is None:
            raise RefusedError(Refusal(Code.UNPRIMED, "owner", "a running pair", "none"))
        return self._pair

    def _libraries(self, given: Facts) -> Facts:
        found = libraries.fingerprints(flip=given.get("flip", False))
        return {"libraries": [library.model_dump() for library in found]}

    def _start(self, _: Facts) -> Facts:
        if self._pair is not None:
            raise RefusedError(Refusal(Code.STICKY, "owner", "no running pair", "one"))
        self._pair = Pair(self._directory)
        self._sealed, self._failed, self._epochs = False, None, []
        return self._relay("identity")

    def _teardown(self, _: Facts) -> Facts:
        buried = self.pair.bury()
        self._pair = None
        for path in self._directory.glob("link-*"):
            path.unlink()
        return {**buried, "links_left": len(list(self._directory.glob("link-*")))}

    def _settle(self, _: Facts) -> Facts:
        """What is left of pairs: running ranks, workspaces on disk, workspaces still mapped."""
        links = sorted(path.name for path in self._directory.glob("link-*"))
        maps = Path("/proc/self/maps").read_text()
        return {
            "ranks": [] if self._pair is None else [end.pid for end in self._pair.ends],
            "links": links,
            "mapped": maps.count(str(self._directory / "link-")),
        }

    def _relay(
        self, verb: str, arguments: list[Facts] | None = None, limit_s: float = 60.0
    ) -> Facts:
        """Ask both; -> facts or refusal of each rank."""
        first, second = arguments or [{}, {}]
        replies = self.pair.both(verb, (first, second), limit_s)
        return {"ranks": [{"facts": r.facts, "refusal": r.refusal} for r in replies]}

    def _both(self, given: Facts) -> Facts:
        return self._relay(
            given["verb_of_rank"], given.get("arguments"), given.get("limit_s", 60.0)
        )

    # -- priming ----------------------------------------------------------------------------

    def _prime(self, given: Facts) -> Facts:
        """Prime both ranks, then seal both: nothing launches before, nothing compiles after."""
        shape = read(Shape, given["shape"])
        delayed = given.get("delayed")
        for end in self.pair.ends:
            end.ask("prime", {"shape": shape.model_dump(), "delayed": end.rank == delayed})
        meanwhile = ""
        if delayed is not None:
            self.pair.until(
                lambda: self.pair[1 - delayed].settled and self.pair[delayed].reached("paused"),
                120.0,
                "prime",
            )
            meanwhile = self._try_launch(given["probe"])
            self.pair[delayed].resume()
        self.pair.until(lambda: all(end.settled for end in self.pair.ends), 120.0, "prime")
        primed = [self._primed(rank) for rank in (0, 1)]
        keys = {(one.key, one.ptx_sha256, one.cubin_sha256) for one in primed}
        if len(keys) != 1:
            raise WrongError(
                Refusal(Code.KERNELS_DIFFER, "priming", "equal digests on both ranks", str(keys))
            )
        self._seal(shape)
        return {"primed": [one.model_dump() for one in primed], "meanwhile": meanwhile}

    def _primed(self, rank: int) -> Primed:
        reply = self.pair[rank].reply
        if reply is None:
            raise WrongError(
                Refusal(Code.RANK_DIED, f"rank {rank}, prime", "an answer", "its stream ended")
            )
        if reply.facts is None:
            raise WrongError(_refusal(reply))
        return read(Primed, reply.facts)

    def _try_launch(self, probe: Facts) -> str:
        """Whether a launch is refused while a rank is not primed; -> the code of the refusal."""
        try:
            self._block(probe)
        except Pp4Error as error:
            return str(error.refusal.code)
        return ""

    def _seal(self, shape: Shape) -> None:
        self._relay("seal", [{"shape": shape.model_dump()}] * 2)
        self._shape, self._sealed = shape, True

    def _link(self, given: Facts) -> Facts:
        """A new rendezvous: both make their words, then both map the peer's."""
        if not self._sealed and given.get("shape"):
            self._seal(read(Shape, given["shape"]))
        self._generation += 1
        start = start_epoch(given["nonce"], given["fence"], self._generation)
        rows, waits = given["rows"], [read(Waits, one).model_dump() for one in given["waits"]]
        made = [
            {"generation": self._generation, "rows": rows, "waits": one, "start": start}
            for one in waits
        ]
        for verb, arguments in (("link", made), ("connect", None)):
            for rank in self._relay(verb, arguments)["ranks"]:
                if rank["refusal"]:
                    raise WrongError(_of(rank["refusal"]))
        self._epochs = [start] * rows
        return {"generation": self._generation, "start": start}

    # -- blocks -----------------------------------------------------------------------------

    def _block(self, given: Facts) -> Facts:
        """Launch a block on both ranks and release or discard its reply."""
        if not self._sealed:
            raise RefusedError(Refusal(Code.UNPRIMED, "launch", "both ranks primed", "one is not"))
        if self._failed is not None:
            raise RefusedError(
                Refusal(Code.STICKY, "launch", "a healthy pair", f"it failed with {self._failed}")
            )
        case = read(Case, given["case"])
        launches = [read(Launch, one) for one in given.get("launches", [{}, {}])]
        order = self._run(case, launches, given)
        blocks, died = self._collect()
        stamps = self._expected(case)
        release = self._rule(blocks, stamps)
        if release.released:
            self._advance(case)
        else:
            self._failed = release.why
        exchange = Exchange(
            blocks=tuple(blocks),
            released=release.released,
            why=str(release.why or ""),
            died=tuple(died),
            order=tuple(order),
            expected_stamps=stamps,
        )
        return exchange.model_dump(mode="json")

    def _run(self, case: Case, launches: list[Launch], given: Facts) -> list[int]:
        """Launch in the asked order and steer pauses; -> the ranks that were launched."""
        first = given.get("first", 0)
        second, when = 1 - first, given.get("second", "together")
        limit_s = given.get("limit_s", 60.0)
        for end in self.pair.ends:
            end.events.clear()
            end.reply = None
        order = [first]
        self._launch(first, case, launches)
        if when == "launched":
            self.pair.until(lambda: self.pair[first].reached("launching"), limit_s, "launch")
        elif when == "answered":
            self.pair.until(lambda: self.pair[first].settled, limit_s, "launch")
        if when != "never":
            order.append(second)
            self._launch(second, case, launches)
        self._steer(order, launches, given.get("on_pause", "resume"), limit_s)
        self.pair.until(lambda: all(self.pair[r].settled for r in order), limit_s, "block")
        return order

    def _launch(self, rank: int, case: Case, launches: list[Launch]) -> None:
        self.pair[rank].ask(
            "run", {"case": case.model_dump(), "launch": launches[rank].model_dump()}
        )

    def _steer(self, order: list[int], launches: list[Launch], action: str, limit_s: float) -> None:
        for rank in order:
            if launches[rank].pause_before is not None:
                self._steer_one(self.pair[rank], self.pair[1 - rank], action, limit_s)

    def _steer_one(self, end: RankEnd, peer: RankEnd, action: str, limit_s: float) -> None:
        """Wait for a rank to pause, then kill it or let it go on, at once or after its peer."""
        self.pair.until(lambda: end.reached("paused"), limit_s, "pause")
        if action == "kill":
            end.kill()
            return
        if action == "resume-late":
            self.pair.until(lambda: peer.settled, limit_s, "the peer's answer")
        end.resume()

    def _collect(self) -> tuple[list[Block], list[int]]:
        blocks, died = [], []
        for end in self.pair.ends:
            if end.reply is not None and end.reply.facts is not None:
                blocks.append(read(Block, end.reply.facts))
            elif end.reply is not None:
                raise WrongError(_refusal(end.reply))
            elif not end.alive:
                died.append(end.rank)
        return blocks, died

    def _expected(self, case: Case) -> Grid:
        """Stamps of a clean block: the row's next epochs, a padded row's last one."""
        return tuple(
            tuple(self._epochs[row] + (index + 1 if mode else 0) for index in range(case.n_out))
            for row, mode in enumerate(case.modes)
        )

    def _advance(self, case: Case) -> None:
        for row, mode in enumerate(case.modes):
            self._epochs[row] += case.n_out if mode else 0

    def _select(self, given: Facts) -> Facts:
        """The branch between the selectors, on both ranks."""
        case = read(Case, given["case"])
        found = self._relay("select", [given, given])
        if all(rank["facts"] and rank["facts"]["path"] == "sampled" for rank in found["ranks"]):
            self._advance(case)
        return found

    def _expect(self, given: Facts) -> Facts:
        """The reference on one rank and, where asked, the solo kernel on the other meanwhile."""
        ways = ("reference", "solo") if given["solo"] else ("reference",)
        for end, by in zip(self.pair.ends, ways, strict=False):
            end.ask("expect", {"case": given["case"], "by": by})
        asked = self.pair.ends[: len(ways)]
        self.pair.until(lambda: all(end.settled for end in asked), 120.0, "expect")
        return {"ranks": [_answer_of(end, "expect") for end in asked]}


def _answer_of(end: RankEnd, verb: str) -> Facts:
    """A rank's answer as a tree; a rank that died is an error."""
    if end.reply is None:
        raise WrongError(
            Refusal(Code.RANK_DIED, f"rank {end.rank}, {verb}", "an answer", "its stream ended")
        )
    return {"facts": end.reply.facts, "refusal": end.reply.refusal}


def _of(refusal: dict[str, str]) -> Refusal:
    return Refusal(
        Code(refusal["code"]),
        refusal["where"],
        refusal["expected"],
        refusal["found"],
        source=refusal["source"],
        left=refusal["left"],
        next=refusal["next"],
    )


def _refusal(reply: Reply) -> Refusal:
    return _of(reply.refusal or {})


def serve(owner: Owner) -> None:
    """Answer requests on the standard streams until they end, then leave no rank behind."""
    decoder = Decoder()
    try:
        while data := os.read(0, _READ):
            for message in decoder.feed(data):
                if isinstance(message, Request):
                    rest = memoryview(encode(owner.answer(message)))
                    while rest:
                        rest = rest[os.write(1, rest) :]
    finally:
        if owner._pair is not None:
            owner._pair.bury()


if __name__ == "__main__":
    serve(Owner(Path(sys.argv[1])))
