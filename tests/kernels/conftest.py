"""These tests run the kernels in Triton's interpreter, which is chosen when Triton is imported.

It maps the language once for each launch, which ``test_interpreting.py`` holds against the plain
one, and checks additions and products of integers for overflow.
"""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import pytest
from filelock import FileLock

from pp4.kernels import interpreting
from tests.kernels import compiling, pairs

interpreting.repeat_nothing()


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two rank processes that stay for the session; each case brings workspaces of its own."""
    with pairs.Pair(tmp_path_factory.mktemp("pair")) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def compiled(tmp_path_factory, worker_id):
    """PTX of both specialisations of the small geometry, and of every mutant.

    It takes a while, so the workers of one run share what the first of them compiled.
    """
    own = tmp_path_factory.getbasetemp()
    directory = (own if worker_id == "master" else own.parent) / "compiled"
    directory.mkdir(exist_ok=True)
    with FileLock(directory / "lock"):
        return compiling.everything(directory)
