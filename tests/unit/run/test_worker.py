"""The grant as a run hands it on to a worker."""

from pp4.clock import SystemClock
from pp4.hold.inner import InnerHold
from pp4.hold.processes import boot_id
from pp4.hold.rehearsal import open_rehearsal
from pp4.qualify import rehearsal
from pp4.receipts.digests import installed_source
from pp4.run.worker import grant_of
from pp4.transport.local import LocalTransport
from tests.unit.qualify.test_whole_worker import GRANTED


def test_a_step_of_a_hold_hands_on_what_its_host_granted():
    admitted = rehearsal.admission(installed_source())
    hold = InnerHold(admitted, SystemClock(), GRANTED, None)
    assert grant_of(hold) == GRANTED


def test_a_rehearsal_hands_on_a_grant_of_names(tmp_path):
    admitted = rehearsal.admission(installed_source())
    with open_rehearsal(admitted, LocalTransport(), SystemClock(), tmp_path) as hold:
        granted = grant_of(hold)
        assert (granted.hold, granted.fence, granted.nonce) == (hold.hold_id, 1, hold.nonce)
        assert (granted.rehearsal, granted.gpus, granted.boot_id) == (True, (), boot_id())
        left_ns = granted.deadline_boottime_ns - SystemClock().boottime_ns()
        assert 0 < left_ns <= granted.bound_s * 1e9
