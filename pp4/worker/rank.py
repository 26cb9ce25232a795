"""One rank process: reads requests, exercises, replies.  It never decides what leaves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from pp4.drafter.heads import HeadMode
from pp4.errors import Code, Pp4Error, Refusal, RefusedError
from pp4.wire import Decoder, Event, Reply, Request, encode, encode_reply
from pp4.wire.asks import ExpectOfRank, Libraries, PrimeOfRank
from pp4.wire.facts import Case, Launch, Primed, Shape, Stream, Waits, read
from pp4.wire.frames import Model
from pp4.worker import libraries
from pp4.worker.bench import Bench
from pp4.worker.compiling import Homes, compile_apart
from pp4.worker.device import Device, Seats
from pp4.worker.lifetime import end_with
from pp4.worker.originals import Originals
from pp4.worker.serving.arena import Arena
from pp4.worker.serving.rank import ServingRank
from pp4.worker.streaming import Streaming

_READ = 1 << 16


class _Stream:
    """Frames over two file descriptors, blocking; the owner keeps the deadlines."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink
        self._decoder = Decoder()
        self._ready: list[Request] = []

    def read(self) -> Request | None:
        """The next request, None once the owner is gone."""
        while not self._ready:
            data = os.read(self._source, _READ)
            if not data:
                return None
            for message in self._decoder.feed(data):
                if isinstance(message, Request):
                    self._ready.append(message)
        return self._ready.pop(0)

    def write(self, message: Event | Reply) -> None:
        """Write one frame whole."""
        framed = encode_reply(message) if isinstance(message, Reply) else encode(message)
        rest = memoryview(framed)
        while rest:
            rest = rest[os.write(self._sink, rest) :]


class RankProcess:
    """Serves one owner until its stream ends.

    Args:
        rank: 0 or 1.
        homes: directories that both ranks may write.
        seats: where both ranks run.
        arena: memory that is shared with the owner, None where nothing is served.
        source: descriptor of requests.
        sink: descriptor of events and replies.
    """

    def __init__(
        self,
        rank: int,
        homes: Homes,
        seats: Seats,
        arena: Arena | None,
        source: int,
        sink: int,
    ) -> None:
        self._rank, self._homes, self._seats, self._arena = rank, homes, seats, arena
        self._frames = _Stream(source, sink)
        self._sequence = 0
        self._made: Bench | None = None
        self._originals: Originals | None = None
        self._streaming: Streaming | None = None
        self._serving: ServingRank | None = None
        self._verbs: dict[str, Callable[[dict[str, Any]], Model | dict[str, Any]]] = {
            "identity": lambda _: self._bench.identity(),
            "prime": self._prime,
            "plant": self._plant,
            "seal": self._seal,
            "compilations": self._compilations,
            "link": self._link,
            "connect": self._connect,
            "recount": self._recount,
            "pattern": lambda given: self._bench.exchange_pattern(**given),
            "capture": self._capture,
            "run": self._run,
            "stream": self._stream,
            "expect": self._expect,
            "select": self._select,
            "compile": self._compile,
            "libraries": self._libraries,
            "definition": lambda _: {"sha256": self._bench.definition()},
        }

    def serve(self) -> None:
        """Answer requests one by one."""
        while (request := self._frames.read()) is not None:
            self._sequence = request.sequence
            self._frames.write(self._answer(request))
            if self._serving is not None:
                self._serving.afterwards()
        if self._made is not None:
            self._made.close()

    def _answer(self, request: Request) -> Reply:
        try:
            facts = self._verb(request.verb)(request.arguments)
        except Pp4Error as error:
            return Reply(sequence=request.sequence, refusal=error.refusal.as_dict())
        except Exception as error:
            # a bug must reach the owner as an answer, or it waits for one until its deadline
            found = f"{type(error).__name__}: {error}"[:500]
            refusal = Refusal(Code.INTERNAL, f"rank {self._rank}, {request.verb}", "facts", found)
            return Reply(sequence=request.sequence, refusal=refusal.as_dict())
        tree = facts.model_dump(mode="json") if isinstance(facts, Model) else facts
        return Reply(sequence=request.sequence, facts=tree)

    def _verb(self, name: str) -> Callable[[dict[str, Any]], Model | dict[str, Any]]:
        verbs = self._verbs
        if self._arena is not None and name not in verbs:
            if self._serving is None:
                self._serving = ServingRank(self._bench, self._arena)
            verbs = {**verbs, **self._serving.verbs}
        if name not in verbs:
            raise RefusedError(Refusal(Code.BAD_FRAME, "rank", f"one of {sorted(verbs)}", name))
        return verbs[name]

    def _pause(self, name: str) -> None:
        """Tell the owner how far we are; ``paused`` waits for its word."""
        self._frames.write(Event(sequence=self._sequence, name=name))
        if name == "paused" and self._frames.read() is None:
            raise RefusedError(Refusal(Code.INTERRUPTED, "rank", "word from the owner", "none"))

    def _prime(self, given: dict[str, Any]) -> Model:
        asked = read(PrimeOfRank, given)
        if asked.delayed:
            self._pause("paused")
        key, built, recorded = self._bench.prime(asked.shape, asked.shards, recorded=asked.recorded)
        return Primed(
            rank=0 if self._rank == 0 else 1,
            key=key,
            target=built.target,
            ptx_sha256=built.ptx_sha256,
            cubin_sha256=built.cubin_sha256,
            faults=built.faults,
            primed_ns=time.monotonic_ns(),
            recorded=recorded,
            resident=built.resident,
        )

    def _plant(self, given: dict[str, Any]) -> dict[str, Any]:
        for control in given["controls"]:
            self._bench.plant(read(Shape, given["shape"]), control)
        return {}

    def _own_directory(self, name: str) -> Path:
        path = self._homes.pair / f"{name}-rank-{self._rank}"
        path.mkdir(exist_ok=True)
        return path

    def _seal(self, _: dict[str, Any]) -> dict[str, Any]:
        self._bench.seal()
        return {}

    def _compilations(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"compilations": self._bench.device.compilations()}

    def _recount(self, given: dict[str, Any]) -> dict[str, Any]:
        self._bench.link.recount(given["start"])
        return {}

    def _stream(self, given: dict[str, Any]) -> Model:
        asked = read(Stream, given)
        if self._streaming is None:
            self._streaming = Streaming(self._bench, self._selectors)
        return self._streaming.run(asked)

    def _link(self, given: dict[str, Any]) -> dict[str, Any]:
        waits = read(Waits, given["waits"])
        self._bench.make_link(given["generation"], given["rows"], waits, given["start"])
        return {}

    def _connect(self, _: dict[str, Any]) -> dict[str, Any]:
        self._bench.link.connect()
        return {}

    def _capture(self, given: dict[str, Any]) -> dict[str, Any]:
        self._bench.capture(given["name"], read(Case, given["case"]), given.get("control"))
        return {}

    def _run(self, given: dict[str, Any]) -> Model:
        return self._bench.run(read(Case, given["case"]), read(Launch, given["launch"]))

    def _expect(self, given: dict[str, Any]) -> Model:
        asked = read(ExpectOfRank, given)
        return self._bench.expect(asked.case, asked.by)

    @property
    def _bench(self) -> Bench:
        """The bench, made at its first use: that a device is not there is an answer, no death."""
        if self._made is None:
            device = device_of(self._rank, self._homes, self._seats)
            self._made = Bench(self._rank, device, self._homes.pair, self._pause)
        return self._made

    @property
    def _selectors(self) -> Originals:
        if self._originals is None:
            self._originals = Originals(self._bench)
        return self._originals

    def _select(self, given: dict[str, Any]) -> Model:
        return self._selectors.select(
            read(Case, given["case"]),
            switch=given["switch"],
            graph=given.get("graph"),
            head_mode=HeadMode(given.get("head_mode", "default")),
        )

    def _libraries(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = read(Libraries, given)
        # what Triton built for its launches lies there, another copy for each rank
        found = libraries.fingerprints(flip=asked.flip, fresh=True, outside=self._homes.compiled)
        return {"libraries": [library.model_dump() for library in found]}

    def _compile(self, given: dict[str, Any]) -> Model:
        return compile_apart(
            read(Shape, given["shape"]),
            shards=given["shards"],
            control=given.get("control"),
            directory=self._own_directory("compile"),
        )


def device_of(rank: int, homes: Homes, seats: Seats) -> Device:
    """The device of a rank.

    Raises:
        RefusedError: it is not there.
    """
    if seats.reference:
        from pp4.worker.referenced import Referenced

        return Referenced(rank, homes)
    if not seats.gpus:
        from pp4.worker.interpreted import Interpreted

        return Interpreted(rank, homes, seats)
    from pp4.worker.cuda import Cuda

    return Cuda(rank, homes, seats)


def become_rank(
    rank: int,
    homes: Homes,
    seats: Seats,
    arena: Arena | None,
    source: int,
    sink: int,
    owner: int,
) -> NoReturn:
    """Turn this forked process into a rank; it ends with its owner and by no politer signal."""
    end_with(owner)
    # a terminal tells them to everybody, and what becomes of a block is for the owner to say
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    status = 1
    try:
        RankProcess(rank, homes, seats, arena, source, sink).serve()
        status = 0
    except BaseException as error:
        sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        # no interpreter shutdown: the owner's exit handlers are not ours to run
        os._exit(status)
