"""Facts by hand that more than one test of the gates holds against a judge."""

from pp4.wire.facts import (
    Identity,
    Primed,
)


def identity(rank, **changes):
    given = {
        "rank": rank,
        "pid": 100 + rank,
        "device": f"d{rank}",
        "device_name": "n",
        "peer_access": True,
        "python": "3",
        "torch": "2",
        "triton": "3",
        "mapped": "m",
    }
    return Identity(**{**given, **changes})


def one_primed(rank, **changes):
    given = {
        "rank": rank,
        "key": "k",
        "target": "sm_90",
        "ptx_sha256": "p",
        "cubin_sha256": "c",
        "faults": (),
        "primed_ns": 10 + rank,
    }
    return Primed(**{**given, **changes})
