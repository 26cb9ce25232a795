"""A time of day that jumps by years changes nothing; boot time that jumps is time that passed."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pp4.clock import Deadline, ManualClock
from pp4.errors import Code, Refusal, TimedOutError, UncleanError
from pp4.hold.desk import Desk
from pp4.hold.lease import Contact, Lease
from pp4.hold.window import Window
from pp4.wire import Request
from pp4.wire.holds import Beat, HostCommand, Open
from tests.unit.hold.holds import GPUS, fence_on_disk, held, private, tombstone
from tests.unit.hold.test_desk import GRANTED, OURS

TTL_S = GRANTED.ttl_s
S = 1_000_000_000
YEARS = st.integers(-40, 400)


class Jumping(ManualClock):
    """A manual clock whose time of day may be set to anything, as an administrator does."""

    def __init__(self):
        super().__init__()
        self._set = timedelta(0)

    def set_wall(self, years):
        """Set the time of day years ahead of the true one, or behind it."""
        self._set = timedelta(days=365.25 * years)

    def wall(self):
        return super().wall() + self._set


# -- a deadline -----------------------------------------------------------------------------


@given(jumps=st.lists(st.tuples(st.floats(0, 50), st.booleans(), YEARS), max_size=8))
def test_a_deadline_counts_what_passed_whatever_the_time_of_day_says(jumps):
    clock = Jumping()
    deadline, inner = Deadline.after(clock, 100), Deadline.after(clock, 100).within(40)
    passed_ns = 0
    for seconds, asleep, years in jumps:
        before_ns = clock.boottime_ns()
        (clock.suspend if asleep else clock.advance)(seconds)
        passed_ns += clock.boottime_ns() - before_ns
        clock.set_wall(years)
        assert deadline.remaining_ns() == max(0, 100 * S - passed_ns)
        assert inner.remaining_ns() == max(0, 40 * S - passed_ns)
        assert deadline.expired() is (passed_ns >= 100 * S)


# -- both sides of a lease ------------------------------------------------------------------


class Sides:
    """A desk and the coordinator's view of it: two clocks, and heartbeats on their way.

    Args:
        rate: how fast the clock of the host runs, where the coordinator's runs at one.
    """

    def __init__(self, rate):
        self.rate, self.here, self.there = rate, Jumping(), Jumping()
        self.lease, self.contact = Lease(self.there, TTL_S), Contact(self.here, TTL_S)
        far = Deadline.after(self.there, 10**9)
        self.desk = Desk(SimpleNamespace(deadline=far), GRANTED, self.lease)
        self.to_host, self.to_coordinator = [], []
        self.given_away = False

    def passes(self, seconds):
        self.here.advance(seconds)
        self.there.advance(seconds * self.rate)

    def coordinator_sleeps(self, seconds):
        self.here.suspend(seconds)
        self.there.advance(seconds * self.rate)

    def host_sleeps(self, seconds):
        self.here.advance(seconds)
        self.there.suspend(seconds * self.rate)

    def time_of_day_is_set(self, years):
        self.here.set_wall(years)
        self.there.set_wall(-years / 10)

    def beats(self, _):
        if not self.contact.lost():
            self.to_host.append(self.here.boottime_ns())

    def arrives(self, which):
        """A heartbeat arrives, however late, and is answered if it is taken."""
        if not self.to_host:
            return
        sent = self.to_host.pop(int(which) % len(self.to_host))
        reply = self.desk.answer_once(Request(sequence=1, verb="beat", arguments=OURS))
        if self.given_away:
            assert reply.refusal["code"] in ("LEASE_LOST", "STALE_FENCE")
        else:
            assert reply.facts["lease_ns"] == TTL_S * S
            self.to_coordinator.append(sent)

    def is_answered(self, which):
        if self.to_coordinator:
            waiting = self.to_coordinator
            self.contact.answered(waiting.pop(int(which) % len(waiting)))

    def host_looks(self, _):
        self.desk.look()

    def check(self):
        # what the host may do with the GPUs from now on, whether or not it has looked
        self.given_away = self.given_away or self.lease.remaining_ns() == 0
        assert not (self.given_away and not self.contact.lost()), "both believe that they have it"
        assert self.desk.closing is None or self.given_away


PASSES = ("passes", "coordinator_sleeps", "host_sleeps")
STEPS = st.one_of(
    st.tuples(st.sampled_from(PASSES), st.sampled_from([0.1, 2.0, 7.0, 14.9, 15.1, 31.0, 4e3])),
    st.tuples(st.just("time_of_day_is_set"), YEARS),
    st.tuples(st.sampled_from(["beats", "host_looks"]), st.just(0)),
    st.tuples(st.sampled_from(["arrives", "is_answered"]), st.integers(0, 3)),
)


@given(rate=st.sampled_from([0.5, 1.0, 1.5, 1.9]), steps=st.lists(STEPS, max_size=40))
@example(1.0, [("beats", 0), ("coordinator_sleeps", 31.0), ("arrives", 0), ("is_answered", 0)])
@example(1.0, [("beats", 0), ("host_sleeps", 4e3), ("arrives", 0), ("host_looks", 0)])
@example(1.0, [("time_of_day_is_set", 400), ("beats", 0), ("arrives", 0), ("host_looks", 0)])
@example(1.0, [("beats", 0), ("arrives", 0), ("passes", 31.0), ("is_answered", 0)])
@example(1.9, [("beats", 0), ("passes", 7.0), ("arrives", 0), ("is_answered", 0)])
def test_never_do_both_believe_that_they_have_it(rate, steps):
    sides = Sides(rate)
    for step, given_to_it in steps:
        getattr(sides, step)(given_to_it)
        sides.check()
    # once it is given away it stays so: the next look closes it, and no heartbeat is taken
    if sides.given_away:
        sides.desk.look()
        assert sides.desk.closing == "abandoned"
        sides.to_host.append(0)
        sides.arrives(0)
        assert sides.desk.closing == "abandoned"


def test_a_host_that_slept_past_the_lease_takes_no_late_heartbeat():
    sides = Sides(1.0)
    sides.beats(0)
    sides.host_sleeps(TTL_S)
    sides.check()
    # the heartbeat waited in the buffer of a socket, and is read before anybody looks at the clock
    sides.arrives(0)
    sides.desk.look()
    assert sides.desk.closing == "abandoned"


# -- a HOLD on the disk ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asleep_s", "why"), [(29.0, None), (30.0, "abandoned"), (4e3, "deadline")]
)
def test_a_host_that_sleeps_ends_its_hold_for_the_reason_that_holds(tmp_path, asleep_s, why):
    clock = Jumping()
    with held(tmp_path, clock=clock, bound_s=1000.0) as hold:
        desk = Desk(hold, GRANTED, Lease(clock, TTL_S))
        clock.suspend(asleep_s)
        desk.look()
        assert (desk.closing is None) is (why is None)
        if desk.closing:
            hold.close(desk.closing)
            assert tombstone(tmp_path, hold.hold_id)["why"] == why
    assert tombstone(tmp_path, hold.hold_id)["why"] == (why or "done")


@pytest.mark.parametrize("years", [-40, 60])
def test_a_time_of_day_that_jumps_changes_no_hold(tmp_path, years):
    clock, exclusion = Jumping(), private(tmp_path)
    with held(tmp_path, clock=clock, exclusion=exclusion, bound_s=1000.0) as hold:
        clock.set_wall(years)
        clock.advance(999)
        assert not hold.deadline.expired()
        hold.within(1).require("what still has its time")
    found = tombstone(tmp_path, hold.hold_id)
    assert found["why"] == "done"
    # for people: as wrong as the clock on the wall
    assert found["closed_at"].startswith(str(clock.wall().year))
    # and back: which of two was later is told by the fence alone
    clock.set_wall(0)
    with held(tmp_path, clock=clock, exclusion=exclusion) as again:
        assert again.fence == hold.fence + 1
    assert [fence_on_disk(exclusion, gpu) for gpu in GPUS] == [again.fence] * 2


# -- a window -------------------------------------------------------------------------------


class Line:
    """Answers at once, or with what a test puts there; keeps what was asked and for how long."""

    ended = None

    def __init__(self):
        self.asked, self.answer = [], self.beat

    def beat(self):
        return Beat(lease_ns=1, deadline_ns=1, steps=()).model_dump(mode="json")

    def ask(self, verb, arguments, deadline):
        self.asked.append((verb, deadline.remaining_ns()))
        return self.answer()

    def redirect(self, argv):
        """Where to is all the same."""

    patient = redirect

    def drop(self):
        """Nothing is open."""


@pytest.fixture
def clock():
    return Jumping()


@pytest.fixture
def line():
    return Line()


@pytest.fixture
def window(clock, line):
    """A window whose heart beats only where a test says so."""
    asked = Open(
        command="c", source_digest="0" * 64, gpus=GPUS, rehearsal=True, coordinator="c",
        transport="ssh", ttl_s=TTL_S, bound_s=GRANTED.bound_s,
        restore=(HostCommand(argv=("true",), limit_s=100.0),),
    )  # fmt: skip
    watcher = SimpleNamespace(alive=lambda *_: None, told=lambda *_: None)
    made = Window(None, lambda *words: list(words), asked, GRANTED, line, clock, watcher, "")
    made._stop.set()
    made._heart.join()
    return made


def refused_before_it_is_asked(window, line):
    before = list(line.asked)
    with pytest.raises(TimedOutError) as raised:
        window.run("a", "m", {})
    assert raised.value.refusal.code is Code.LEASE_LOST
    assert line.asked == before


@pytest.mark.parametrize("years", [-40, 60])
def test_a_coordinator_whose_time_of_day_jumps_goes_on(window, clock, line, years):
    for step in range(40):
        clock.set_wall(years if step % 2 else 0)
        clock.advance(5)
        window._beat_once()
        window.require()
    # every heartbeat had the whole of what was left of half a lease
    assert line.asked == [("beat", 10 * S)] * 40


def test_a_coordinator_that_slept_just_under_half_a_lease_goes_on(window, clock, line):
    for _ in range(3):
        clock.suspend(TTL_S / 2 - 0.001)
        window.require()
        window._beat_once()
    assert [verb for verb, _ in line.asked] == ["beat"] * 3


def test_a_coordinator_that_slept_for_half_a_lease_asks_for_nothing_more(window, clock, line):
    clock.suspend(TTL_S / 2)
    refused_before_it_is_asked(window, line)
    clock.set_wall(-40)
    refused_before_it_is_asked(window, line)


def test_an_answer_that_was_slept_through_revives_nothing(window, clock, line):
    def slept():
        clock.suspend(TTL_S)
        return line.beat()

    line.answer = slept
    window._beat_once()
    refused_before_it_is_asked(window, line)


def test_a_close_after_a_sleep_is_asked_for_no_longer_than_the_host_needs(window, clock, line):
    def nobody():
        raise TimedOutError(Refusal(Code.STEP_TIMEOUT, "supervisor", "an answer", "none"))

    line.answer = nobody
    clock.suspend(10**8)
    clock.set_wall(-40)
    with pytest.raises(UncleanError):
        window.close("cancelled")
    assert line.asked == [("close", 2 * TTL_S * S)]


def test_the_clock_of_these_tests_jumps():
    clock = Jumping()
    clock.set_wall(-40)
    assert clock.wall() < datetime(1990, 1, 1, tzinfo=UTC)
    assert clock.boottime_ns() == clock.monotonic_ns() == 0
