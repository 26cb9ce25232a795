"""A front over ranks that compute: what they answer is a function of what they were given."""

import asyncio
import contextlib
import hashlib
import socket
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from pp4.errors import Code, Pp4Error, Refusal, RefusedError, WrongError
from pp4.wire.draft_frames import Decoder
from pp4.wire.drafts import ANSWERS, Draft
from pp4.wire.offers import Offer
from pp4.worker.client import Client
from pp4.worker.front.limits import Limits
from pp4.worker.front.listening import listen_unix
from pp4.worker.front.server import Server

PATIENT_S = 30.0
BLOCK = 5
WIDTH = 3
OFFER = Offer(
    definition="a definition",
    definition_sha256="00" * 32,
    tau="0.7",
    candidates=32,
    vocab=1000,
    draft_vocab=1000,
    bounds=((0, 500), (500, 1000)),
    block=BLOCK,
    depths=(4, 5),
    feature_width=WIDTH,
    context=64,
    slots=16,
    batches=(1, 4, 8),
    sampled=True,
    device="a double",
    devices=("first", "second"),
)
LOST = WrongError(Refusal(Code.RANK_DIED, "rank 1", "two ranks", "one", left="rank 0"))


def features_of(seed, tokens):
    """``[tokens, WIDTH]`` bits."""
    return np.random.default_rng(seed).integers(0, 1 << 16, (tokens, WIDTH), dtype=np.uint16)


def words_of(n_out, key, position, round_, anchor, sampled, features):
    """What the ranks answer, as words ``[n_out, 66]``: a crossed reply is another one."""
    given = f"{n_out} {key} {position} {round_} {anchor} {sampled}".encode() + bytes(features)
    seed = int.from_bytes(hashlib.sha256(given).digest()[:8], "big")
    return np.random.default_rng(seed).integers(1, 1 << 30, (n_out, 66), dtype=np.int32)


def reply_of(n_out, *given):
    """The bytes of a row."""
    words = np.zeros((BLOCK, 66), np.int32)
    words[:n_out] = words_of(n_out, *given)
    members = (words[:, :32], words[:, 32:64], words[:, 64], words[:, 65])
    return b"".join(np.ascontiguousarray(member).tobytes() for member in members)


def same(proposal, n_out, *given):
    """Whether a proposal is exactly what the ranks answer to this."""
    words = words_of(n_out, *given)
    return (
        np.array_equal(proposal.ids, words[:, :32])
        and np.array_equal(proposal.q.view(np.int32), words[:, 32:64])
        and np.array_equal(proposal.tokens, words[:, 64])
        and np.array_equal(proposal.confidence.view(np.int32), words[:, 65])
    )


class Ranks:
    """Drafts, and does as it is told; everything here runs in the loop but the events."""

    def __init__(self, offer=OFFER):
        self.offer, self.failed, self.capacity = offer, None, 1 << 20
        self.features = {}
        self.calls = []
        self.refusing = {}
        self.entered, self.overlapped = threading.Event(), False
        self.blocking, self.stubborn = {"draft"}, False
        self._busy = False
        self._gate, self._lost = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._gate.set()

    @contextlib.asynccontextmanager
    async def _call(self, verb, *given, refusing=None):
        self.overlapped |= self._busy
        self._busy = True
        try:
            self.calls.append((verb, *given))
            await asyncio.sleep(0)
            if (refusing or verb) in self.refusing:
                raise self.refusing.pop(refusing or verb)
            if verb in self.blocking:
                self.entered.set()
                await self._pass()
            yield
        finally:
            self._busy = False

    async def _pass(self):
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            await self._gate.wait()

    async def open(self, request):
        async with self._call("open", request):
            if len(self.features) >= self.offer.slots:
                raise RefusedError(Refusal(Code.CACHE_FULL, "cache", "a free slot", "none"))
            assert request not in self.features
            self.features[request] = b""

    async def append(self, parts):
        """What ``refusing`` has for ``append`` is for the oldest part, for ``appends`` for all."""
        requests = [part.request for part in parts]
        async with self._call("append", *requests, refusing="appends"):
            assert len({part.request for part in parts}) == len(parts) > 0
            assert len(parts) == 1 or sum(len(one.features) for one in parts) <= self.capacity
            return [self._grown(part) for part in parts]

    def _grown(self, part):
        if (error := self.refusing.pop("append", None)) is not None:
            if not isinstance(error, RefusedError):
                raise error
            return error
        assert len(part.features) == part.tokens * WIDTH * 2
        if self._length(part.request) + part.tokens > self.offer.context:
            return RefusedError(Refusal(Code.CACHE_FULL, "cache", "room", "none"))
        self.features[part.request] += bytes(part.features)
        return self._length(part.request)

    def _length(self, request):
        return len(self.features[request]) // (WIDTH * 2)

    async def close(self, request):
        async with self._call("close", request):
            del self.features[request]

    async def draft(self, n_out, rows):
        async with self._call("draft", n_out, tuple(row.request for row in rows)):
            assert len({row.request for row in rows}) == len(rows) <= max(self.offer.batches)
            return [self._reply(n_out, row) for row in rows]

    def _reply(self, n_out, row):
        given = (row.key, row.position, row.round, row.anchor, row.sampled)
        assert row.position == self._length(row.request) + 1
        return reply_of(n_out, *given, self.features[row.request])

    async def lost(self):
        return await asyncio.shield(self._lost)

    def block(self):
        self.entered.clear()
        self._gate.clear()

    def release(self):
        self._gate.set()

    def lose(self, error=LOST):
        self.failed = error
        self._lost.set_result(error)


class Worker:
    """A server in a thread of its own, and what the test does to it there."""

    def __init__(self, path, *, limits=None, offer=OFFER, serving=True, more=()):
        self.path, self.events = path, []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.do(self._start, limits or Limits(), offer, more)
        if serving:
            self.do(self.server.serve, self.ranks)

    def _start(self, limits, offer, more):
        self.ranks = Ranks(offer)
        log = lambda event, fields: self.events.append((event, dict(fields)))  # noqa: E731
        listeners = [listen_unix(self.path), *more]
        self.server = Server(listeners, ranks=(11, 12), limits=limits, log=log)
        self.server.start()

    def do(self, call, *given):
        """Call in the loop, and wait."""
        done = Future()

        def run():
            try:
                done.set_result(call(*given))
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(PATIENT_S)

    def wait(self, coroutine):
        """Run in the loop, and wait."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENT_S)

    def until(self, condition):
        """Wait until something holds, looked at in the loop."""
        end = time.monotonic() + PATIENT_S
        while not self.do(condition):
            assert time.monotonic() < end, "it never came true"
            time.sleep(0.005)

    def waiting(self, count):
        """Wait until as many drafts wait."""
        self.until(lambda: self.server._service.standing(0).counters["waiting"] == count)

    def client(self, depth=4):
        client = Client.unix(self.path, PATIENT_S)
        try:
            if depth:
                client.hello(depth)
        except Pp4Error:
            client.disconnect()
            raise
        return client

    def close(self):
        try:
            self.wait(self.server.stop(0.2))
            assert self.do(lambda: asyncio.all_tasks(self._loop)) == set()
            assert not self.ranks.overlapped
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENT_S)
            self._loop.close()


@contextlib.contextmanager
def refused(code, where=""):
    """Expects a refusal that names a member."""
    with pytest.raises(Pp4Error) as caught:
        yield caught
    assert caught.value.refusal.code is code
    assert where in caught.value.refusal.where


def ready(client, *requests, tokens=2):
    """Open requests with features."""
    for request in requests:
        client.open(request, key=100 + request)
        client.features(request, features_of(request, tokens))


def raw(worker):
    """A connection without a client."""
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(PATIENT_S)
    connected.connect(str(worker.path))
    return connected


def answers(connected, count):
    """Read as many answers, or all until the end where it is None."""
    decoder, found = Decoder(ANSWERS), []
    while count is None or len(found) < count:
        data = connected.recv(1 << 16)
        if not data:
            break
        found += [frame.message for frame in decoder.feed(data)]
    return found


def draft(**changed):
    """A draft of request 1 with two tokens, changed."""
    members = {
        "sequence": 900,
        "request": 1,
        "generation": 0,
        "slot": 0,
        "round": 7,
        "position": 3,
        "anchor": 5,
        "mode": "sampled",
        "temperature": 0.5,
    }
    return Draft(**{**members, **changed})
