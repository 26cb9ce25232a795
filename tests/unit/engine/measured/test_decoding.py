"""One round: what is taken down of it, by which clock, without the collector, within its limit."""

import gc
import hashlib
import json
import weakref

import numpy as np
import pytest

from pp4.clock import Deadline, ManualClock, SystemClock
from pp4.engine.decoding import Engine
from pp4.engine.drafting import Cause
from pp4.engine.measured.decoding import (
    Decoded,
    decode,
    outputs_sha256,
    require_drawn,
    uncollected,
)
from pp4.engine.requests import Request
from pp4.engine.steps import RowFacts, StepFacts
from pp4.errors import Code, TimedOutError, WrongError
from pp4.receipts.runs import Round
from pp4.verifier.units import Mode
from pp4.wire.measured import RunRound
from tests.unit.engine.doubles import TableTarget, greedy
from tests.unit.processes import LONG

PROMPTS = ([3, 1, 4], [7], [2, 2, 5, 1])
STEP_S = 2.0


class Seen(TableTarget):
    """A target whose steps take time by a clock, and that sees whether garbage is collected."""

    def __init__(self, clock):
        super().__init__(12, 8, slots=3, context=64)
        self._clock, self.collecting = clock, []

    def step(self, rows):
        self.collecting.append(gc.isenabled())
        self._clock.advance(STEP_S)
        return super().step(rows)


def soon():
    return Deadline.after(SystemClock(), LONG)


def decoded(limits=(4, 6, 2)):
    """A round without drafts by a clock that only the target moves; -> target, round."""
    clock = ManualClock()
    target = Seen(clock)
    requests = [Request(*one) for one in zip(PROMPTS, limits, strict=True)]
    return target, decode(Engine(target, clock=clock), requests, clock, soon())


def row(accepted, cause=None, mode=Mode.GREEDY_T0):
    mode = mode if cause is None else Mode.INACTIVE
    return RowFacts(0, 0, 0, 1, mode, cause, 5 if cause is None else 0, accepted, (1,))


def step(*rows, draft_s=0.0, target_s=0.0, verify_s=0.0):
    return StepFacts(0, rows, 0.0, draft_s, target_s, verify_s, ())


def test_outputs_are_in_the_order_of_the_requests():
    target, found = decoded()
    wanted = [greedy(target, *one) for one in zip(PROMPTS, (4, 6, 2), strict=True)]
    assert list(found.outputs) == wanted
    assert found.tokens == 12


def test_times_are_those_of_the_clock_that_is_given():
    _, found = decoded()
    assert len(found.steps) == 6
    assert found.elapsed_ns == 12_000_000_000
    assert found.nanoseconds("target") == (2_000_000_000,) * 6
    assert found.nanoseconds("draft") == found.nanoseconds("verify") == (0,) * 6


def test_no_garbage_is_collected_while_it_runs():
    assert gc.isenabled()
    target, found = decoded()
    assert target.collecting == [False] * len(found.steps)
    assert gc.isenabled()


def test_garbage_is_collected_before():
    class Ring:
        pass

    one = Ring()
    one.itself, left = one, weakref.ref(one)
    del one
    assert left() is not None
    with uncollected():
        assert left() is None


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_accepted_rows_are_counted_by_position():
    steps = (step(row(0), row(2)), step(row(5), row(0, Cause.TIMED_OUT)), step(row(2)))
    found = Decoded(((1,),), steps, 1)
    assert found.drafted == 4
    assert found.accepted_by_position(5) == (3, 3, 1, 1, 1)


@pytest.mark.parametrize(
    ("temperature", "sampled", "mode"),
    [
        (0.0, True, Mode.GREEDY_T0),
        (0.0, False, Mode.GREEDY_T0),
        (0.7, True, Mode.SAMPLED),
        (0.7, False, Mode.DELTA),
    ],
)
def test_every_draft_is_of_the_kind_that_the_arm_is_about(temperature, sampled, mode):
    without = row(0, Cause.TIMED_OUT)
    require_drawn(Decoded((), (step(row(1, mode=mode), without),), 1), temperature, sampled)
    for other in {Mode.GREEDY_T0, Mode.SAMPLED, Mode.DELTA} - {mode}:
        rows = (row(1, mode=mode), row(1, mode=other), without)
        with pytest.raises(WrongError) as caught:
            require_drawn(Decoded((), (step(*rows),), 1), temperature, sampled)
        assert caught.value.refusal.code is Code.BAD_PROPOSAL
        assert caught.value.refusal.found == f"1 rows {other.name}"


def test_the_digest_is_over_counted_little_endian_numbers():
    form = bytes.fromhex("02000000 01000000 00010000 00000000 01000000 ffff0300")
    expected = hashlib.sha256(form).hexdigest()
    assert outputs_sha256([(1, 256), (), (0x3FFFF,)]) == expected
    # where one request ends and the next begins is a part of it
    assert outputs_sha256([(1,), (256,)]) != outputs_sha256([(1, 256), ()])


@pytest.mark.parametrize("phase", ["warm-up", "greedy", "headline", "profiled"])
def test_a_round_in_the_form_of_a_receipt(phase):
    steps = (step(row(1), draft_s=0.25, target_s=0.5, verify_s=0.125),)
    asked = RunRound(phase=phase, index=3, batch=1, temperature="0.7", limit_s=1)
    tree = Decoded(((1, 2),), steps, 7).tree(asked, 5, {"rss.engine": "9"}, {"gpu.0.sm_mhz": 4})
    assert tree["phase"] == phase
    # receipts have these two phases alone
    timed = {**tree, "phase": "profiled" if phase == "profiled" else "headline"}
    found = Round.model_validate_json(json.dumps(timed))
    parts = ((500_000_000,), (125_000_000,)) if phase == "profiled" else ((), ())
    assert (found.target_ns, found.verify_ns) == parts
    assert found.draft_ns == (250_000_000,)
    assert (found.index, found.batch, found.temperature, found.tokens) == (3, 1, "0.7", 2)
    assert (found.elapsed_ns, found.drafted, found.accepted_by_position) == (
        "7",
        1,
        (1, 0, 0, 0, 0),
    )
    assert (found.memory_bytes, found.facts) == ({"rss.engine": "9"}, {"gpu.0.sm_mhz": 4})


def test_a_round_past_its_limit_says_how_far_it_came():
    clock = ManualClock()
    # one clock for both: the third step ends past the limit
    deadline = Deadline.after(clock, 2.5 * STEP_S)
    target = Seen(clock)
    engine = Engine(target, clock=clock)
    with pytest.raises(TimedOutError) as caught:
        decode(engine, [Request([3], 2), Request([4], 9)], clock, deadline)
    refusal = caught.value.refusal
    assert refusal.code is Code.STEP_TIMEOUT
    assert refusal.expected == "an end within 5 s"
    assert refusal.found == "1 of 2 requests ended in 3 steps; rows without a draft: 5 no_drafts"
    assert gc.isenabled()


def test_logits_that_are_none_end_it(monkeypatch):
    target = Seen(ManualClock())
    monkeypatch.setattr(target, "after", lambda tokens: np.full(12, np.nan, np.float32))
    with pytest.raises(WrongError) as caught:
        decode(Engine(target), [Request([3], 2)], SystemClock(), soon())
    assert caught.value.refusal.code is Code.BAD_LOGITS
    assert gc.isenabled()
