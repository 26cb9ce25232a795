"""What a whole-worker run saw, made up: two ranks that served the frozen inputs well."""

import hashlib

from pp4.qualify.judge.whole_worker import WholeRun, binaries
from pp4.qualify.whole_settings import REHEARSED
from pp4.wire.facts import PRODUCTION, Library, Primed
from pp4.wire.frozen import FrozenFacts, FrozenOutput, Served, Settled, TornDown

DEVICES = ("interpreter-0", "interpreter-1")
BATCH = REHEARSED.batch
PIDS = (41, 42)


LIBRARIES = (
    Library(name="libcuda.so.570.86.15", sha256="c" * 64),
    Library(name="libof-the-worker-alone.so", sha256="a" * 64),
)


def digest(*words):
    """A digest that no other words have."""
    return hashlib.sha256(" ".join(map(str, words)).encode()).hexdigest()


def primed(rank, name="pair"):
    """What a rank has loaded."""
    return Primed(
        rank=rank,
        key=f"sampled_fused[{name}]",
        target="sm_90",
        ptx_sha256=digest("ptx", name),
        cubin_sha256=digest("cubin", name),
        faults=(),
        primed_ns=1,
    )


def output(batch, n_out, blocks=3):
    """What came out for a batch size and depth."""
    found = tuple(digest("block", batch, n_out, place) for place in range(blocks))
    return FrozenOutput(batch=batch, depth=5, n_out=n_out, blocks=found)


def frozen(**changes):
    """What the frozen inputs gave."""
    given = {
        "definition": "dyadic24-floor-first-v1",
        "definition_sha256": "d" * 64,
        "device": "Triton interpreter",
        "devices": DEVICES,
        "sampled": True,
        "batches": (BATCH,),
        "query_block": 5,
        "input_set_sha256": digest("inputs"),
        "outputs": tuple(output(batch, n_out) for batch in (1, 3) for n_out in (4, 5)),
        "asked_sampled": 14,
        "asked_greedy": 10,
        "with_q": 14,
        "without_q": 10,
        "elapsed_ns": 12345,
        **changes,
    }
    return FrozenFacts(**given)


def served(name="pair", **changes):
    """What the worker said once it served."""
    given = {
        "pids": PIDS,
        "socket": "/work/worker-1.s",
        "kernels": (primed(0, name), primed(1, name)),
        "shape": PRODUCTION,
        "bias": (primed(0, "bias"), primed(1, "bias")),
        "libraries": LIBRARIES,
        "versions": {"python": "3", "torch": "2", "triton": "3"},
        "compilations": (0, 0),
        **changes,
    }
    return Served(**given)


def settled(**changes):
    """What it said after the inputs."""
    counters = {"blocks": 12, "rows": 24, "refusals": {}}
    return Settled(**{"compilations": (0, 0), "counters": counters, **changes})


def torn_down(**changes):
    """What it said at its end."""
    given = {"pids": PIDS, "dead": (True, True), "elapsed_ns": 678, "links_left": 0, **changes}
    return TornDown(**given)


def whole_run(name="pair", **changes):
    """All of it."""
    given = {
        "checkpoint_sha256": digest("checkpoint"),
        "served": served(name),
        "frozen": frozen(),
        "settled": settled(),
        "ended": torn_down(),
        "mapped": ("m", "m"),
        **changes,
    }
    return WholeRun(**given)


SOLO_KERNELS = binaries((primed(0, "solo"), primed(1, "solo")))
