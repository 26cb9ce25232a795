"""Eight clients at once, of random habits: no reply is lost, crossed or partial."""

import random
import threading
from collections import Counter

from pp4.errors import Code, Pp4Error
from pp4.worker.client import Ask, Proposal
from tests.unit.worker.fronts import OFFER, WIDTH, Worker, features_of, same

CLIENTS = 8
TURNS = 40


class Player:
    """One client: opens, appends, drafts one or many, aborts, closes, leaves and comes again."""

    def __init__(self, worker, seed):
        self.worker, self.random, self.seed = worker, random.Random(seed), seed
        self.depth = self.random.choice(OFFER.depths)
        self.told, self.wrong, self.error = Counter(), [], None
        self.requests = {}

    def run(self):
        try:
            for _ in range(3):
                with self.worker.client(self.depth) as client:
                    self.requests = {}
                    for _ in range(TURNS):
                        self.turn(client)
                    self.depart(client)
        except BaseException as error:
            self.error = error

    def turn(self, client):
        choice = self.random.random()
        if choice < 0.15 or not self.requests:
            self.opens(client)
        elif choice < 0.4:
            self.appends(client, self.random.choice(list(self.requests)))
        elif choice < 0.5:
            number = self.random.choice(list(self.requests))
            client.close(number)
            del self.requests[number]
        elif choice < 0.6:
            self.aborts(client)
        else:
            self.drafts(client)

    def opens(self, client):
        number, key = self.random.getrandbits(64), self.random.getrandbits(64)
        try:
            client.open(number, key=key)
        except Pp4Error as error:
            self.expect(error, Code.CACHE_FULL)
        else:
            self.requests[number] = [key, b"", 0]

    def appends(self, client, number):
        known, tokens = self.requests[number], self.random.randint(1, 9)
        more = features_of(self.random.getrandbits(32), tokens)
        try:
            client.features(number, more)
        except Pp4Error as error:
            self.expect(error, Code.CACHE_FULL)
        else:
            known[1] += bytes(more)

    def ask(self, number):
        known = self.requests[number]
        known[2] += self.random.randint(1, 3)
        temperature = self.random.choice([0.0, 0.7])
        anchor = self.random.randrange(OFFER.vocab)
        return Ask(number, known[2], anchor, temperature, self.seed, self.random.getrandbits(16))

    def drafts(self, client):
        chosen = self.random.sample(list(self.requests), self.random.randint(1, len(self.requests)))
        asks = [self.ask(number) for number in chosen]
        for ask, found in zip(asks, client.draft_many(asks), strict=True):
            self.check(ask, found)

    def aborts(self, client):
        ask = self.ask(self.random.choice(list(self.requests)))
        ticket = client.submit(ask)
        dropped = client.abort(ask.request)
        try:
            found = client.collect(ticket)
        except Pp4Error as error:
            self.expect(error, Code.INTERRUPTED)
            if not dropped:
                self.wrong.append("a draft was given up that no ABORT dropped")
        else:
            self.check(ask, found)
            if dropped:
                self.wrong.append("a draft left after its ABORT was answered")

    def depart(self, client):
        """Leave in the middle of things."""
        if self.requests:
            client.submit(self.ask(next(iter(self.requests))))

    def expect(self, error, code):
        self.told[error.refusal.code] += 1
        if error.refusal.code is not code:
            self.wrong.append(error.refusal)

    def check(self, ask, found):
        if not isinstance(found, Proposal):
            self.wrong.append(found)
            return
        key, features, _ = self.requests[ask.request]
        position = len(features) // (2 * WIDTH) + 1
        given = (key, position, ask.round, ask.anchor, ask.temperature > 0, features)
        echoed = (found.request, found.generation, found.slot, found.round, found.position)
        if echoed != (ask.request, ask.generation, ask.slot, ask.round, position):
            self.wrong.append(f"crossed: {echoed} for {ask}")
        elif not same(found, self.depth, *given):
            self.wrong.append(f"another block for {ask}")
        self.told["proposals"] += 1


def test_no_reply_is_lost_crossed_or_partial(tmp_path):
    worker = Worker(tmp_path / "worker.sock")
    try:
        players = [Player(worker, seed) for seed in range(CLIENTS)]
        threads = [threading.Thread(target=player.run) for player in players]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [player.error for player in players] == [None] * CLIENTS
        assert [player.wrong for player in players] == [[]] * CLIENTS
        worker.until(lambda: worker.ranks.features == {})
        told = sum((player.told for player in players), Counter())
        counters = worker.server.counters
        assert told["proposals"] > 300
        # drafts of those who left may have been ready in time, or not
        assert told["proposals"] <= counters.replies <= told["proposals"] + 3 * CLIENTS
        assert counters.refusals[Code.CACHE_FULL] == told[Code.CACHE_FULL] > 0
        assert counters.refusals[Code.INTERRUPTED] == told[Code.INTERRUPTED] > 0
        assert counters.connections == counters.disconnects == 3 * CLIENTS
        assert counters.opened == counters.closed
        assert counters.blocks < counters.rows
        assert set(counters.refusals) == {Code.CACHE_FULL, Code.INTERRUPTED}
        assert worker.server.state == "serving"
    finally:
        worker.close()
