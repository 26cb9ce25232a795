"""Which specialisations are compiled and loaded; nothing may be compiled once a pair is primed.

A compilation takes seconds and a bounded wait milliseconds, so the first launch of a rank comes
after both ranks have everything loaded.
"""

from __future__ import annotations

from pp4.errors import Code, Refusal, RefusedError, WrongError
from pp4.kernels.geometry import Geometry

KERNEL = "sampled_fused"


def specialisation(geometry: Geometry, shards: int, control: str | None = None) -> str:
    """Name everything that makes a binary of its own, and nothing else; a control by its name."""
    constants = geometry.constants(shards=shards, interpreted=False)
    words = [f"{name}={int(value)}" for name, value in sorted(constants.items())]
    kernel = KERNEL if control is None else f"{KERNEL}+{control}"
    return f"{kernel}[{', '.join(words)}, warps={geometry.warps}]"


class Priming:
    """The specialisations of one rank process."""

    def __init__(self) -> None:
        self._loaded: set[str] = set()
        self.sealed = False

    def check(self, key: str) -> None:
        """Let nothing be compiled that was not primed in time.

        Raises:
            WrongError: ``COMPILED_AFTER_PRIMING``, the pair is primed already.
        """
        if self.sealed and key not in self._loaded:
            raise WrongError(
                Refusal(
                    Code.COMPILED_AFTER_PRIMING,
                    f"kernel {KERNEL}",
                    "no compilation after priming",
                    key,
                )
            )

    def add(self, key: str) -> None:
        """Record a specialisation that was compiled and loaded, the product's or a mutant's.

        Raises:
            WrongError: as :meth:`check`.
        """
        self.check(key)
        self._loaded.add(key)

    def seal(self) -> None:
        """Both ranks have passed the barrier: launches are allowed, compilations are not."""
        self.sealed = True

    def require(self, key: str) -> None:
        """Let a capture or a launch go on only with a primed specialisation.

        Raises:
            RefusedError: ``UNPRIMED``.
        """
        if not self.sealed or key not in self._loaded:
            found = key if self.sealed else f"{key}, and the peer is not known to be primed"
            raise RefusedError(
                Refusal(Code.UNPRIMED, f"kernel {KERNEL}", "a specialisation primed on both", found)
            )
