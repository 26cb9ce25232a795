"""A pair that is trained once for all tests, tiny and on a CPU."""

import os
import random

import pytest

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

_WORDS = ("alpha", "beta", "count", "delta", "every", "first", "given", "hidden", "index", "joined")


def _file(rng):
    """Source text that is easy to learn: a few kinds of functions over a few names."""
    parts = []
    for _ in range(12):
        name, one, two = (rng.choice(_WORDS) for _ in range(3))
        parts.append(
            f"def {name}_of({one}, {two}):\n"
            f'    """Return {name} of {one} and {two}."""\n'
            f"    if {one} is None:\n"
            f"        return {two}\n"
            f"    return {one} + {two}\n\n\n"
        )
    return "".join(parts)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A directory with source files, and beside them what is no text."""
    directory = tmp_path_factory.mktemp("library")
    rng = random.Random(5)
    for number in range(130):
        place = directory / f"part{number % 3}" / f"module{number}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(_file(rng), "utf-8")
    return directory


@pytest.fixture(scope="session")
def trained(tmp_path_factory, library):
    """The directory of a smoke run."""
    from examples.mini.train import main

    out = tmp_path_factory.mktemp("mini") / "out"
    few = ["--target-steps", "40", "--drafter-steps", "60"]
    words = ["--smoke", "--device", "cpu", "--out", str(out), "--text", str(library), *few]
    assert main(words) == 0
    return out
