"""No load or store leaves its buffer: every buffer ends where the process may not go on reading."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import ctypes, dataclasses, json, mmap, os, sys
os.environ["TRITON_INTERPRET"] = "1"
import numpy as np, torch
from pp4.kernels.link import SoloLink
from tests.kernels.cases import check, plain

libc = ctypes.CDLL(None, use_errno=True)
kept = []

def fenced(tensor):
    "The same numbers, right below a page that nobody may touch."
    size = tensor.numel() * tensor.element_size()
    pages = -(-size // mmap.PAGESIZE)
    area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    fence = ctypes.c_void_p(start + pages * mmap.PAGESIZE)
    assert libc.mprotect(fence, mmap.PAGESIZE, 0) == 0
    kept.append(area)
    whole = torch.frombuffer(area, dtype=tensor.dtype, count=tensor.numel(),
                             offset=pages * mmap.PAGESIZE - size)
    whole.copy_(tensor.reshape(-1))
    return whole.view(tensor.shape)

def inside(vocab, tile, finite, rows, cached, missing):
    logits = np.full((rows, vocab), -np.inf, np.float32)
    logits[:, :finite] = 1
    case = plain(logits, tile=tile, split=vocab // 2)
    # the tiles have panels that the blocks of other rows take
    narrow = dataclasses.replace(case.geometry, panel=32)
    case = dataclasses.replace(case, geometry=narrow, cached=range(vocab) if cached else ())
    block = case.block(SoloLink(rows))
    for owner, names in (
        (block, "logits chain ids q token error stamp candidates retired mode key position round"),
        (block.head, "w1 w2 bias slot_of"),
    ):
        for name in names.split():
            object.__setattr__(owner, name, fenced(getattr(owner, name)))
    if missing:
        block.candidates = fenced(block.candidates[:-missing])
    block.run()
    check(case, block.outputs())

for numbers in json.loads(sys.argv[1]):
    inside(*numbers)
    print(json.dumps(numbers), flush=True)
"""


SHAPES = {
    "one tile": (64, 32, 64, 1),
    # five lists are padded to eight, and the padding lies past the end of the scratch
    "five tiles, one candidate": (300, 32, 1, 1),
    "five tiles, few": (300, 32, 40, 1),
    "ragged": (259, 128, 259, 1),
    "rows by two": (259, 128, 259, 4),
    "an odd number of rows": (259, 128, 259, 5),
}
CASES = {
    (name, cached): [*shape, cached == "cached", 0]
    for name, shape in SHAPES.items()
    for cached in ("cached", "uncached")
}


def run(*cases):
    """Run cases one after the other in one process; -> it, and the cases that it came through."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def ran():
    return run(*CASES.values())


@pytest.mark.parametrize("cached", ["cached", "uncached"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_access_stays_inside(ran, name, cached):
    done, through = ran
    assert CASES[name, cached] in through, (done.returncode, done.stderr)


def test_the_fence_is_seen():
    good = CASES["one tile", "uncached"]
    # the last list is cut off: 32 keys of 4 bytes
    done, through = run(good, [*SHAPES["one tile"], False, 16])
    assert done.returncode < 0
    assert through == [good]
