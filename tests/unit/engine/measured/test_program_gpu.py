"""What only a GPU shows of an arm's engine: its memory, its clocks, and greedy text with a kernel.

The mini pair with a solo worker of each switch; no receipt allows it (``tests.faults.unjudged``).
"""

import math
from pathlib import Path

import pytest
import torch

from tests.faults.workers import Worker
from tests.unit.engine.measured.arms import Arm, numbers, plain_sha256, question

pytestmark = pytest.mark.gpu

MINI = Path(__file__).parents[4] / "examples" / "mini"
PAIR = {
    "target": str(MINI / "target"),
    "drafter": str(MINI / "drafter"),
    "prompts": str(MINI / "prompts.jsonl"),
}
BATCHES = (1, 8)
NEW_TOKENS = 48
FIRST = {
    (False, "0.7"): 0.606,
    (False, "1.0"): 0.467,
    (True, "0.7"): 0.751,
    (True, "1.0"): 0.680,
}
"""Of what is drafted first the share that is right, by switch and temperature.

From 40 rounds each of the reference device on a CPU, with the prompts of the round below and other
keys each (``benchmarks/RESULTS.md``).  Not the counts of that very round: another library's
products of BF16 have other bits, so a sampled text is another one on another machine.
"""


def gpu():
    """UUID of torch's first GPU."""
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def told():
    return {"gpus": [gpu()], "slots": max(BATCHES), "new_tokens": NEW_TOKENS}


@pytest.fixture(scope="module", params=[True, False], ids=["on", "off"])
def arm(request, tmp_path_factory):
    """A connected arm of each switch."""
    sampled = request.param
    worker = Worker(
        tmp_path_factory.mktemp("gpu") / "w",
        MINI / "drafter",
        program="tests.faults.unjudged",
        sampled=sampled,
        device="gpu",
        gpus=(gpu(),),
        solo=True,
        batches=BATCHES,
        depths=(numbers()["depth"],),
        slots=max(BATCHES),
        context=256,
        cache_mib=1,
    )
    try:
        with Arm(PAIR, sampled) as made:
            yield made.ready(worker.serving(), **told())
    finally:
        worker.close()


@pytest.mark.parametrize("batch", BATCHES)
def test_greedy_text_is_the_targets_own(arm, batch):
    found = arm.ask("round", **question(1, batch=batch))
    assert found["outputs_sha256"] == plain_sha256(PAIR, 1, batch, **told())
    # it is a trained pair: half of what it drafts first is right
    assert 2 * found["accepted_by_position"][0] > found["drafted"] > 0


@pytest.mark.parametrize("temperature", ["0.7", "1.0"])
def test_every_row_is_drafted(arm, temperature):
    found = arm.ask("round", **question(2, temperature, batch=8, phase="profiled"))
    assert found["tokens"] == 8 * NEW_TOKENS
    # five standard deviations of as many draws; with zeros for features it was 0.12 to 0.23
    drafted, share = found["drafted"], FIRST[arm.sampled, temperature]
    spread = math.sqrt(drafted * share * (1 - share))
    assert drafted > 0
    assert abs(found["accepted_by_position"][0] - drafted * share) < 5 * spread
    assert all(found["target_ns"])
    assert all(found["verify_ns"])
    assert set(arm.look().failed_rounds.values()) == {"0"}


def test_memory_has_every_source(arm):
    found = arm.look()
    assert found.unsupported == {}
    processes = {"rss.engine", "rss.worker", "rss.rank0", "rss.rank1"}
    assert (
        set(found.memory_bytes) == {"torch.allocated", "torch.reserved", "nvml.gpu.0"} | processes
    )
    sizes = {name: int(size) for name, size in found.memory_bytes.items()}
    # the target's weights are there at least, and all that torch has is the driver's
    weights = (MINI / "target" / "model.safetensors").stat().st_size
    assert weights < sizes["torch.allocated"] <= sizes["torch.reserved"] < sizes["nvml.gpu.0"]
    assert all(sizes.values())


def test_a_round_says_how_its_gpu_was(arm):
    facts = arm.ask("round", **question())["facts"]
    names = ("sm_mhz", "memory_mhz", "power_mw", "temperature_c", "slowed_by")
    assert set(facts) == {f"gpu.0.{name}" for name in names}
    assert all(facts[f"gpu.0.{name}"] > 0 for name in names[:-1])
    assert isinstance(facts["gpu.0.slowed_by"], list)
