"""The client of a whole-worker run, as a program: ``python -m pp4.worker.frozen``.

It is told what to do by frames on its standard streams, as an owner of ranks is: ``checkpoint``
makes the drafter or looks at it, ``run`` sends the frozen inputs to the worker on a socket.  It
knows no kernel and has nothing to do with the worker but its socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from pp4.clock import Deadline, SystemClock
from pp4.drafter.checkpoint import synthetic
from pp4.drafter.config import DrafterConfig, Layout
from pp4.errors import Pp4Error
from pp4.wire import Reply, Request
from pp4.wire.facts import read
from pp4.wire.frames import Model
from pp4.wire.frozen import Checkpoint, DrafterSizes, RunFrozen
from pp4.worker.answering import Verb, answer_requests, reply_to
from pp4.worker.client import Ask, Client, Proposal
from pp4.worker.frozen_checkpoint import digest_of
from pp4.worker.frozen_inputs import Asked
from pp4.worker.frozen_run import Connection, run

_WHERE: Final = "frozen inputs"
M = TypeVar("M", bound=Model)


class _Connected:
    """A connection to a worker whose every wait ends with the run's deadline.

    Args:
        client: connected, not greeted yet.
        depth: positions of each draft.
        deadline: of the run.
    """

    def __init__(self, client: Client, depth: int, deadline: Deadline) -> None:
        self._client, self._deadline = client, deadline
        self.offer = client.hello(depth, deadline.remaining_s())

    def open(self, request: int, key: int) -> None:
        """Open a request."""
        self._client.open(request, key, self._deadline.remaining_s())

    def append(self, request: int, first: int, features: bytes) -> None:
        """Append features."""
        self._client.features(request, features, first, self._deadline.remaining_s())

    def draft(self, asked: Mapping[int, Asked]) -> list[Proposal]:
        """Ask for all, then wait for all."""
        asks = [
            Ask(
                request,
                round=one.round,
                anchor=one.anchor,
                temperature=float(one.temperature),
                position=one.position,
            )
            for request, one in asked.items()
        ]
        found: list[Proposal] = []
        for one in self._client.draft_many(asks, self._deadline.remaining_s()):
            if isinstance(one, Pp4Error):
                raise one
            found.append(one)
        return found

    def close(self, request: int) -> None:
        """Close a request."""
        self._client.close(request, self._deadline.remaining_s())


@contextmanager
def connected(socket: str, depth: int, deadline: Deadline) -> Iterator[Connection]:
    """Connect to the worker that listens on a socket.

    Args:
        socket: its path.
        depth: positions of each draft.
        deadline: which no wait outlasts.

    Raises:
        RefusedError: ``UNREACHABLE``; what the worker refuses.
    """
    with Client.unix(socket, deadline.remaining_s()) as client:
        yield _Connected(client, depth, deadline)


def config_of(sizes: DrafterSizes) -> DrafterConfig:
    """The drafter that is made up in these sizes; features come from the lowest layers."""
    return DrafterConfig(
        layout=Layout.DEEPSPEC,
        hidden=sizes.hidden,
        layers=sizes.layers,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        intermediate=sizes.intermediate,
        norm_eps=1e-6,
        rope_theta=1e6,
        max_positions=sizes.positions,
        vocab=sizes.vocab,
        draft_vocab=sizes.vocab,
        block=sizes.block,
        mask_token=sizes.vocab - 1,
        target_layers=tuple(range(sizes.taps)),
        markov_rank=sizes.markov_rank,
        confidence=True,
        confidence_with_markov=True,
    )


def _checkpoint(asked: Checkpoint) -> Model:
    path = Path(asked.path)
    if asked.sizes is not None:
        synthetic.write(path, config_of(asked.sizes), asked.sizes.seed)
    return digest_of(path)


def _run(asked: RunFrozen) -> Model:
    deadline = Deadline.after(SystemClock(), asked.limit_s)
    return run(lambda depth, end: connected(asked.socket, depth, end), asked.inputs, deadline)


def _verb(model: type[M], do: Callable[[M], Model]) -> Verb:
    """Read the arguments of a verb before it is done."""

    def verb(arguments: dict[str, Any]) -> dict[str, Any]:
        return do(read(model, arguments)).model_dump(mode="json")

    return verb


VERBS: Final[Mapping[str, Verb]] = {
    "checkpoint": _verb(Checkpoint, _checkpoint),
    "run": _verb(RunFrozen, _run),
}
"""What can be asked of it."""


def answer(request: Request) -> Reply:
    """Answer one request; every failure is a refusal in the reply."""
    return reply_to(request, VERBS, _WHERE)


if __name__ == "__main__":
    answer_requests(answer)
