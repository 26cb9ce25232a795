"""Load on a worker: ``python -m tests.faults.worker_load --requests 10000 --clients 8``.

Clients in processes of their own ask for requests whose right replies are known, many at once, give
some up, leave in the middle of everything and come again.  Each draft has to be answered once, by
the right bytes or by the refusal of its end, and the worker's own numbers have to add up to those
of its clients.
"""

import argparse
import contextlib
import json
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pp4.transport.worker_socket import ask_status
from pp4.worker.gpus import read_gpus
from tests.faults.worker_players import Player, Told
from tests.faults.worker_specs import known_specs
from tests.faults.workers import Worker, write_checkpoint
from tests.unit.processes import within

OVERALL_S = 3600.0
QUIET_S = 60.0


@dataclass
class Summary:
    """What a load came to.

    Attributes:
        clients: what all clients saw together.
        worker: by how much the worker's counters rose.
        seconds: of the load alone.
        learning_seconds: in which a lone client asked for what is right.
        wrong: what should not be; empty where all is well.
    """

    clients: dict
    worker: dict
    seconds: float
    learning_seconds: float
    wrong: list = field(default_factory=list)


def run(path, requests, clients, seed=0):
    """Put a load on a worker that nobody else asks; -> a summary.

    Args:
        path: of its socket.
        requests: of all clients together.
        clients: how many.
        seed: of requests and habits.
    """
    began = time.monotonic()
    table = known_specs(path, seed)
    before, learned = quiet(path).counters, time.monotonic()
    shares = [requests // clients + (one < requests % clients) for one in range(clients)]
    # forked, and before there is a thread: starting as many interpreters would take the time
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(clients, forked) as pool:
        jobs = [
            pool.submit(_play, path, table, seed * clients + one, share)
            for one, share in enumerate(shares)
        ]
        told = [job.result(OVERALL_S) for job in jobs]
    ended = time.monotonic()
    standing = quiet(path)
    rose = {name: standing.counters[name] - before.get(name, 0) for name in standing.counters}
    whole = Told()
    for one in told:
        whole.counts.update(one.counts)
        whole.wrong += one.wrong
    wrong = whole.wrong or judged(whole.counts, rose, standing)
    return Summary(dict(whole.counts), rose, ended - learned, learned - began, wrong)


def _play(path, table, seed, requests):
    return Player(path, table, seed).play(requests)


def quiet(path):
    """Wait until nothing is open and nothing waits; -> what STATUS says then, or in the end."""
    found = []

    def still():
        found.append(ask_status(path))
        counters = found[-1].counters
        # whoever asks is connected, and alone
        return (counters["open"], counters["waiting"], counters["connected"]) == (0, 0, 1)

    within(still, QUIET_S)
    return found[-1]


def judged(told, worker, standing):
    """Hold the worker's numbers against those of its clients; -> what does not add up."""
    left, rows = told["left"], worker["rows"]
    ended_otherwise = worker["without_reply"]
    rules = {
        "it serves": standing.state == "serving",
        "nothing is open": standing.counters["open"] == standing.counters["waiting"] == 0,
        "nobody is connected": standing.counters["connected"] == 1,
        "every draft was answered or left": told["asked"]
        == told["proposals"] + told["interrupted"] + left,
        "each draft ended once": worker["asked"] == worker["replies"] + ended_otherwise,
        "no draft was lost": 0 <= worker["asked"] - (told["asked"] - left) <= left,
        "no reply was lost": 0 <= worker["replies"] - told["proposals"] <= left,
        "no end was lost": 0 <= ended_otherwise - told["interrupted"] <= left,
        "aborted": 0 <= worker["aborted"] - told["dropped"] <= left,
        "interrupted": 0 <= worker.get("refused_INTERRUPTED", 0) - told["interrupted"] <= left,
        "bad": 0 <= worker.get("refused_BAD_INPUT", 0) - told["bad"] <= told["bad_left"],
        "no other refusal": not [
            name
            for name, count in worker.items()
            if name.startswith("refused_")
            and name not in ("refused_INTERRUPTED", "refused_BAD_INPUT")
            and count
        ],
        "requests were closed": worker["opened"] == worker["closed"],
        "sessions ended": worker["connections"] == worker["disconnects"],
        "drafts travelled together": worker["blocks"] < rows,
        "batches were padded": worker["blocks"] * standing.offer.batches[-1]
        == rows + worker["padded_rows"],
        "rows were asked for": worker["replies"] <= rows <= worker["asked"],
    }
    return [f"not so: {name}" for name, holds in rules.items() if not holds]


def _where(device):
    """Settings of a worker; on GPUs it is a solo one that no receipt allows."""
    if device != "gpu":
        return {"device": device}
    first = read_gpus().gpus[0].uuid
    program = "tests.faults.unjudged"
    return {"device": device, "gpus": (first,), "solo": True, "cache_mib": 1, "program": program}


@contextlib.contextmanager
def _worker(given):
    """The socket of a worker, one that runs or one of its own."""
    if given.socket is not None:
        yield given.socket
        return
    with tempfile.TemporaryDirectory(prefix="pp4-load-") as name:
        directory = Path(name)
        worker = Worker(
            directory / "w",
            write_checkpoint(directory / "drafter"),
            sampled=not given.off,
            **_where(given.device),
        )
        try:
            yield worker.serving().socket
            if (code := worker.end().code) != 0:
                raise SystemExit(f"the worker ended with {code}")
        finally:
            worker.close()


def main(arguments):
    """Run and print a summary; -> 0 where all was right, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.worker_load")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--device", choices=("reference", "interpreter", "gpu"), default="reference"
    )
    parser.add_argument("--off", action="store_true", help="leave the switch off")
    parser.add_argument(
        "--socket", type=Path, help="of a worker that runs, with one captured batch size"
    )
    given = parser.parse_args(arguments)
    with _worker(given) as path:
        summary = run(path, given.requests, given.clients, given.seed)
    print(json.dumps(vars(summary), indent=2))
    return 1 if summary.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
