"""What a worker drafts: with the switch off and on, by kernels and by reference, in any company."""

import random
import re
import urllib.request

import numpy as np
import pytest

from pp4.errors import BadInputError
from pp4.kernels.dyadic24 import draw as drawn
from pp4.kernels.philox import draft_ticket
from pp4.worker.client import Ask
from tests.faults.worker_specs import body_of, features_of
from tests.faults.workers import BATCH, SMALL, Worker

LENGTHS = (0, 7, 40)
"""Tokens with features of requests 1, 2 and 3."""
WIDTH = SMALL.feature_width


@pytest.fixture(scope="module")
def start(tmp_path_factory, drafter):
    """Starts workers, each kind once."""
    made = {}

    def start(name, **settings):
        if name not in made:
            made[name] = Worker(tmp_path_factory.mktemp(name), drafter, **settings)
        return made[name].serving()

    yield start
    for worker in made.values():
        worker.close()


@pytest.fixture(scope="module")
def on(start):
    return start("on")


@pytest.fixture(scope="module")
def off(start):
    return start("off", sampled=False)


class Talk:
    """A client with three open requests; rounds rise by themselves."""

    def __init__(self, worker, depth):
        self.client, self.round = worker.client(depth), 0
        self.block = self.client.offer.block
        for number, length in enumerate(LENGTHS, 1):
            self.client.open(number, key=1000 + number)
            if length:
                self.client.features(number, features_of(number, length, WIDTH))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.disconnect()

    def ask(self, temperatures, anchors=(5, 6, 7)):
        """Draft some of the requests together; -> proposals by request."""
        self.round += 1
        asks = [
            Ask(number, self.round, anchors[number - 1], temperature)
            for number, temperature in temperatures.items()
        ]
        found = self.client.draft_many(asks)
        assert not [one for one in found if isinstance(one, Exception)]
        return dict(zip(temperatures, found, strict=True))

    def bodies(self, temperatures, **more):
        found = self.ask(temperatures, **more)
        return {number: body_of(one, self.block) for number, one in found.items()}


@pytest.mark.parametrize("depth", [4, 5])
def test_every_sampled_token_is_the_draw_of_its_own_key_position_and_round(on, depth):
    """What the verifier relies on: q says what could be drawn, and Philox which of it was."""
    tokens = set()
    with Talk(on, depth) as talk:
        for _ in range(12):
            for number, found in talk.ask({1: 0.7, 2: 1.0, 3: 0.7}).items():
                for index in range(depth):
                    tickets = [int(share * 2**24) for share in found.q[index].tolist()]
                    place = LENGTHS[number - 1] + 1 + index
                    ticket = draft_ticket(key=1000 + number, position=place, round=talk.round)
                    assert found.tokens[index] == found.ids[index][drawn(tickets, ticket)]
                    tokens.add((number, index, int(found.tokens[index])))
    # the rounds did draw different tokens of the same rows, or any round would have done
    assert len(tokens) > 2 * 3 * depth


ALL_GREEDY = {1: 0.0, 2: 0.0, 3: 0.0}
MIXED = {1: 0.7, 2: 0.0, 3: 1.0}


@pytest.mark.parametrize("depth", [4, 5])
def test_with_the_switch_off_everything_is_drafted_greedily_and_said_so(off, depth):
    with Talk(off, depth) as talk:
        assert not talk.client.offer.sampled
        mixed, greedy = talk.ask(MIXED), talk.ask(ALL_GREEDY)
        assert [one.mode for one in (*mixed.values(), *greedy.values())] == ["greedy"] * 6
        for number in MIXED:
            assert body_of(mixed[number], talk.block) == body_of(greedy[number], talk.block)
            one = greedy[number]
            assert one.ids.shape == (depth, 32)
            assert (one.ids == -1).all()
            assert not one.q.any()
            assert ((one.tokens >= 0) & (one.tokens < SMALL.vocab)).all()
            assert ((one.confidence > 0) & (one.confidence < 1)).all()


@pytest.mark.parametrize("depth", [4, 5])
def test_greedy_drafts_are_those_of_a_worker_whose_switch_is_off(on, off, depth):
    with Talk(on, depth) as talk, Talk(off, depth) as other:
        assert talk.client.offer.sampled
        assert talk.bodies(ALL_GREEDY) == other.bodies(ALL_GREEDY)
        assert talk.bodies({2: 0.0}) == other.bodies({2: 0.0})
        mixed, plain = talk.ask(MIXED), other.ask(MIXED)
        assert [one.mode for one in mixed.values()] == ["sampled", "greedy", "sampled"]
        for name in ("tokens", "confidence"):
            assert getattr(mixed[2], name).tobytes() == getattr(plain[2], name).tobytes()
        # beside a sampled row candidates are listed, the best one first, and none was drawn
        assert not mixed[2].q.any()
        assert (mixed[2].ids[:, 0] == mixed[2].tokens).all()
        # and it matters that the others are sampled
        assert any((mixed[number].tokens != plain[number].tokens).any() for number in (1, 3))


@pytest.mark.parametrize("depth", [4, 5])
def test_what_a_sampled_draft_lists(on, depth):
    with Talk(on, depth) as talk:
        for one in talk.ask(MIXED | {2: 0.3}).values():
            assert one.mode == "sampled"
            for ids, q, token in zip(one.ids, one.q, one.tokens, strict=True):
                assert len(set(ids.tolist())) == 32
                assert ((ids >= 0) & (ids < SMALL.vocab)).all()
                assert q.sum(dtype=np.float64) == 1
                assert q[ids == token] > 0


def test_a_sampled_row_depends_on_itself_alone(on):
    """Its place, its neighbours and padding change no byte of it, nor how its features came."""
    chance = random.Random(3)
    mine = features_of(9, 33, WIDTH)
    with on.client(5) as client:
        numbers = range(1, BATCH + 1)
        seen = set()
        for place in (0, 3, BATCH - 1, None):
            for number in numbers:
                client.open(number, key=chance.getrandbits(64) if number > 1 else 77)
            cut = chance.randint(1, 32)
            client.features(1, mine[:cut])
            client.features(1, mine[cut:])
            for number in numbers[1:]:
                client.features(number, features_of(chance.getrandbits(32), 20, WIDTH))
            others = [
                Ask(number, 8, chance.randrange(SMALL.vocab), chance.choice([0.0, 1.0]))
                for number in numbers[1:]
            ]
            asks = [] if place is None else others
            asks.insert(place or 0, Ask(1, 8, 11, 0.5))
            found = client.draft_many(asks)
            seen.add(body_of(found[place or 0], client.offer.block))
            for number in numbers:
                client.close(number)
        assert len(seen) == 1


KINDS = {
    # two kernels that exchange over a file; ten epochs are two blocks, so they meet anew twice
    "pair": ({"device": "interpreter", "waits": {"epochs": 10}}, (4, 5)),
    # no exchange, and so nothing that a depth could change but the number of launches
    "solo": ({"device": "interpreter", "solo": True}, (5,)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_draft_what_the_reference_drafts(start, on, kind):
    settings, depths = KINDS[kind]
    worker = start(kind, **settings)
    assert worker.status().offer.device == "Triton interpreter"
    for depth in depths:
        with Talk(worker, depth) as talk, Talk(on, depth) as other:
            for asked in (ALL_GREEDY, MIXED, {3: 1.0}):
                assert talk.bodies(asked) == other.bodies(asked), (depth, asked)
    assert worker.status().state == "serving"


def test_a_worker_meets_anew_before_its_epochs_are_used_up(start, on):
    """Sixty epochs are twelve blocks of five positions; it lives through three times as many."""
    worker = start("short", waits={"epochs": 60})
    with Talk(worker, 5) as talk, Talk(on, 5) as other:
        for block in range(36):
            asked = MIXED if block % 3 else {1: 0.7}
            assert talk.bodies(asked) == other.bodies(asked), block
    standing = worker.status()
    assert (standing.state, standing.counters["blocks"]) == ("serving", 36)


@pytest.mark.parametrize("epochs", [5, 9, 13])
def test_no_number_of_epochs_that_a_block_fits_in_is_ever_exhausted(start, on, epochs):
    worker = start(f"epochs-{epochs}", waits={"epochs": epochs})
    with Talk(worker, 5) as deep, Talk(worker, 4) as flat, Talk(on, 5) as a, Talk(on, 4) as b:
        for talk, other in ((deep, a), (flat, b), (flat, b), (deep, a), (deep, a)):
            assert talk.bodies({1: 1.0}) == other.bodies({1: 1.0})


def lookups(worker):
    """What the metrics say of the Markov cache; -> by whether a row was found."""
    (line,) = [line for line in worker.log if line["event"] == "metrics"]
    with urllib.request.urlopen(f"http://127.0.0.1:{line['port']}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    pattern = r'pp4_worker_cache_lookups_total\{found="(\w+)"\} ([\d.]+)'
    return {name: float(count) for name, count in re.findall(pattern, text)}


def test_cached_rows_change_no_byte(start, on):
    worker = start("cached", cache_mib=1, metrics_port=0)
    with Talk(worker, 5) as talk, Talk(on, 5) as other:
        assert sum(lookups(worker).values()) == 0
        found = []
        for block in range(12):
            anchors = ((5, 6, 7), (7, 5, 6))[block % 2]
            asked = talk.bodies(MIXED, anchors=anchors)
            assert asked == other.bodies(MIXED, anchors=anchors), block
            found.append(lookups(worker))
    yes, no = sorted(found[-1], key=found[-1].get, reverse=True)
    counts = [one[yes] for one in found]
    # three rows of five positions each, the first ones in vain, and the same tokens again later
    assert sum(found[-1].values()) == 12 * 15
    assert found[0][yes] == 0
    assert counts == sorted(counts)
    assert found[-1][no] < 12 * 15 / 2


@pytest.mark.parametrize("bits", [0x7F61, 0x7F80, 0x7FC0], ids=["large", "infinite", "undefined"])
def test_features_that_no_draft_can_be_made_of_harm_nobody_else(on, bits):
    bad = np.full((2, WIDTH), bits, np.uint16)
    with Talk(on, 4) as talk, Talk(on, 4) as other:
        before = talk.bodies({2: 1.0}), talk.bodies({3: 1.0})
        for number in (1, 2):
            with pytest.raises(BadInputError, match="features"):
                other.client.features(number, bad)
        # nor the requests themselves, which have what they had
        assert (other.bodies({2: 1.0}), other.bodies({3: 1.0})) == before
        other.client.features(2, features_of(50, 3, WIDTH))
        assert other.ask({2: 1.0})[2].position == LENGTHS[1] + 3 + 1
    assert on.status().state == "serving"
