"""What each row of a step emits: drafted and plain ones of one batch, both by the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pp4.engine.distributions import distributions
from pp4.errors import Code, Refusal, WrongError
from pp4.kernels import dyadic24
from pp4.verifier import vectorised
from pp4.verifier.batch import Batch, members, moved
from pp4.verifier.flaws import Flaw
from pp4.verifier.proposal import Proposal
from pp4.verifier.units import Mode


@dataclass(frozen=True, slots=True)
class Play:
    """One row of a step.

    Attributes:
        proposal: what was put before the target, None for the anchor alone.
        temperature: of the request.
        key: likewise.
        position: absolute, of the first token that the row emits.
        round: of the step.
    """

    proposal: Proposal | None
    temperature: float
    key: int
    position: int
    round: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a row emits.

    Attributes:
        accepted: how many proposed tokens.
        tokens: those and one more.
    """

    accepted: int
    tokens: tuple[int, ...]


def judged(logits: Tensor, plays: Sequence[Play]) -> list[Verdict]:
    """Decide what the rows of a step emit.

    Args:
        logits: ``[B, window, V]`` of the step, row i that of ``plays[i]``.
        plays: the rows; proposals of one depth.

    Returns:
        For each row what it emits; without a proposal one token.

    Raises:
        WrongError: ``BAD_LOGITS``, the target's logits give no distribution.
    """
    drafted = [index for index, play in enumerate(plays) if play.proposal is not None]
    plain = [index for index, play in enumerate(plays) if play.proposal is None]
    found: dict[int, Verdict] = {}
    for rows, judge in ((drafted, _drafted), (plain, _plain)):
        if rows:
            told = judge(_rows(logits, rows), [plays[row] for row in rows])
            found |= zip(rows, told, strict=True)
    return [found[row] for row in range(len(plays))]


def _rows(logits: Tensor, rows: Sequence[int]) -> Tensor:
    """Some rows, rising; all of them are not copied."""
    if len(rows) == len(logits):
        return logits
    (chosen,) = moved([np.array(rows)], logits.device)
    return logits.index_select(0, chosen)


def _drafted(logits: Tensor, plays: Sequence[Play]) -> list[Verdict]:
    proposals = [play.proposal for play in plays if play.proposal is not None]
    depth = proposals[0].depth
    p, batch = _given(logits[:, : depth + 1], plays, members(proposals, depth))
    return _read(vectorised.verify(p, batch), plays)


def _given(
    logits: Tensor, plays: Sequence[Play], arrays: Sequence[NDArray[Any]]
) -> tuple[Tensor, Batch]:
    """Distributions, and the batch of these members; one copy to the device."""
    temperatures = [play.temperature for play in plays]
    given, *batch = moved((np.array(temperatures, np.float64), *arrays), logits.device)
    return distributions(logits, temperatures, given), Batch(*batch)


def _plain(logits: Tensor, plays: Sequence[Play]) -> list[Verdict]:
    """One token each, by the BONUS stream: what follows a token that was certain.

    A proposal of token 0, one place earlier, is put before a target that has all of its weight on
    token 0.  It is accepted whatever its word is, and the bonus is drawn from the row's own
    distribution at its own position: the draw that a drafted row's bonus is, and not another one.
    """
    p, batch = _given(logits[:, :1], plays, _certain(plays))
    certain = torch.zeros_like(p)
    certain[:, :, 0] = 1
    verdicts = _read(vectorised.verify(torch.cat((certain, p), 1), batch), plays)
    return [Verdict(0, one.tokens[1:]) for one in verdicts]


def _certain(plays: Sequence[Play]) -> tuple[NDArray[Any], ...]:
    """Members of a batch that proposes token 0, one place earlier."""
    count = len(plays)
    shape = (count, 1, dyadic24.WIDTH)
    modes = [int(Mode.DELTA if play.temperature > 0 else Mode.GREEDY_T0) for play in plays]
    key = np.array([play.key for play in plays], np.uint64).view(np.int64)
    return (
        np.full(shape, -1, np.int32),
        np.zeros(shape, np.int32),
        np.zeros((count, 1), np.int32),
        np.array(modes, np.int32),
        key,
        # an anchor lies before every token that is emitted, so this is a position too
        np.array([play.position - 1 for play in plays], np.int64),
        np.array([play.round for play in plays], np.int64),
    )


def _read(verdicts: vectorised.Verdicts, plays: Sequence[Play]) -> list[Verdict]:
    """Bring verdicts to the host, in one copy."""
    head = verdicts.error[:, None], verdicts.accepted[:, None]
    found = []
    for (error, accepted, *tokens), play in zip(
        torch.cat((*head, verdicts.tokens), dim=1).tolist(), plays, strict=True
    ):
        if error:
            raise _wrong(Flaw(error), play)
        found.append(Verdict(accepted, tuple(tokens[: accepted + 1])))
    return found


def _wrong(flaw: Flaw, play: Play) -> WrongError:
    where = f"target, position {play.position}, round {play.round}"
    if flaw is Flaw.TARGET:
        expected, found = "finite logits", "some that give no distribution"
        return WrongError(Refusal(Code.BAD_LOGITS, where, expected, found))
    # a proposal was validated before, so this is ours
    return WrongError(Refusal(Code.INTERNAL, where, "a proposal that is verified", flaw.name))
