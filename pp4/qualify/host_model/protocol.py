"""The rules of the exchange as data: the contract, the properties it keeps, and planted bugs.

A protocol is a bundle of switches.  The contract has all of them in the safe position; a planted
bug turns one (with one inbox slot where two slots would hide it), so whatever the exploration
then finds is the doing of that one rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType


class Property(StrEnum):
    """What must hold in every reachable state; the value is a sentence for a person."""

    UNION = "a rank consumes only what its peer stored for this very row"
    REUSE = "nobody overwrites an inbox slot without having seen its message acknowledged"
    RELEASE = "a released reply is complete and right on both ranks"
    HEALTHY = "a run without a fault ends without an error and is released"
    BUDGET = "nobody waits out a budget for a peer that could have said that it failed"
    TERMINATES = "every live rank ends"
    NO_RETRY = "nobody exchanges again after an error"
    STICKY = "no error word is ever cleared"
    SAME_CODE = "both ranks end with the same code, the one of highest precedence"


@dataclass(frozen=True, slots=True)
class Protocol:
    """One variant of the exchange; the defaults are the contract.

    Attributes:
        name: short name in reports.
        breaks: the property that a planted bug is known to break; None for a sound variant.
        slots: inbox slots per row.
        ack_barrier: block barrier between the wait for the acknowledgement and the stores.
        store_barrier: block barrier between the stores of the candidates and the flag.
        read_barrier: block barrier between the wait for the flag and the reads.
        consumed_barrier: block barrier between the reads and the acknowledgement.
        flag_after_data: the flag is stored behind the candidates in program order.
        flag_release: the flag is a release store, not a plain one.
        waits_ack: the sender looks at the acknowledgement before it rewrites a slot.
        sends_ack: the receiver acknowledges.
        device_epoch: epochs are counted on the device, so that a replay goes on counting.
        demands_equal: a flag or acknowledgement above what can be is PROTOCOL.
        tells_peer: an error is written into the word that the peer polls.
        sends_bad_row: a bad row travels in place of the candidates.
        polls_error: waits also look at the word that the peer writes.
        bounded: waits run out.
        looks_first: each row looks at the error words before anything else.
        keeps_words: error words survive the start of the next launch.
        own_and_peer_words: own and peer's errors have words of their own.
        judges_both: the owner demands a clean report of both ranks, not of rank 0 alone.
        demands_stamps: the owner demands the expected completion stamps.
        equal_masks: both ranks take the same rows for active.
        echoes: whatever ends a row, learned or found, goes into the own word and to the peer.
    """

    name: str = "contract"
    breaks: Property | None = None
    slots: int = 2
    ack_barrier: bool = True
    store_barrier: bool = True
    read_barrier: bool = True
    consumed_barrier: bool = True
    flag_after_data: bool = True
    flag_release: bool = True
    waits_ack: bool = True
    sends_ack: bool = True
    device_epoch: bool = True
    demands_equal: bool = True
    tells_peer: bool = True
    sends_bad_row: bool = True
    polls_error: bool = True
    bounded: bool = True
    looks_first: bool = True
    keeps_words: bool = True
    own_and_peer_words: bool = True
    judges_both: bool = True
    demands_stamps: bool = True
    equal_masks: bool = True
    echoes: bool = False


CONTRACT = Protocol()
"""The rules with two inbox slots and no message beyond those that are needed."""

ECHOING = replace(CONTRACT, name="contract-echoing", echoes=True)
"""The rules with every error told: what the kernels do, since a block holds more rows than one."""

ONE_SLOT = replace(CONTRACT, name="contract-one-slot", slots=1)
"""The same rules with a single slot: sound, and the base of bugs that two slots would hide."""


def _planted() -> dict[str, Protocol]:
    """Return every planted bug by name, each with the property it breaks."""

    def bug(name: str, breaks: Property, base: Protocol = CONTRACT, **rule: bool) -> Protocol:
        return replace(base, name=name, breaks=breaks, **rule)

    bugs = [
        bug("missing-barrier", Property.UNION, store_barrier=False),
        bug("flag-before-data", Property.UNION, flag_after_data=False),
        bug("relaxed-flag", Property.UNION, flag_release=False),
        bug("read-before-flag", Property.UNION, read_barrier=False),
        bug("missing-acknowledgement", Property.REUSE, waits_ack=False),
        bug("missing-acknowledgement-one-slot", Property.UNION, ONE_SLOT, waits_ack=False),
        bug("store-before-acknowledgement", Property.UNION, ONE_SLOT, ack_barrier=False),
        bug("acknowledged-before-read", Property.UNION, ONE_SLOT, consumed_barrier=False),
        bug("never-acknowledges", Property.HEALTHY, sends_ack=False),
        bug("reused-epoch", Property.HEALTHY, device_epoch=False),
        bug("higher-epoch-accepted", Property.UNION, demands_equal=False),
        bug("reused-epoch-unchecked", Property.UNION, device_epoch=False, demands_equal=False),
        bug("unequal-masks", Property.UNION, equal_masks=False),
        bug("missing-error-message", Property.BUDGET, tells_peer=False),
        bug("bad-row-kept-back", Property.BUDGET, sends_bad_row=False),
        bug("deaf-wait", Property.BUDGET, polls_error=False),
        bug("unbounded-wait", Property.TERMINATES, bounded=False),
        bug("retries-after-error", Property.NO_RETRY, looks_first=False),
        bug("words-cleared-by-launch", Property.STICKY, keeps_words=False),
        bug("shared-error-word", Property.SAME_CODE, own_and_peer_words=False),
        bug("released-on-one-word", Property.RELEASE, judges_both=False),
        bug("missing-stamp", Property.RELEASE, demands_stamps=False),
    ]
    return {each.name: each for each in bugs}


PLANTED: Mapping[str, Protocol] = MappingProxyType(_planted())
"""Bugs by name; search each ``until`` its ``breaks``.  A search that misses one proves nothing."""
