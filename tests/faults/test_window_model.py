"""The protocol of a HOLD, rule by rule in any order, against real supervisors."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from pp4.clock import Deadline, SystemClock
from pp4.errors import Code, Pp4Error
from pp4.hold.delivery import near_end
from pp4.hold.line import Line
from pp4.transport.local_host import LocalHost
from pp4.wire.facts import read
from pp4.wire.holds import Granted
from tests.faults.windows import (
    DRILLS,
    asked,
    gone,
    program,
    supervisor_of,
    tokens,
    tombstone,
    until,
)

LABELS = st.sampled_from(["a", "b"])


def code_of(call):
    """What a call is refused with, None where it goes through."""
    try:
        call()
    except Pp4Error as error:
        return error.refusal.code
    return None


class Holds(RuleBasedStateMachine):
    """One host, its HOLDs one after the other, and what has to be true of them."""

    closed = Bundle("closed")

    def __init__(self):
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="pp4-model-"))
        self.host = LocalHost()
        self.granted = None
        self.line = None
        self.steps = {}
        self.fence = 0

    # -- asking -----------------------------------------------------------------------------

    def soon(self):
        return Deadline.after(SystemClock(), 60)

    def ask(self, verb, **arguments):
        named = {"hold": self.granted.hold, "fence": self.granted.fence}
        return self.line.ask(verb, {**named, **arguments}, self.soon())

    def try_open(self):
        line = Line(self.host, program("pp4.hold.relay", "open"))
        told = asked(self.place, ttl_s=300.0).model_dump(mode="json")
        try:
            return line, read(Granted, line.once("open", told, self.soon()))
        except BaseException:
            line.drop()
            raise

    # -- rules ------------------------------------------------------------------------------

    @precondition(lambda self: self.granted is None)
    @rule()
    def open(self):
        self.line, self.granted = self.try_open()
        where = near_end(program, self.granted.hold, *self.directories)
        self.line.redirect(where)
        assert self.granted.fence > self.fence
        self.fence, self.steps = self.granted.fence, {}

    @property
    def directories(self):
        return str(self.place / "state"), str(self.place / "host")

    @precondition(lambda self: self.granted is not None)
    @rule()
    def a_second_one_is_refused(self):
        assert code_of(self.try_open) is Code.HELD_BY

    @precondition(lambda self: self.granted is not None)
    @rule()
    def beat(self):
        facts = self.ask("beat")
        assert facts["lease_ns"] > 299 * 10**9
        assert set(facts["steps"]) <= set(self.steps)

    @precondition(lambda self: self.granted is not None)
    @rule(verb=st.sampled_from(["beat", "start", "watch", "close"]), by=st.sampled_from([-1, 1]))
    def another_fence_is_refused(self, verb, by):
        more = {"start": {"label": "c", "module": DRILLS}, "watch": {"label": "a"}}.get(verb, {})
        refused = code_of(lambda: self.ask(verb, fence=self.granted.fence + by, **more))
        assert refused is Code.STALE_FENCE

    @precondition(lambda self: self.granted is not None)
    @rule(label=LABELS)
    def start(self, label):
        told = {"start": ["setsid", "twice"]}
        refused = code_of(lambda: self.ask("start", label=label, module=DRILLS, arguments=told))
        assert refused is (Code.EXISTS if label in self.steps else None)
        if refused is None:
            seen = until(lambda: self.ask("watch", label=label)["items"])
            self.steps[label] = tokens(seen[0]["pid"], *seen[0]["pids"])

    @precondition(lambda self: self.steps)
    @rule(data=st.data())
    def kill_a_step(self, data):
        label = data.draw(st.sampled_from(sorted(self.steps)))
        first, token = next(iter(self.steps[label].items()))
        if not gone({first: token}):
            os.kill(first, signal.SIGKILL)
        until(lambda: self.ask("watch", label=label)["ended"])
        # its children went with it, wherever they had gone
        until(lambda: gone(self.steps[label]))

    @precondition(lambda self: self.granted is not None)
    @rule()
    def lose_the_connection(self):
        self.line.drop()

    @precondition(lambda self: self.granted is not None)
    @rule(target=closed, why=st.sampled_from(["done", "failed", "cancelled"]))
    def close(self, why):
        hold, fence = self.granted.hold, self.granted.fence
        found = self.ask("close", why=why)["tombstone"]
        assert (found["why"], found["hold"], found["fence"]) == (why, hold, str(fence))
        assert found == tombstone(self.place, hold)
        self.over()
        return hold, fence, found

    @rule(one=closed)
    def close_again(self, one):
        hold, fence, found = one
        line = Line(self.host, near_end(program, hold, *self.directories))
        told = {"hold": hold, "fence": fence, "why": "failed"}
        try:
            assert line.ask("close", told, self.soon())["tombstone"] == found
        finally:
            line.drop()

    @rule(one=consumes(closed))
    def nothing_else_is_answered_for_a_closed_one(self, one):
        hold, fence, _ = one
        line = Line(self.host, near_end(program, hold, *self.directories))
        told = {"hold": hold, "fence": fence, "label": "z", "module": DRILLS, "arguments": {}}
        try:
            refused = code_of(lambda: line.ask("start", told, self.soon()))
            assert refused is Code.STALE_FENCE
            del told["label"], told["module"], told["arguments"]
            told |= {"fence": fence + 1, "why": "done"}
            refused = code_of(lambda: line.ask("close", told, self.soon()))
            assert refused is Code.STALE_FENCE
        finally:
            line.drop()

    @precondition(lambda self: self.granted is not None)
    @rule()
    def kill_the_supervisor(self):
        os.kill(supervisor_of(self.place, self.granted.hold).pid, signal.SIGKILL)
        until(lambda: all(gone(known) for known in self.steps.values()))
        hold = self.granted.hold
        self.over()
        # the next grant finds out
        self.open()
        assert tombstone(self.place, hold)["why"] == "abandoned"

    def over(self):
        assert all(gone(known) for known in self.steps.values())
        self.line.drop()
        self.granted, self.line, self.steps = None, None, {}

    # -- always -----------------------------------------------------------------------------

    @invariant()
    def only_an_open_hold_has_no_tombstone(self):
        if self.granted is not None:
            assert tombstone(self.place, self.granted.hold) is None

    def teardown(self):
        if self.granted is not None:
            self.close("done")
        self.host.close()
        shutil.rmtree(self.place)


TestHolds = Holds.TestCase
TestHolds.settings = settings(max_examples=4, stateful_step_count=12, deadline=None)
