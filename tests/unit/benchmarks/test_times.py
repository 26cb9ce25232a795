"""Inputs, how times are taken, and the tables, with clocks and times that are made up."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.racing import inputs, places, table, timing
from benchmarks.racing.field import DEPTH

CPU = torch.device("cpu")


class Clock:
    """Each replay takes as many microseconds as its graph says."""

    warm_up = 6

    def __init__(self):
        self.now, self.order = 0.0, []

    def graph(self, name, cost):
        def replay():
            self.now += cost
            self.order.append(name)

        return replay

    def mark(self):
        return self.now

    def ahead(self):
        self.order.append("ahead")

    def settle(self):
        self.order.append("settle")

    def between(self, first, last):
        return last - first


def test_graphs_take_turns_between_marks():
    clock = Clock()
    graphs = [clock.graph("a", 10), clock.graph("b", 30)]
    assert timing.blocks_us(5, graphs, clock, 1) == [10, 30, 10, 30, 10]
    assert clock.order == ["ahead", *"ababab", *"ababa", "settle"]
    assert timing.blocks_us(5, graphs, clock, 2) == [20, 20, 20]


def test_every_cold_graph_is_warmed_up_once():
    clock = Clock()
    graphs = [clock.graph(name, 1) for name in range(9)]
    timing.blocks_us(1, graphs, clock, 1)
    assert set(clock.order) >= set(range(9))


def test_what_is_told_of_times():
    times = [float(DEPTH * number) for number in range(2000, 0, -1)]
    assert timing.told(times) == {
        "median_us": 1000.5, "p99_us": 1980.0, "p999_us": 1998.0, "count": 2000,
    }  # fmt: skip
    assert timing.told([40.0], 20)["p999_us"] == 2.0
    found = timing.measured(40, [Clock().graph("a", 1)], Clock(), chains=2)
    assert (found["single"]["count"], found["group"]["count"]) == (40, 2)


def test_numbers_follow_from_their_place():
    whole = places.hashed(5, (64, 100), CPU)
    assert torch.equal(whole, places.hashed(5, (6400,), CPU).view(64, 100))
    assert whole.unique().numel() == 6400
    assert not torch.equal(whole, places.hashed(6, (64, 100), CPU))
    values = places.normal(7, (100_000,), 3.0, CPU).view(torch.bfloat16).double()
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 3) < 0.05
    uniform = places.uniform(8, (100_000,), CPU)
    assert (uniform.min() >= 0) & (uniform.max() < 1)
    assert abs(uniform.mean() - 0.5) < 0.01
    noise = places.exponential(9, (100_000,), CPU)
    assert bool(((noise > 0) & noise.isfinite()).all())
    assert abs(noise.mean() - 1) < 0.02


def test_a_uniform_number_times_a_sum_stays_below_it():
    largest = torch.tensor(1 - 2.0**-23)
    sums = torch.tensor([0.99999, 1.0, 1.000001]).repeat(2)
    assert bool((largest * sums < sums).all())


@pytest.mark.parametrize(("batch", "columns"), [(1, 64640), (8, 64640), (32, 151936), (1, 151936)])
def test_cold_sets_exceed_twice_a_cache(batch, columns):
    count = inputs.cold_sets(batch, columns)
    assert count * batch * DEPTH * columns * 2 > 120_000_000
    assert (count - 1) * batch * DEPTH * columns * 2 <= 120_000_000
    assert count < inputs.MOST_SETS


def test_tied_and_adversarial_inputs_are_what_they_say():
    tied = inputs.given("tied", 3, 2, 4096, CPU).bits.view(torch.bfloat16).float()
    assert sorted(tied.unique().tolist()) == [256.0, 258.0]
    made = inputs.given("adversarial", 3, 2, 256, CPU)
    rows = made.bits.view(torch.bfloat16).float()
    assert rows[0, 0].isfinite().nonzero()[:, 0].tolist() == [0, 127, 128, 255]
    assert rows[0, 1].argmax() == 1
    assert rows[0, 2].unique().tolist() == [2.0**14]
    assert bool((rows[0, 3].diff() >= 0).all())
    assert bool((rows[0, 4].diff() <= 0).all())
    assert sorted(made.bits[1, 4].unique().tolist()) == [-0x8000, 0]
    assert (made.anchor[0], made.uniform[0].unique()) == (255, 0.0)
    timed = inputs.given("timed", 3, 4, 256, CPU)
    assert {request.mode for request in timed.requests} == {1}
    assert {request.mode for request in made.requests} == {1, 2}


def line(contender, batch, warm, cold, rows="cached", vocab=129280):
    times = {
        name: {"group": {"median_us": us}, "single": {"p99_us": us + 1, "p999_us": us + 2}}
        for name, us in (("warm", warm), ("cold", cold))
    }
    shape = {"contender": contender, "batch": batch, "rows": rows, "vocab": vocab}
    return {**shape, "state": "timed", **times}


def verdicts(lines, rate=4.3e12):
    return {one.what: one.verdicts() for one in table.targets(lines, rate)}


def test_targets_are_judged_at_their_bounds():
    lines = [
        line("pp4_pair", 1, 5.0, 7.5), line("nccl_topk", 1, 80.0, 74.9),
        line("pp4_solo", 1, 4.0, 4.0), line("flashinfer_topk", 1, 40.0, 19.9),
        line("flashinfer_logits", 1, 32.0, 25.0), line("pp4_pair", 32, 14.1, 9.0),
    ]  # fmt: skip
    found = verdicts(lines)
    assert found["pair, cached, B = 1: us"] == ["aim", "must"]
    assert found["pair, cached, B = 32: us"] == ["missed", "aim"]
    assert found["pair, cached, B = 8: us"] == ["not measured"] * 2
    assert found["torch top-k and NCCL / pair, cached, B = 1"] == ["aim", "missed"]
    # the better of both sequences is the one that counts
    assert found["best FlashInfer / solo, cached, B = 1"] == ["aim", "missed"]
    assert found["pair, cached, B = 1, block of five: us"] == ["aim", "must"]


def test_uncached_rows_are_held_to_the_stream_of_their_weights():
    # 64,640 rows of 256 BF16 at 3.309568e12 bytes a second: 10 us
    rate = 3.309568e12
    assert table.stream_us(rate) == pytest.approx(10.0)
    lines = [
        line("pp4_pair", 8, 6.0, 7.0), line("pp4_pair", 8, 20.9, 18.9, rows="uncached"),
        line("pp4_pair", 32, 1.0, 1.0, rows="uncached"),
    ]  # fmt: skip
    found = verdicts(lines, rate)
    assert found["pair, uncached, B = 8, warm: us"] == ["must", "not measured"]
    assert found["pair, uncached, B = 8, cold: us"] == ["not measured", "aim"]
    assert found["pair, uncached, B = 1, warm: us"] == ["not measured"] * 2
    assert found["pair, uncached, B = 32: us"] == ["aim", "aim"]
    assert set(verdicts(lines, None)["pair, uncached, B = 8, warm: us"]) == {"not measured"}


def test_no_time_of_a_red_line_is_used_or_shown():
    red = {**line("pp4_pair", 1, 5.0, 5.0), "state": "red", "found": "ids | other\nthan"}
    assert verdicts([red])["pair, cached, B = 1: us"] == ["not measured"] * 2
    text = table.lines_text([red, line("nccl_topk", 1, 50.0, 60.0)])
    assert "| pp4_pair | 129280 | cached | 1 | red ids / other than |" in text
    assert "5.00" not in text
    assert "| - / - |" in text


def test_ratios_are_to_pp4_on_as_many_gpus():
    lines = [
        line("pp4_pair", 1, 5.0, 10.0), line("pp4_solo", 1, 4.0, 4.0),
        line("nccl_topk", 1, 50.0, 60.0), line("torch_topk", 1, 50.0, 60.0),
        line("torch_topk", 1, 50.0, 60.0, vocab=151936),
    ]  # fmt: skip
    rows = table.lines_text(lines).splitlines()[2:]
    ratios = [row.split("|")[-2].strip() for row in rows]
    assert ratios == ["1.00 / 1.00", "1.00 / 1.00", "10.00 / 6.00", "12.50 / 15.00", "- / -"]
    assert "51.00, 52.00" in rows[2]


def test_the_table_of_targets_has_a_line_for_each():
    made = table.targets([line("pp4_pair", 1, 5.0, 8.0)], 4e12)
    text = table.targets_text(made)
    assert "| pair, cached, B = 1: us | 7.50 | 5.00 | 5.00 (aim) | 8.00 (missed) |" in text
    assert len(text.splitlines()) == 2 + len(made)
    assert SimpleNamespace(**vars(made[0])).must == 7.5
