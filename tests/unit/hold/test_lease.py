"""A lease and the coordinator's view of it, on a clock that the test moves."""

import pytest

from pp4.clock import ManualClock
from pp4.hold.lease import Contact, Lease

S = 1_000_000_000


def test_a_lease_lasts_from_heartbeat_to_heartbeat():
    clock = ManualClock()
    lease = Lease(clock, 30)
    assert lease.remaining_ns() == 30 * S
    clock.advance(29)
    assert not lease.expired()
    assert lease.renew()
    assert lease.remaining_ns() == 30 * S
    clock.advance(30)
    assert lease.expired()


def test_a_lease_that_ran_out_is_over_for_good():
    clock = ManualClock()
    lease = Lease(clock, 2)
    clock.advance(2)
    assert not lease.renew()
    assert lease.remaining_ns() == 0
    assert lease.expired()
    # also where nobody looked at the moment
    other = Lease(clock, 2)
    clock.advance(5)
    assert not other.renew()
    assert other.expired()


@pytest.mark.parametrize("pass_time", ["advance", "suspend"])
def test_sleep_counts(pass_time):
    clock = ManualClock()
    lease, contact = Lease(clock, 30), Contact(clock, 30)
    getattr(clock, pass_time)(15)
    assert contact.lost()
    assert not lease.expired()
    getattr(clock, pass_time)(15)
    assert lease.expired()


def test_a_coordinator_counts_from_the_sending_of_what_was_answered():
    clock = ManualClock()
    contact = Contact(clock, 30)
    clock.advance(10)
    sent = clock.boottime_ns()
    clock.advance(4)
    # on its way for four seconds: the host may have counted from the first of them
    contact.answered(sent)
    assert contact.remaining_ns() == 11 * S
    # an answer that comes late says nothing new
    contact.answered(0)
    assert contact.remaining_ns() == 11 * S
    clock.advance(11)
    assert contact.lost()


def test_the_coordinator_ends_before_the_host_whatever_their_clocks_rates_up_to_two():
    for rate in (1.0, 1.5, 2.0):
        host, here = ManualClock(), ManualClock()
        lease, contact = Lease(host, 30), Contact(here, 30)
        while not contact.lost():
            assert not lease.expired()
            here.advance(0.5)
            host.advance(0.5 * rate)
        assert not lease.expired() or rate == 2.0
