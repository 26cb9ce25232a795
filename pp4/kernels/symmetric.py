"""The link of a physical pair: PyTorch's symmetric memory, one process per GPU of one host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, Store
from torch.distributed import _symmetric_memory as symmetric

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.kernels.link import Bounds, LinkState, check_link, workspace_words


class Rendezvous:
    """Where two ranks of one host meet before any kernel runs: a store, and bounded agreement.

    Args:
        store: a store that both ranks reach; keys below ``name`` are this rendezvous' own.
        rank: 0 or 1.
        name: names this rendezvous, equal on both ranks and never used twice with one store.
        limit: how long the peer may take for a step.
    """

    def __init__(self, store: Store, rank: int, name: str, limit: timedelta) -> None:
        if rank not in (0, 1):
            raise BadInputError.of("rank", "0 or 1", str(rank))
        self.rank, self.name = rank, name
        self.store = PrefixStore(name, store)
        self._limit = limit
        self._steps = 0

    def agree(self, problem: str, said: str = "") -> str:
        """Tell the peer how a step went; -> what the peer says, where both are well.

        Args:
            problem: what went wrong here, empty where nothing did.
            said: a word for the peer, for instance a digest.

        Raises:
            RefusedError: either rank has a problem, or the peer does not come in time; both ranks
                raise at the same step.
        """
        self._steps += 1
        mine, theirs = (f"{self._steps}/{rank}" for rank in (self.rank, 1 - self.rank))
        self.store.set(mine, f"{problem}\n{said}")
        try:
            self.store.wait([theirs], self._limit)
        except RuntimeError as error:
            raise self._refused(f"no word from rank {1 - self.rank}: {error}") from error
        answer, _, word = self.store.get(theirs).decode().partition("\n")
        if problem or answer:
            raise self._refused(
                f"rank {self.rank}: {problem or 'well'}; rank {1 - self.rank}: {answer or 'well'}"
            )
        return word

    def _refused(self, found: str) -> RefusedError:
        return RefusedError(
            Refusal(
                Code.NO_GPU_PAIR, f"rendezvous {self.name}", "two ranks without a problem", found
            )
        )


def _device_problem(device: torch.device, peer: torch.device) -> str:
    """Why two devices cannot be a pair, empty where they can."""
    count = torch.cuda.device_count()
    for one in (device, peer):
        if one.type != "cuda" or one.index is None or not 0 <= one.index < count:
            return f"{one} is none of {count} CUDA devices"
    if device == peer:
        return f"both ranks on {device}"
    if not torch.cuda.can_device_access_peer(device, peer):
        return f"{device} has no peer access to {peer}"
    return ""


def _problem_of(step: Callable[[], None]) -> str:
    """Take a step; -> what went wrong, empty where nothing did."""
    try:
        step()
    except (RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


class SymmetricMemoryLink(LinkState):
    """Two processes with a GPU each, whose workspaces each maps into its own address space.

    Both ranks go through the same steps and agree after each, so that neither enters the collective
    mapping without the other; a rank that dies inside it leaves the other to the group's own
    timeout.  No kernel may launch before the constructor has returned on both.

    Args:
        rendezvous: where the ranks meet.
        device: this rank's GPU.
        peer: the other rank's GPU as this process numbers it.
        rows: rows of the largest batch, equal on both ranks.
        start: epoch before the first, equal on both ranks.
        bounds: bounds of the waits.

    Raises:
        RefusedError: a GPU, peer access or the mapping is missing on either rank.
        BadInputError: rows or start are out of range.
    """

    shards = 1

    def __init__(
        self,
        rendezvous: Rendezvous,
        *,
        group: ProcessGroup,
        device: torch.device,
        peer: torch.device,
        rows: int,
        start: int,
        bounds: Bounds,
    ) -> None:
        check_link(rows, start)
        self.rank = rendezvous.rank
        self._device = device
        asked = f"{rows} rows from epoch {start}"
        theirs = rendezvous.agree(_device_problem(device, peer), asked)
        rendezvous.agree("" if theirs == asked else f"{asked}, but the peer {theirs}")
        self._handle: Any | None = None
        problem = _problem_of(lambda: self._make_words(rows, start, bounds))
        # both have their words, or nobody enters the collective step that follows
        rendezvous.agree(problem)
        rendezvous.agree(_problem_of(lambda: self._map_peer(group)))

    def _make_words(self, rows: int, start: int, bounds: Bounds) -> None:
        torch.cuda.set_device(self._device)
        words = symmetric.empty(workspace_words(rows), dtype=torch.int64, device=self._device)
        LinkState.__init__(self, words, rows, start, bounds)
        # the peer may write as soon as it has mapped us: what we fill must be filled before
        torch.cuda.synchronize(self._device)

    def _map_peer(self, group: ProcessGroup) -> None:
        handle = symmetric.rendezvous(self._words, group)
        self._peer_address = int(handle.buffer_ptrs[1 - self.rank])
        self._handle = handle

    @property
    def peer_address(self) -> int:
        """Address of the peer's words as this GPU maps them; refuses after :meth:`close`."""
        if not self._peer_address:
            raise RefusedError(Refusal(Code.UNPRIMED, "link", "an open link", "a closed one"))
        return self._peer_address

    def connect(self) -> None:
        """Both ranks were joined when the constructor returned."""

    def close(self) -> None:
        """Wait for this GPU, then let go of both mappings; the peer must have stopped launching.

        When the memory is unmapped is torch's business: it may keep it for a later link.
        """
        torch.cuda.synchronize(self._device)
        self._peer_address = 0
        self._handle = None
        self._words = self._words.new_empty(0)
