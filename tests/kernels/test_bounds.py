"""No load or store leaves its buffer: every buffer ends where the process may not go on reading."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import ctypes, dataclasses, mmap, os, sys
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

vocab, tile, finite = (int(text) for text in sys.argv[1:4])
logits = np.full(vocab, -np.inf, np.float32)
logits[:finite] = 1
case = plain(logits, tile=tile, split=vocab // 2)
case = dataclasses.replace(case, cached=range(vocab) if sys.argv[4] == "cached" else ())
block = case.block(SoloLink(1))
for owner, names in (
    (block, "logits chain ids q token error stamp candidates retired mode key position round"),
    (block.head, "w1 w2 bias slot_of"),
):
    for name in names.split():
        object.__setattr__(owner, name, fenced(getattr(owner, name)))
if sys.argv[5:]:
    block.candidates = block.candidates[:, : -int(sys.argv[5])]
    block.candidates = fenced(block.candidates)
block.run()
check(case, block.outputs())
print("inside")
"""


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("cached", ["cached", "uncached"])
@pytest.mark.parametrize(
    ("vocab", "tile", "finite"),
    [(64, 32, 64), (300, 32, 1), (300, 32, 40), (259, 128, 259)],
    # five lists are padded to eight, and the padding lies past the end of the scratch
    ids=["one tile", "five tiles, one candidate", "five tiles, few", "ragged"],
)
def test_every_access_stays_inside(vocab, tile, finite, cached):
    done = run(vocab, tile, finite, cached)
    assert done.stdout == "inside\n", (done.returncode, done.stderr)


def test_the_fence_is_seen():
    # the last list is cut off, so the kernel must run into the page behind it
    done = run(64, 32, 64, "cached", 32)
    assert done.returncode < 0
