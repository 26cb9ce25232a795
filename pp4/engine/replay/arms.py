"""Which drafts are verified for which requests, and what the verifier says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from pp4.engine.replay.heldout import TEMPERATURES, Heldout
from pp4.engine.replay.producing import Drafts
from pp4.errors import Code, Refusal, WrongError
from pp4.kernels import dyadic24
from pp4.verifier import reference, vectorised
from pp4.verifier.batch import stacked
from pp4.verifier.flaws import Flaw
from pp4.verifier.proposal import Proposal, mode_of, validated
from pp4.verifier.reference import quantised
from pp4.wire import drafts as wire

_KEYS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Arm:
    """Requests of one temperature, drafted for with the switch on or off.

    Attributes:
        temperature: decimal text.
        switch: ``on``, ``off``, or ``either`` at T = 0, where both send the same.
        drafted: by which selector.
    """

    temperature: str
    switch: str
    drafted: wire.Mode

    @property
    def sampled(self) -> bool:
        """Whether its tokens were drawn."""
        return self.drafted == "sampled"

    @property
    def place(self) -> int:
        """Of its temperature among the frozen ones; any at T = 0."""
        return TEMPERATURES.index(self.temperature) if self.temperature in TEMPERATURES else 0


ARMS: Final = (
    Arm("0", "either", "greedy"),
    *(
        arm
        for temperature in TEMPERATURES
        for arm in (Arm(temperature, "on", "sampled"), Arm(temperature, "off", "greedy"))
    ),
)
"""In the order in which they are reported."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the verifier decided for B blocks, on the host.

    Attributes:
        accepted: ``[B]`` int32.
        tokens: ``[B, n + 1]`` int32, -1 behind what is emitted.
    """

    accepted: NDArray[np.int32]
    tokens: NDArray[np.int32]


def proposals(held: Heldout, arm: Arm, drafts: Drafts, first: int) -> list[Proposal]:
    """Return the validated proposals of an arm.

    Args:
        held: the file.
        arm: which drafts, and for which requests.
        drafts: of the blocks from ``first``.
        first: of the blocks.

    Raises:
        WrongError: ``BAD_PROPOSAL``: the producer gave what a verifier refuses.
    """
    nothing = np.full_like(drafts.ids[0], -1), np.zeros_like(drafts.q[0])
    found = []
    for row in range(len(drafts.tokens)):
        block = first + row
        ids, q = (drafts.ids[row], drafts.q[row]) if arm.sampled else nothing
        found.append(
            validated(
                ids=ids,
                q=q,
                tokens=(drafts.tokens if arm.sampled else drafts.greedy)[row],
                mode=mode_of(arm.drafted, float(arm.temperature)),
                depth=held.sizes.depth,
                definition=dyadic24.DEFINITION,
                vocabulary=held.sizes.vocab,
                generation=0,
                slot=row,
                round=int(held.round[block]),
                position=int(held.position[block]),
                key=int(held.key[block]) % _KEYS,
            )
        )
    return found


def targets(held: Heldout, arm: Arm, first: int, last: int) -> torch.Tensor:
    """Return the target's distributions ``[B, n + 1, V]`` float32 along the chain of an arm.

    At T = 0 a distribution has one token, so that no rounding can make a tie.
    """
    if arm.temperature == "0":
        argmax = held.argmax[first:last].long()
        return torch.nn.functional.one_hot(argmax, held.sizes.vocab).to(torch.float32)
    chain = held.sampled if arm.sampled else held.greedy
    return chain.targets[first:last, arm.place]


def verdicts(
    arm: Arm, proposed: Sequence[Proposal], target: torch.Tensor, device: torch.device
) -> Verdicts:
    """Verify proposals on a device.

    Args:
        arm: named where something is wrong.
        proposed: B of one depth.
        target: ``[B, n + 1, V]``.
        device: where to verify.

    Raises:
        WrongError: ``OUTPUT_MISMATCH``: a row was not verified, which a file that was read and
            proposals that were validated exclude.
    """
    batch = stacked(proposed, proposed[0].depth, device)
    found = vectorised.verify(target.to(device), batch)
    error = found.error.cpu().numpy()
    if error.any():
        row = int(np.flatnonzero(error)[0])
        raise _wrong(arm, row, "a verdict", f"the flaw {Flaw(int(error[row])).name}")
    return Verdicts(found.accepted.cpu().numpy(), found.tokens.cpu().numpy())


def compare_exactly(
    arm: Arm, proposed: Sequence[Proposal], target: torch.Tensor, found: Verdicts, rows: int
) -> None:
    """Hold the first rows against the exact verifier in Python integers.

    Args:
        arm: named where something is wrong.
        proposed: B proposals.
        target: ``[B, n + 1, V]``.
        found: what the vectorised verifier said of them.
        rows: how many are looked at.

    Raises:
        WrongError: ``OUTPUT_MISMATCH``: it decides otherwise.
    """
    for row, proposal in enumerate(proposed[:rows]):
        exact = reference.verify(proposal, [quantised(one.numpy()) for one in target[row]])
        behind = (-1,) * (proposal.depth - exact.accepted)
        wanted = (exact.accepted, (*exact.tokens, *behind))
        said = (int(found.accepted[row]), tuple(found.tokens[row].tolist()))
        if said != wanted:
            raise _wrong(arm, row, f"{wanted} of the exact verifier", str(said))


def _wrong(arm: Arm, row: int, expected: str, found: str) -> WrongError:
    where = f"T = {arm.temperature}, switch {arm.switch}, row {row}"
    return WrongError(
        Refusal(Code.OUTPUT_MISMATCH, where, expected, found, source="docs/replay.md")
    )
