"""That the gates passed, as a value: what comes after them in a HOLD cannot be called without it.

As with an admission, there is one function that makes it, and it makes it of what it has judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.build import build
from pp4.receipts.digests import Source
from pp4.receipts.gates import Qualification
from pp4.receipts.models import read_model
from pp4.wire.holds import Granted

__all__ = ["Qualified", "qualified"]

_GOOD = {"verdict": "qualified", "scope": "full"}


class Qualified:
    """Proof that every gate of scope ``full`` passed in one HOLD; :func:`qualified` makes it.

    Attributes:
        hold: id of that HOLD.
        fence: its fence.
        body: members of the qualification's receipt, which is sealed when the HOLD is closed.
    """

    __slots__ = ("body", "fence", "hold")

    hold: str
    fence: int
    body: Mapping[str, Any]

    def __new__(cls) -> Qualified:
        """Refuse: it follows from gates that were run."""
        raise TypeError("a Qualified is made by qualified() alone")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("a Qualified has no subclasses")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Qualified does not change: {name}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Qualified cannot be copied or stored")

    def require(self, granted: Granted) -> None:
        """Refuse another HOLD than the one whose gates passed.

        Raises:
            RefusedError: ``STALE_FENCE``.
        """
        here = (granted.hold, granted.fence)
        if here != (self.hold, self.fence):
            expected = f"HOLD {self.hold}, fence {self.fence}, in which the gates passed"
            found = f"HOLD {here[0]}, fence {here[1]}"
            raise RefusedError(Refusal(Code.STALE_FENCE, "after the gates", expected, found))


def qualified(body: Mapping[str, Any], granted: Granted, source: Source) -> Qualified | None:
    """Judge what the gates of a HOLD found; -> None where they do not qualify the pair.

    Neither do gates whose receipt would contradict itself: why it does is said by whoever stores
    it, and keeps what was found.

    Args:
        body: members of the qualification's receipt, as they will be sealed.
        granted: the HOLD, which is open.
        source: that runs.

    Raises:
        RefusedError: ``STALE_FENCE``, they are about another HOLD than this one.
    """
    if any(body.get(name) != good for name, good in _GOOD.items()):
        return None
    try:
        receipt = read_model(build({**body, "source": source.as_dict()}), "the qualification")
    except RefusedError:
        return None
    if not isinstance(receipt, Qualification):
        return None
    made: Qualified = object.__new__(Qualified)
    for name, value in (
        ("hold", receipt.hold.id),
        ("fence", int(receipt.hold.fence)),
        ("body", dict(body)),
    ):
        object.__setattr__(made, name, value)
    made.require(granted)
    return made
