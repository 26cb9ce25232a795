"""Plans, runs and receipts of fleets that tests look at."""

from pathlib import Path

from pp4.fleet.nodes import NamedNode
from pp4.fleet.plan import make_plan
from pp4.fleet.slurm import pair_directory
from pp4.receipts.build import build
from pp4.receipts.private import open_leaf
from tests.unit.receipts import samples


def uuids(count, letter="a"):
    """UUIDs of a node's GPUs."""
    return tuple(f"GPU-00000000-0000-0000-{ord(letter):04x}-{n:012x}" for n in range(count))


def plan(*sizes, mode="exhaustive", minutes=15, together=False, known=True):
    """A plan of nodes n1, n2, ... with so many GPUs."""
    nodes = [
        NamedNode(f"n{number}", size, uuids(size, chr(96 + number)) if known else ())
        for number, size in enumerate(sizes, start=1)
    ]
    return make_plan(nodes, mode, minutes, together=together)


def failed(body, verdict="wrong"):
    """The same run with an arm that failed."""
    arm = body["gates"][2]["arms"][0]
    arm["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = verdict
    return samples.with_journal(body)


def qualification(pair, *, good=True):
    """The receipt of a pair of UUIDs."""
    body = samples.qualification("kernels")
    for rank, uuid in enumerate(pair):
        body["private"][f"gpu.{rank}.uuid"] = open_leaf(uuid, salt=f"{rank}" * 64)
    return build(body if good else failed(body))


def place(directory, node, pair) -> Path:
    """The directory of a pair that was run."""
    made = pair_directory(directory, node, pair)
    made.mkdir(parents=True, exist_ok=True)
    return made


def leave(directory, node, pair, *, good=True, code=None):
    """What a pair leaves that was run: its receipt and its exit code."""
    made = place(directory, node, pair)
    raw = qualification([node.uuids[gpu] for gpu in pair], good=good)
    (made / "qualification-1.json").write_bytes(raw)
    (made / "exit").write_text(f"{int(not good) if code is None else code}\n")
    return made / "qualification-1.json"
