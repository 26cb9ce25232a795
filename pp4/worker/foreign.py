"""A control of gate 0: a process that belongs to no pair and takes memory of a GPU.

``python -m pp4.worker.foreign UUID`` says ``occupied`` and stays until its input ends.
"""

from __future__ import annotations

import os
import sys

import torch

from pp4.wire import Event, encode
from pp4.worker.cuda import number_of

_BYTES = 2 << 30


def main(uuid: str) -> None:
    """Take memory, say so, wait for the end of the input."""
    taken = torch.zeros(_BYTES, dtype=torch.uint8, device=torch.device("cuda", number_of(uuid)))
    torch.cuda.synchronize(taken.device)
    rest = memoryview(encode(Event(sequence=0, name="occupied")))
    while rest:
        rest = rest[os.write(1, rest) :]
    while os.read(0, 1 << 16):
        pass


if __name__ == "__main__":
    main(sys.argv[1])
