"""The data pattern: every bit of it is seen, every wait ends, and no read crosses the link."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime import interpreter

from pp4.errors import BadInputError, Code, Pp4Error
from pp4.kernels import pattern
from pp4.kernels.device import pattern as device_pattern
from pp4.kernels.faults import Fault
from pp4.kernels.link import POISON, Bounds, SharedMemoryLink, SoloLink
from pp4.kernels.pattern import ANSWER, TURN, WORDS, Result
from pp4.kernels.ptx import order_faults
from tests.kernels.cases import POLLS, random_case
from tests.kernels.drivers import said
from tests.kernels.pairs import Memory

SEED = 2**64 - 3
RANK_CASE = random_case(80, batch=2, n_out=1)
SEEDS = st.integers(0, 2**64 - 1)


@triton.jit
def _words_of(out, seed: tl.int64, epoch: tl.int64):
    tl.store(out + tl.arange(0, 32), device_pattern._pattern(seed, epoch))


@given(SEEDS, st.integers(0, 1 << 40))
@settings(max_examples=30)
def test_the_kernel_makes_the_words_of_the_definition(seed, epoch):
    out = torch.zeros(WORDS, dtype=torch.int64)
    _words_of[(1,)](out, seed - (seed >> 63 << 64), epoch)
    assert out.numpy().tolist() == pattern.pattern(seed, epoch).tolist()


def test_the_words_are_those_of_splitmix64():
    # the first outputs of the published generator for the seed 0
    assert pattern.pattern(0, 0)[:3].view(np.uint64).tolist() == [
        0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F,
    ]  # fmt: skip


def test_no_two_epochs_share_a_word_and_every_bit_is_tried():
    words = np.concatenate([pattern.pattern(SEED, epoch) for epoch in range(100)])
    assert len(set(words.tolist())) == 3200
    by_place = words.view(np.uint64).reshape(100, WORDS)
    assert (np.bitwise_or.reduce(by_place) == 2**64 - 1).all()
    assert not np.bitwise_and.reduce(by_place).any()


# -- two processes --------------------------------------------------------------------------


def exchanged(pair, ways, writer, epochs, flip_at=-1, seed=SEED):
    """Let each rank take its part in its own way; -> their results."""
    for rank, way in zip(pair.ranks, ways, strict=True):
        numbers = {"seed": seed, "epochs": epochs, "flip_at": flip_at}
        if way == "kernel":
            numbers["max_polls"] = POLLS
        rank.ask("pattern", way, {"writer": rank.rank == writer, **numbers})
    return [rank.answer() for rank in pair.ranks]


WAYS = [("kernel", "kernel"), ("python", "python"), ("kernel", "python"), ("python", "kernel")]


@pytest.mark.parametrize("ways", WAYS)
def test_two_ranks_one_after_another_on_one_link(pair, ways):
    files = pair.prepare(RANK_CASE)
    for writer in (0, 1):
        # a single epoch twice: the turn that the first left must not pass for the second's
        for epochs, flip_at in ((6, -1), (6, 4), (1, -1), (1, 0), (1, -1)):
            results = exchanged(pair, ways, writer, epochs, flip_at)
            assert results[writer] == Result(epochs, 0)
            assert results[1 - writer] == Result(epochs, int(flip_at >= 0))
    for file in files:
        memory = Memory(file, RANK_CASE.batch)
        assert (memory.inbox == POISON).all()
        assert (memory.flag == RANK_CASE.start).all()
        assert (memory.ack == RANK_CASE.start).all()
        assert not memory.error.any()
    # and the link is as good as new
    for outputs, words in pair.both("launch", 0, 1):
        assert not outputs.error.any()
        assert words.clean
    pair.both("close")


def test_in_python_two_thousand_epochs_are_quick_enough_to_rehearse(pair):
    pair.prepare(RANK_CASE)
    assert exchanged(pair, WAYS[1], 0, 2000, 1000) == [Result(2000, 0), Result(2000, 1)]
    pair.both("close")


# -- one rank, the peer written by hand -------------------------------------------------------


class OneSide:
    """Rank 0 of a link whose other end is only memory."""

    def __init__(self, directory):
        files = [directory / "0", directory / "1"]
        self.links = [
            SharedMemoryLink(
                files[rank], files[1 - rank], rank=rank, rows=1, start=1, bounds=Bounds()
            )
            for rank in (0, 1)
        ]
        for link in self.links:
            link.connect()
        self.own, self.peer = (np.memmap(file, dtype=np.int64, mode="r+") for file in files)

    def arrives(self, epoch=0):
        """What a writer leaves that is one epoch ahead."""
        self.own[:WORDS] = pattern.pattern(SEED, epoch)
        self.own[TURN] = epoch + 1

    def takes_part(self, way, **more):
        numbers = {"writer": False, "seed": SEED, "epochs": 1, "flip_at": -1, "limit_s": 60}
        if way == "python":
            more.pop("max_polls", None)
            return pattern.run(self.links[0], **{**numbers, **more})
        return pattern.launched(self.links[0], **{**numbers, "max_polls": 50, **more})

    def close(self):
        for link in self.links:
            link.close()


@pytest.fixture
def side(tmp_path):
    one = OneSide(tmp_path)
    yield one
    one.close()


@pytest.mark.parametrize("way", ["python", "kernel"])
def test_any_flipped_bit_is_seen(side, way):
    side.arrives()
    assert side.takes_part(way) == Result(1, 0)
    for word in range(WORDS):
        # every word, and every bit in one of them
        for bit in (word, 63 - word):
            side.arrives()
            side.own[:WORDS].view(np.uint64)[word] ^= np.uint64(1 << bit)
            assert side.takes_part(way) == Result(1, 1), (word, bit)


def refusal(call):
    with pytest.raises(Pp4Error) as caught:
        call()
    return caught.value.refusal


@pytest.mark.parametrize("writer", [False, True])
@pytest.mark.parametrize("way", ["python", "kernel"])
def test_a_peer_that_never_comes_is_a_timeout(side, way, writer):
    limit_s = 0.01 if way == "python" else 60
    said = refusal(lambda: side.takes_part(way, writer=writer, epochs=3, limit_s=limit_s))
    assert said.code is Code.STEP_TIMEOUT
    assert said.expected == "turn 1"
    # a writer has written, and nothing else was
    assert side.peer[TURN] == (1 if writer else POISON)
    assert side.peer[ANSWER] == POISON


def test_a_peer_that_stops_half_way_is_named_by_its_turn(side):
    side.arrives()
    said = refusal(lambda: side.takes_part("kernel", epochs=3))
    assert (said.code, said.expected) == (Code.STEP_TIMEOUT, "turn 2")
    assert said.found.startswith("1 epochs")


def test_an_error_word_ends_the_check(side):
    side.arrives()
    side.own[-8 + int(Fault.BAD_LOGITS)] = 1
    side.own[-8] = 1
    assert refusal(lambda: side.takes_part("kernel")).code is Code.BAD_LOGITS


def test_a_turn_that_nobody_is_at_ends_the_check(side):
    side.arrives()
    side.own[TURN] = 2
    assert refusal(lambda: side.takes_part("kernel", epochs=3)).code is Code.PROTOCOL


@pytest.mark.parametrize("writer", [False, True])
def test_the_kernel_reads_its_own_memory_alone(side, writer, monkeypatch):
    read, written = [], []
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def noted_load(self, pointers, *rest):
        read.extend(pointers.data.reshape(-1).tolist())
        return load(self, pointers, *rest)

    def noted_store(self, pointers, *rest):
        written.extend(pointers.data.reshape(-1).tolist())
        return store(self, pointers, *rest)

    monkeypatch.setattr(builder, "create_masked_load", noted_load)
    monkeypatch.setattr(builder, "create_masked_store", noted_store)
    link = side.links[0]
    side.arrives()
    side.own[ANSWER] = 1
    assert side.takes_part("kernel", writer=writer) == Result(1, 0)
    own, peer = link.own_address, link.peer_address
    size = 8 * len(side.own)
    mine = link.own_error.data_ptr()
    assert all(own <= address < own + size or address == mine for address in read)
    crossed = {(address - peer) // 8 for address in written if peer <= address < peer + size}
    assert crossed == ({*range(WORDS), TURN} if writer else {ANSWER})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 64}, "seed"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": 1 << 40}, "epochs"),
        ({"flip_at": 1}, "flip_at"),
        ({"flip_at": -2}, "flip_at"),
        ({"limit_s": 0}, "limit_s"),
        ({"limit_s": float("nan")}, "limit_s"),
    ],
)
def test_numbers_out_of_range_refuse(side, change, match):
    with pytest.raises(BadInputError, match=match):
        side.takes_part("python", **change)


def test_solo_has_no_peer_to_check():
    with pytest.raises(BadInputError, match="solo"):
        pattern.run(SoloLink(1), writer=True, seed=1, epochs=1, limit_s=1)


# -- compiled -------------------------------------------------------------------------------

PRIMED = """
from pp4.kernels import pattern
from pp4.kernels.link import Bounds, SharedMemoryLink

built = pattern.prime(device)
found["ptx"], found["target"] = built.ptx, built.target
found["launched"] = len(launched)
driver.current = 1
forbid_compilation(note)
files = [Path(DIRECTORY) / name for name in "ab"]
links = [
    SharedMemoryLink(files[one], files[1 - one], rank=one, rows=2, start=1, bounds=Bounds())
    for one in (0, 1)
]
for link in links:
    link.connect()
    for seed, epochs, flip_at in ((0, 1, -1), (2**64 - 1, 2**33, 2**32)):
        numbers = {"seed": seed, "epochs": epochs, "flip_at": flip_at, "limit_s": 3600}
        pattern.launched(link, writer=link.rank == 0, **numbers)
found["compiled"], found["launches"] = seen, len(launched)
for link in links:
    link.close()
"""


@pytest.fixture(scope="module")
def primed(tmp_path_factory):
    return said(PRIMED, tmp_path_factory.mktemp("primed"))


def test_what_is_primed_is_what_every_rank_launches(primed):
    assert (primed["target"], primed["launched"]) == ("sm_90", 0)
    assert (primed["compiled"], primed["launches"]) == ([], 4)


NEEDED = {"releases": 2, "polls": 4}
"""Turn and answer; two waits, each of which polls its word and the error word."""


def test_turn_and_answer_are_released_and_acquired_across_the_system(primed):
    assert order_faults(primed["ptx"], **NEEDED) == ()
    assert primed["ptx"].count("st.release.sys.global") == NEEDED["releases"]
    assert primed["ptx"].count("ld.acquire.sys.global") == NEEDED["polls"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("st.release.sys.global", "st.relaxed.sys.global", "a store for the peer"),
        ("st.release.sys.global", "st.release.gpu.global", "signals: 0 st.release"),
        ("ld.acquire.sys.global", "ld.acquire.gpu.global", "signals: 0 ld.acquire"),
        ("ld.acquire.sys.global", "ld.relaxed.sys.global", "a poll that is no acquire"),
        ("bar.sync", "// bar.sync", "no block barrier right before"),
        ("bar.sync", "// bar.sync", "no barrier since the poll"),
        ("st.release.sys.global.s64", "atom.exch.release.sys.global.b64", "a read-modify-write"),
    ],
)
def test_weaker_signals_are_found(primed, old, new, expected):
    text = primed["ptx"].replace(old, new)
    assert text != primed["ptx"]
    assert any(expected in line for line in order_faults(text, **NEEDED))
