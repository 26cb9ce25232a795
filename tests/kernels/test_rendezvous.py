"""Ranks agree step by step before any kernel runs: both go on, or both refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch.distributed import FileStore

from pp4.errors import BadInputError, Code, RefusedError
from pp4.kernels.link import Bounds
from pp4.kernels.symmetric import Rendezvous, SymmetricMemoryLink

LIMIT = timedelta(seconds=20)
Outcome = str | RefusedError


def both(tmp_path: Path, steps: Callable[[Rendezvous], str]) -> list[Outcome]:
    """Run the same steps on both ranks, each with a store object of its own."""
    found: list[Outcome] = ["", ""]

    def one(rank: int) -> None:
        store = FileStore(str(tmp_path / "store"), 2)
        try:
            found[rank] = steps(Rendezvous(store, rank, "meeting", LIMIT))
        except RefusedError as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_each_hears_the_word_of_the_other(tmp_path: Path) -> None:
    assert both(tmp_path, lambda meeting: meeting.agree("", f"I am {meeting.rank}")) == [
        "I am 1",
        "I am 0",
    ]


def test_steps_do_not_mix(tmp_path: Path) -> None:
    def steps(meeting: Rendezvous) -> str:
        return " ".join(meeting.agree("", f"{meeting.rank}.{step}") for step in range(3))

    assert both(tmp_path, steps) == ["1.0 1.1 1.2", "0.0 0.1 0.2"]


@pytest.mark.parametrize("troubled", [0, 1])
def test_a_problem_of_one_rank_is_a_refusal_on_both(tmp_path: Path, troubled: int) -> None:
    def steps(meeting: Rendezvous) -> str:
        meeting.agree("")
        return meeting.agree("no peer access" if meeting.rank == troubled else "")

    for outcome in both(tmp_path, steps):
        assert isinstance(outcome, RefusedError)
        assert outcome.refusal.code is Code.NO_GPU_PAIR
        assert f"rank {troubled}: no peer access" in outcome.refusal.found
        assert f"rank {1 - troubled}: well" in outcome.refusal.found


def test_a_peer_that_never_comes_is_a_refusal_within_the_limit(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), 2)
    alone = Rendezvous(store, 0, "meeting", timedelta(milliseconds=200))
    with pytest.raises(RefusedError, match="no word from rank 1"):
        alone.agree("")


def test_a_third_rank_refuses(tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        Rendezvous(FileStore(str(tmp_path / "store"), 2), 2, "meeting", LIMIT)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with GPUs gets further")
def test_without_gpus_both_ranks_say_what_is_missing(tmp_path: Path) -> None:
    def steps(meeting: Rendezvous) -> str:
        SymmetricMemoryLink(
            meeting,
            group=None,  # type: ignore[arg-type]
            device=torch.device("cuda", meeting.rank),
            peer=torch.device("cuda", 1 - meeting.rank),
            rows=1,
            start=1,
            bounds=Bounds(),
        )
        return ""

    for outcome in both(tmp_path, steps):
        assert isinstance(outcome, RefusedError)
        assert outcome.refusal.code is Code.NO_GPU_PAIR
        assert "none of 0 CUDA devices" in outcome.refusal.found
