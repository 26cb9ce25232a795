"""The owner's side of two real ranks: what ends them for good, in a process of its own."""

import pytest

from tests.unit.processes import printed
from tests.unit.worker.drafters import write_drafter

PROLOGUE = """
import asyncio, os, signal, sys
from pathlib import Path
os.environ["TRITON_INTERPRET"] = "1"
from pp4.drafter.checkpoint.survey import survey
from pp4.errors import Pp4Error
from pp4.wire.facts import Waits
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.drafting import Row
from pp4.worker.serving import starting
from pp4.worker.serving.owner import PairDrafting
from pp4.worker.serving.setup import Setup

directory = Path(sys.argv[1])
checkpoint = directory / "drafter"
homes = Homes(directory / "pair", directory / "compiled")
homes.pair.mkdir()
setup = Setup(
    checkpoint, None, batches=(1,), depths=(4,), slots=2, context=64, cache_mib=0,
    sampled=True, waits=Waits(epochs=40), nonce="a nonce", fence=1,
)
drafting = PairDrafting(homes, Seats(reference=True), setup, survey(checkpoint, None).config)

async def code(call):
    try:
        await asyncio.wait_for(call, 60)
    except Pp4Error as error:
        return str(error.refusal.code)
    return "none"

def row(round_, sampled=True):
    return Row(request=1, key=7, position=1, round=round_, anchor=3, sampled=sampled)

async def serve():
    await drafting.prime()
    await drafting.serve()
    await drafting.open(1)

async def main():
    try:
        await serve()
        print(*[await one for one in test()])
    finally:
        await drafting.teardown()
"""
EPILOGUE = "\nasyncio.run(main())\n"


@pytest.fixture
def directory(tmp_path):
    write_drafter(tmp_path / "drafter")
    return tmp_path


def said(directory, test):
    """Run the parts of a test one after the other; -> what each of them gives."""
    return printed(PROLOGUE + test + EPILOGUE, directory)


def test_a_rendezvous_that_both_ranks_refuse_is_the_end_of_them(directory):
    """The first drains the epochs; what it was recorded over may be gone, so nothing follows."""
    test = """
def refused_by_both():
    starting.start_epoch = lambda *_: 1 << 40

def test():
    for number in range(8):
        yield code(drafting.draft(4, [row(number)]))
    refused_by_both()
    yield code(drafting.draft(4, [row(8)]))
    yield code(drafting.draft(4, [row(9)]))
    yield code(drafting.draft(4, [row(10, sampled=False)]))
"""
    assert said(directory, test) == ["none"] * 8 + ["BAD_INPUT"] * 3


def test_nothing_is_asked_of_ranks_that_are_ended(directory):
    """Their descriptors are closed, and may be a client's by now."""
    test = """
async def ended():
    await drafting.teardown()
    return drafting.failed.refusal.code

def test():
    yield code(drafting.draft(4, [row(0)]))
    yield ended()
    yield code(drafting.draft(4, [row(1)]))
    yield code(drafting.close(1))
"""
    assert said(directory, test) == ["none", "INTERRUPTED", "INTERRUPTED", "INTERRUPTED"]


def test_what_is_under_way_ends_with_the_ranks(directory):
    """A rank that is stopped answers nobody, and nobody waits for it after its end."""
    test = """
async def under_way():
    os.kill(drafting.pair.ends[0].pid, signal.SIGSTOP)
    asked = asyncio.create_task(code(drafting.compilations()))
    await asyncio.sleep(0)
    await drafting.teardown()
    done, _ = await asyncio.wait([asked], timeout=20)
    return asked.result() if done else "waits"

def test():
    yield under_way()
"""
    assert said(directory, test) == ["INTERRUPTED"]
