"""What the coordinator asks of a pair of ranks and what they report; judged elsewhere.

Facts say what happened in words that need no tensor: digests, error words, stamps, times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from pp4.errors import Code, Refusal, WrongError
from pp4.wire.frames import Model

M = TypeVar("M", bound=BaseModel)
Rank = Annotated[int, Field(ge=0, le=1)]
Word = Annotated[int, Field(ge=0, le=5)]
"""An error word of a rank; rows may hold other numbers, where a kernel did not come to write."""

Ints = tuple[int, ...]
Texts = tuple[str, ...]
Grid = tuple[tuple[int, ...], ...]


def read(model: type[M], tree: object) -> M:
    """Validate a tree that came in a frame.

    Raises:
        WrongError: ``BAD_FRAME``, it is not what the model says.
    """
    try:
        return model.model_validate_json(json.dumps(tree, allow_nan=False))
    except (ValidationError, TypeError, ValueError, RecursionError) as error:
        raise WrongError(
            Refusal(Code.BAD_FRAME, "facts", model.__name__, str(error)[:300])
        ) from error


def refusal_of(tree: Mapping[str, str] | None) -> Refusal:
    """A refusal that crossed the wire; one that cannot be read is itself refused."""
    tree = tree or {}
    try:
        return Refusal(
            code=Code(tree["code"]),
            where=tree["where"],
            expected=tree["expected"],
            found=tree["found"],
            source=tree["source"],
            host=tree["host"],
            left=tree["left"],
            next=tree["next"],
        )
    except (KeyError, ValueError) as error:
        return Refusal(Code.BAD_FRAME, "refusal", "a refusal", repr(error))


class Shape(Model):
    """The geometry that is exercised; the meaning of each word is in ``kernels/geometry.py``."""

    vocab: int
    split: int
    tile: int
    rank_dim: int
    warps: int = 4
    mapped: bool = False


PRODUCTION = Shape(vocab=129280, split=64640, tile=2048, rank_dim=256)
"""The shape that a physical run qualifies first and that a machine says its kernels of."""


class Waits(Model):
    """Bounds of the waits of a link; see ``kernels/link.py``.

    ``epochs`` is how many epochs may follow the first, where fewer than the range are wanted.
    """

    first_ns: int = 2_000_000_000
    next_ns: int = 20_000_000
    first_polls: int = 1_000_000
    next_polls: int = 1_000_000
    epochs: int | None = None


Content = Literal["random", "constant", "tile-ties", "shard-ties", "two-finite", "extremes"]
Flaw = Literal["none", "nan", "inf", "empty"]
Cached = Literal["none", "mixed", "most", "all"]
"""``mixed``: every other token has a bias row; ``most``: all but every 16th, as in a warm cache."""
Source = Literal["reference", "vectorised", "solo"]
"""By what an expectation was made: Python integers, tensors on the device, or the solo kernel."""


class Case(Model):
    """Inputs of one block, made from a seed so that every process makes the same.

    Attributes:
        batch: rows.
        n_out: positions.
        seed: of logits, keys, positions and anchors.
        content: what the base logits look like.
        modes: per row 0 padding, 1 sampled, 2 greedy.
        cached: which anchors have a cached bias row.
        flaw: what is wrong with the logits of row 0, at ``flaw_at``, in shard ``flaw_rank``.
        poisoned: rows whose logits are NaN throughout; padding must not look at them.
    """

    batch: int
    n_out: int
    seed: int
    content: Content = "random"
    modes: Ints
    cached: Cached = "mixed"
    flaw: Flaw = "none"
    flaw_rank: Rank = 0
    flaw_at: int = 0
    poisoned: Ints = ()


class Launch(Model):
    """How a rank runs a case.

    Attributes:
        graph: replay the graph of this name; launch eagerly where it is None.
        control: run this mutant in place of the product's kernel.
        pause_before: say ``paused`` before this position and wait to be resumed.
        delay_ns: hold the launch back for about this long, on the device.
    """

    graph: str | None = None
    control: str | None = None
    pause_before: int | None = None
    delay_ns: Annotated[int, Field(ge=0)] = 0


class Identity(Model):
    """Who a rank is."""

    rank: Rank
    pid: int
    device: str
    device_name: str
    peer_access: bool
    python: str
    torch: str
    triton: str
    mapped: str


class Primed(Model):
    """One compiled specialisation of one rank.

    ``faults`` is what its PTX shows to be out of order.  ``recorded`` says that no compiler ran:
    the digests are those of an earlier compilation in the same HOLD, and of the binaries that it
    left.  ``resident`` is how many of its blocks the device holds at once, None where it was not
    loaded on one.
    """

    rank: Rank
    key: str
    target: str
    ptx_sha256: str
    cubin_sha256: str
    faults: Texts
    primed_ns: int
    recorded: bool = False
    resident: Annotated[int, Field(ge=0)] | None = None


class Block(Model):
    """What one rank saw of one block.

    ``waited`` is how long each exchange waited for the peer: nanoseconds of the GPU's timer, or
    polls where the kernel is interpreted.
    """

    rank: Rank
    digest: str
    rows: Texts
    tokens: Grid
    firsts: Grid
    q_zero: Ints
    errors: Grid
    stamps: Grid
    waited: Grid
    own_error: Word
    peer_error: Word
    epochs: Ints
    launched_ns: int
    elapsed_ns: int

    @property
    def clean(self) -> bool:
        """No word and no row names a fault."""
        rows = any(any(row) for row in self.errors)
        return not (self.own_error or self.peer_error or rows)


class Expectation(Model):
    """What a block must give, by the reference or by the solo kernel."""

    by: Source
    digest: str
    rows: Texts
    tokens: Grid


class Exchange(Model):
    """One block on both ranks, and what the owner did with the reply.

    Attributes:
        blocks: what each rank reported; a rank that died or was never launched has none.
        released: whether the reply may leave.
        why: the code that kept it, or nothing.
        died: ranks that ended during the block.
        order: which ranks were launched, in order.
        expected_stamps: what the owner demanded.
    """

    blocks: tuple[Block, ...]
    released: bool
    why: str
    died: tuple[Rank, ...]
    order: tuple[Rank, ...]
    expected_stamps: Grid

    @model_validator(mode="after")
    def _one_story(self) -> Self:
        """A reply that left has no reason, one that was kept has a reason that pp4 knows."""
        if self.released != (self.why == "") or (self.why and self.why not in set(Code)):
            raise ValueError(f"released {self.released}, why {self.why!r}")
        return self


class Library(Model):
    """One shared library that a process has mapped."""

    name: str
    sha256: str
    build_id: str | None = None


class Pattern(Model):
    """Outcome of writing patterns into a peer's inbox and reading them there."""

    rank: Rank
    epochs: int
    mismatches: int


class Selected(Model):
    """What the branch between the selectors chose.

    Attributes:
        path: which selector ran.
        same_objects: whether the outputs are the very objects that the switch OFF gives.
        tokens: tokens of every row.
        q_zero: whether q is zero throughout.
        block: what the sampled path reported, None where nothing was sampled.
    """

    rank: Rank
    path: Literal["original", "sampled"]
    same_objects: bool
    tokens: Grid
    q_zero: bool
    block: Block | None = None

    @model_validator(mode="after")
    def _sampled_reports(self) -> Self:
        """What was sampled is released or kept like any block, so it is reported like one."""
        if (self.path == "sampled") != (self.block is not None):
            raise ValueError(f"path {self.path} with {'a' if self.block else 'no'} block")
        return self


BUCKETS = 48
"""Powers of two by which waits are counted: up to 2**47 ns, longer than any budget."""


class Stream(Model):
    """Block after block on both ranks without a word from the owner between them.

    Attributes:
        batch: rows.
        n_out: positions.
        cached: which anchors have a cached bias row.
        seed: of the first block; the next ones count up.
        blocks: how many.
        skew_ns: each rank is held back by a random time below this before each block.
        off: whether the original selector's graph is replayed between blocks.
        control: run this mutant in place of the product's kernel.
    """

    batch: int
    n_out: int
    cached: Cached
    seed: int
    blocks: Annotated[int, Field(ge=1)]
    skew_ns: Annotated[int, Field(ge=0)] = 0
    off: bool = False
    control: str | None = None


class Streamed(Model):
    """What one rank saw of a stream of blocks.

    Attributes:
        rank: which.
        blocks: how many it went through; fewer than asked for where a word named a fault.
        rows: rows times positions that were compared.
        mismatches: those that differ from the vectorised reference or lack their stamp.
        first_mismatch: block, row and position of the first, empty where there is none.
        inputs: digest of samples of all inputs.
        outputs: digest of all outputs.
        waits: how many exchanges waited less than 2**i nanoseconds (polls, interpreted) and not
            less than half of that.
        own_error: the rank's own word at the end.
        peer_error: what the peer wrote.
        elapsed_ns: for everything, inputs and comparisons included.
    """

    rank: Rank
    blocks: int
    rows: int
    mismatches: int
    first_mismatch: Ints
    inputs: str
    outputs: str
    waits: Ints
    own_error: Word
    peer_error: Word
    elapsed_ns: int


class Compiled(Model):
    """One compiled specialisation, and what its text shows; ``resident`` as in :class:`Primed`."""

    target: str
    ptx_sha256: str
    cubin_sha256: str
    faults: Texts
    resident: Annotated[int, Field(ge=0)] | None = None


FAULTS: tuple[Code | None, ...] = (
    None,
    Code.EMPTY_ROW,
    Code.BAD_LOGITS,
    Code.PEER_TIMEOUT,
    Code.PROTOCOL,
    Code.EPOCH_EXHAUSTED,
)
"""Error words by number, in rising precedence; the numbers are those of ``kernels/faults.py``."""


def word_of(block: Block) -> Code | None:
    """The gravest fault that a rank's two words name after a block."""
    return FAULTS[max(block.own_error, block.peer_error)]
