"""The words that the kernel writes when a row may not be used; a larger word takes precedence."""

from enum import IntEnum

from pp4.errors import Code


class Fault(IntEnum):
    """Error word of a row and of a rank."""

    NONE = 0
    EMPTY_ROW = 1
    BAD_LOGITS = 2
    PEER_TIMEOUT = 3
    PROTOCOL = 4
    EPOCH_EXHAUSTED = 5

    @property
    def code(self) -> Code:
        """The code of the same name; ``NONE`` has none and raises ``ValueError``."""
        return Code(self.name)
