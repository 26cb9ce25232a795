"""Closes kept for a host: delivered, kept on, or forgotten where nothing is left to close."""

from types import SimpleNamespace

import pytest

from pp4.config import load_settings
from pp4.config.hold_file import local_hold_file
from pp4.errors import Code, Refusal, RefusedError, TimedOutError, WrongError
from pp4.hold.deferred import Deferred
from pp4.run import windows

HOLD, ADDRESS = "0123456789abcdef", "user@host:22"


def refusal(code):
    return Refusal(code, "HOLD", "a tombstone", "none")


@pytest.mark.parametrize(
    ("ends", "kept"),
    [
        (None, False),
        # pruned there: there is no such HOLD, and never will be
        (RefusedError(refusal(Code.UNKNOWN_HOLD)), False),
        (RefusedError(refusal(Code.STALE_FENCE)), True),
        (WrongError(refusal(Code.CONNECTION_LOST)), True),
        (TimedOutError(refusal(Code.LEASE_LOST)), True),
    ],
)
def test_a_kept_close_goes_when_it_is_delivered_or_there_is_nothing_to_close(
    tmp_path, monkeypatch, ends, kept
):
    asked, notes = [], []

    def deliver(host, program, close, directories, clock, limit_s):
        asked.append((close.hold, close.fence, directories, limit_s))
        if ends is not None:
            raise ends
        return {"why": "abandoned"}

    monkeypatch.setattr(windows, "deliver", deliver)
    deferred = Deferred(tmp_path / "closes")
    deferred.store(ADDRESS, HOLD, 7, "cancelled")
    deferred.store("user@other:22", "fedcba9876543210", 8, "cancelled")
    place = SimpleNamespace(host=SimpleNamespace(address=ADDRESS), program=None)
    here = {"PP4_STATE_DIR": "/s", "PP4_HOST_DIR": "/h"}
    windows.deliver_kept(place, local_hold_file(load_settings(here)), deferred, notes.append)
    # of this host and no other, and said in any case
    assert asked == [(HOLD, 7, ("/s", "/h"), 0.0)]
    assert len(notes) == 1
    assert HOLD in notes[0]
    assert bool(deferred.pending(ADDRESS)) is kept
    assert len(deferred.pending("user@other:22")) == 1
