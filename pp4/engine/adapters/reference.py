"""The adapter of pp4's own engine, whose verifier is exact: no gap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from pp4.engine.adapters.checking import checked
from pp4.engine.adapters.handshake import Agreed
from pp4.engine.adapters.interface import Answered, Converted, EngineAdapter, Gap
from pp4.verifier.batch import Batch, stacked


@dataclass(frozen=True, slots=True)
class ReferenceAdapter(EngineAdapter[Batch]):
    """Proposals for :func:`pp4.verifier.vectorised.verify`; a row without one is inactive there.

    Attributes:
        agreed: the handshake.
        device: of the tensors.
    """

    name: ClassVar[str] = "pp4"
    gaps: ClassVar[tuple[Gap, ...]] = ()
    at_zero: ClassVar[str] = "compared with the target's argmax, the lower id on ties; q is unused"

    agreed: Agreed
    device: torch.device | str = "cpu"

    def convert(self, rows: Sequence[Answered]) -> Converted[Batch]:
        """See :meth:`EngineAdapter.convert`; the form is ``[B, ...]`` with a row for each."""
        proposals, refusals = checked(self.agreed, rows)
        batch = stacked(proposals, self.agreed.wanted.depth, self.device)
        return Converted(batch, proposals, refusals)
