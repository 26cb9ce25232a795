"""What crosses for a whole-worker run: the program that sends the frozen inputs, and the worker.

The client program is ``python -m pp4.worker.frozen``, the worker ``python -m pp4.worker.serve``
under the grant of a HOLD; both are told and answer by the frames of :mod:`pp4.wire.frames`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, StringConstraints

from pp4.wire.facts import Library, Primed, Shape
from pp4.wire.frames import Model

InputSet = Literal["full", "small"]
Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Limit = Annotated[float, Field(gt=0, le=3600)]


class DrafterSizes(Model):
    """Sizes of a drafter that is made up from a seed; words as in ``drafter/config.py``.

    Attributes:
        taps: layers of the target whose outputs are the features.
        positions: positions that the backbone is made for.
        seed: of every weight.
    """

    vocab: Size
    hidden: Size
    layers: Size
    intermediate: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    markov_rank: Size
    block: Size
    taps: Size
    positions: Size
    seed: Count


class Checkpoint(Model):
    """Asks the client program for a checkpoint's digest.

    Attributes:
        path: its directory, which is written where ``sizes`` are given.
        sizes: of a drafter that is made up; None for a checkpoint that is there.
    """

    path: str
    sizes: DrafterSizes | None = None


class CheckpointFacts(Model):
    """One checkpoint: a digest over the names and digests of its files, and how large they are."""

    sha256: Sha256
    files: Size
    bytes: Size


class RunFrozen(Model):
    """Asks the client program to send an input set to the worker that listens on a socket."""

    socket: str
    inputs: InputSet
    limit_s: Limit


class FrozenOutput(Model):
    """What came out for one batch size and depth.

    Attributes:
        batch: rows of each block.
        depth: queries of a block.
        n_out: positions that were asked for.
        blocks: sha256 over ids, q, tokens and confidences of all rows of each block, in order.
    """

    batch: Size
    depth: Size
    n_out: Size
    blocks: Annotated[tuple[Sha256, ...], Field(min_length=1)]

    @property
    def key(self) -> tuple[int, int, int]:
        """By which outputs are told apart and sorted."""
        return self.batch, self.depth, self.n_out


class FrozenFacts(Model):
    """What an input set gave.

    Attributes:
        definition: name of the worker's numerical definition.
        definition_sha256: its digest.
        device: model of the worker's devices.
        devices: each rank's device by name.
        sampled: whether the worker's switch is on.
        batches: batch sizes that the worker has captured.
        query_block: queries of a block.
        input_set_sha256: over every input, and over the sizes that they were made for.
        outputs: sorted, each batch size and depth once.
        asked_sampled: rows that were asked for with a temperature above 0.
        asked_greedy: rows with a temperature of 0.
        with_q: rows whose q adds up to 1 at every position.
        without_q: rows whose q is zero throughout.
        elapsed_ns: from the first connection to the last answer.
    """

    definition: str
    definition_sha256: Sha256
    device: str
    devices: tuple[str, str]
    sampled: bool
    batches: tuple[int, ...]
    query_block: Size
    input_set_sha256: Sha256
    outputs: Annotated[tuple[FrozenOutput, ...], Field(min_length=1)]
    asked_sampled: Count
    asked_greedy: Count
    with_q: Count
    without_q: Count
    elapsed_ns: Count


RANKS: Final = re.compile(r"ranks ([1-9][0-9]{0,9}) ([1-9][0-9]{0,9})", re.ASCII)
"""What a worker says, on its way to :class:`Served`, as soon as its ranks are there: their pids."""


def ranks_event(pids: Sequence[int]) -> str:
    """Return what :data:`RANKS` matches."""
    return f"ranks {' '.join(map(str, pids))}"


class Served(Model):
    """A worker's answer to ``serve``, once it takes requests.

    Attributes:
        pids: of both ranks.
        socket: where it listens.
        kernels: what each rank has loaded, rank 0 first; none where the switch is off.
        shape: what that was compiled for.
        bias: what makes bias rows on each rank; empty where that is no kernel.
        libraries: that rank 0 has mapped; none where no GPU is used.
        versions: of Python, torch and Triton.
        compilations: of each rank since it was primed; None where nothing could be seen.
    """

    pids: tuple[int, int]
    socket: str
    kernels: Annotated[tuple[Primed, ...], Field(max_length=2)]
    shape: Shape
    bias: Annotated[tuple[Primed, ...], Field(max_length=2)]
    libraries: tuple[Library, ...]
    versions: dict[str, str]
    compilations: tuple[int | None, int | None]


class Settled(Model):
    """A worker's answer to ``settle``: compilations as in :class:`Served`, and its counters."""

    compilations: tuple[int | None, int | None]
    counters: dict[str, Any]


class TornDown(Model):
    """A worker's answer to ``teardown``.

    Attributes:
        pids: of both ranks.
        dead: whether each is proven dead.
        elapsed_ns: how long that took.
        links_left: workspaces that are still on disk.
    """

    pids: tuple[int, int]
    dead: tuple[bool, bool]
    elapsed_ns: Count
    links_left: Count
