"""What crosses between an arm of a measurement and the engine program that decodes for it.

The program is ``python -m pp4.engine.measured``, told and answering by the frames of
:mod:`pp4.wire.frames`: ``prepare`` once, ``connect`` once, then ``round`` and ``look`` as often as
the arm asks, ``disconnect`` at the end.  A round's answer is a :class:`pp4.receipts.runs.Round`, a
look's a :class:`pp4.receipts.runs.Snapshot`; both are validated again where they are judged.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pp4.receipts.envelope import Decimal, Sha256, Word
from pp4.wire.frames import Model

Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1)]
Limit = Annotated[float, Field(gt=0, le=3600)]
Pid = Annotated[int, Field(ge=1)]


class Prepare(Model):
    """Asks the program to load what it decodes with.

    Attributes:
        target: directory of the target's checkpoint.
        drafter: directory of the drafter's checkpoint; its config says which layers of the target
            are the features, and the rest is read for its digest alone.
        prompts: file of JSON lines, each the token ids of one prompt.
        gpus: UUIDs of the pair, rank 0 first; the target runs on rank 0's.  None of them means
            that it runs on the CPU, and that no GPU is looked at.
        slots: the largest batch of any round.
        depth: positions of a block.
        new_tokens: of every request.
        seed: of every request's key.
    """

    target: str
    drafter: str
    prompts: str
    gpus: Annotated[tuple[str, ...], Field(max_length=2)]
    slots: Size
    depth: Size
    new_tokens: Size
    seed: Annotated[int, Field(ge=0, lt=1 << 53)]


class Prepared(Model):
    """What was loaded.

    Attributes:
        target_sha256: of the checkpoint, as a drafter's is made (names and digests of its files).
        drafter_sha256: of the checkpoint that the arm's worker is told to load.
        prompts_sha256: of the file.
        prompts: how many.
        vocab: of the target.
        context: tokens that a sequence may have.
        device: name of what the target runs on.
        versions: of Python, torch and what else decides a time.
    """

    target_sha256: Sha256
    drafter_sha256: Sha256
    prompts_sha256: Sha256
    prompts: Size
    vocab: Size
    context: Size
    device: str
    versions: dict[str, str]


class Connect(Model):
    """Asks the program to connect to the arm's worker; its own switch has to say the same.

    Attributes:
        socket: path of the worker's.
        sampled: whether the arm is one of sampled drafts.
        limit_s: for the connection.
        processes: the worker's owner and both ranks, whose memory is looked at, by their names
            in its sources.
    """

    socket: str
    sampled: bool
    limit_s: Limit
    processes: dict[Word, Pid]


class RunRound(Model):
    """Asks for one round; equal questions have equal prompts and keys in every arm.

    Attributes:
        phase: ``warm-up`` and ``greedy`` rounds come before the baseline and into no receipt.
        index: in its phase.
        batch: requests.
        temperature: of all of them.
        limit_s: seconds that the round may take.
    """

    phase: Literal["warm-up", "greedy", "headline", "profiled"]
    index: Count
    batch: Size
    temperature: Decimal
    limit_s: Limit


class Look(Model):
    """Asks for a snapshot; its counters are the engine's alone.

    Attributes:
        label: of the snapshot.
    """

    label: Word
