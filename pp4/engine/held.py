"""What is known here of a request that a worker drafts for, enough to begin it anew elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(slots=True, eq=False)
class Held:
    """A request, and the features of all tokens that the target keeps of it.

    They stay on the host for as long as the request lives: 2 x width bytes a token.  A prefill
    would compute them again, but it would also put other keys and values in the place of those
    that the target has, in other bits, and what is emitted would depend on a worker's faults.

    Attributes:
        request: the engine's number.
        key: of its draws.
        kept: tokens with features.
    """

    request: int
    key: int
    kept: int = 0
    _pieces: list[Tensor] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def keep(self, features: Tensor) -> None:
        """Append features ``[T, width]``; none changes nothing."""
        if len(features):
            self._pieces.append(features)
            self._starts.append(self.kept)
            self.kept += len(features)

    def since(self, first: int) -> Tensor:
        """Features ``[kept - first, width]`` from a token on.

        Args:
            first: below ``kept``.
        """
        fresh = 0
        while fresh < len(self._starts) and self._starts[-1 - fresh] > first:
            fresh += 1
        begin = len(self._starts) - 1 - fresh
        return torch.cat(self._pieces[begin:])[first - self._starts[begin] :]
