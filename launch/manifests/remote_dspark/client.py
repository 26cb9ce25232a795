"""One sequence at a worker, by :mod:`pp4.worker.client`; pp4 has to be installed with its extra."""

from __future__ import annotations

from dspark_runner.engine import Refused

from pp4.errors import Pp4Error
from pp4.worker.client import Ask, Client

KIND = "a pp4 worker"
_REQUEST = 1


class Drafter:
    """A connection with one request open on it.

    Args:
        client: connected, not greeted yet.
        depth: tokens of each draft.

    Attributes:
        abi: what its proposals mean.
        width: BF16 values of one token's features.

    Raises:
        Refused: the worker refuses.
    """

    def __init__(self, client: Client, depth: int) -> None:
        self._client = client
        try:
            offer = client.hello(depth)
            client.open(_REQUEST, key=0)
        except Pp4Error as error:
            client.disconnect()
            raise Refused(str(error)) from error
        self.abi, self.width = offer.abi, offer.feature_width

    def accepted(self, features: bytes) -> None:
        """Take features of the newest accepted tokens."""
        try:
            self._client.features(_REQUEST, features)
        except Pp4Error as error:
            raise Refused(str(error)) from error

    def draft(self, round_: int, anchor: int, temperature: float) -> list[int]:
        """Return the tokens after an anchor."""
        ask = Ask(_REQUEST, round=round_, anchor=anchor, temperature=temperature)
        try:
            return [int(token) for token in self._client.draft(ask).tokens]
        except Pp4Error as error:
            raise Refused(str(error)) from error

    def close(self) -> None:
        """End the connection, and the request with it."""
        self._client.disconnect()


def connect(socket: str, depth: int) -> Drafter:
    """Connect to the worker at a Unix socket.

    Raises:
        Refused: nobody listens there, or the worker refuses.
    """
    try:
        return Drafter(Client.unix(socket), depth)
    except Pp4Error as error:
        raise Refused(str(error)) from error
