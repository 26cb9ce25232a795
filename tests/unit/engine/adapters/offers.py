"""Offers that fit, agreements, and a worker's replies, for the tests of adapters."""

import numpy as np

from pp4.drafter.config import bounds_of
from pp4.engine.adapters.handshake import Wanted, agreed_on
from pp4.engine.adapters.interface import Answered
from pp4.verifier.units import Mode
from pp4.wire.offers import Offer
from pp4.worker.proposals import Proposal
from tests.unit.verifier.cases import any_fields

DIGEST = "b7172dafa2b8815487f2cc699c19896ea71e2432d41ab4c0069c84cdbf23bed3"
"""Of the definition, as the archived receipts have it."""
TEMPERATURES = {Mode.SAMPLED: 0.7, Mode.DELTA: 1.0, Mode.GREEDY_T0: 0.0}


def wanted(**changes):
    given = {"vocab": 40, "block": 5, "depth": 4, "sampled": True, **changes}
    return Wanted.of(**given)


def offer(**changes):
    """What a worker offers that fits; a smaller vocabulary keeps its bounds."""
    drafted = changes.get("draft_vocab", changes.get("vocab", 40))
    given = {
        "definition": "dyadic24-floor-first-v1",
        "definition_sha256": DIGEST,
        "tau": "0.7",
        "candidates": 32,
        "vocab": 40,
        "draft_vocab": drafted,
        "bounds": bounds_of(drafted, 2),
        "block": 5,
        "depths": (4, 5),
        "feature_width": 8,
        "context": 64,
        "slots": 3,
        "batches": (1, 2),
        "sampled": True,
        "device": "a double",
        "devices": ("first", "second"),
        **changes,
    }
    return Offer(**given)


def agreed(vocab=40, depth=4, sampled=True, on=True):
    return agreed_on(
        wanted(vocab=vocab, depth=depth, sampled=sampled), offer(vocab=vocab, sampled=on)
    )


def reply(fields):
    """A worker's reply with what ``validated`` would take."""
    return Proposal(
        request=1,
        generation=fields["generation"],
        slot=fields["slot"],
        round=fields["round"],
        position=fields["position"],
        mode="sampled" if fields["mode"] is Mode.SAMPLED else "greedy",
        ids=fields["ids"],
        q=fields["q"],
        tokens=fields["tokens"],
        confidence=np.zeros(len(fields["tokens"]), np.float32),
    )


def answered(fields):
    return Answered(TEMPERATURES[fields["mode"]], fields["key"], reply(fields))


def any_answered(random, vocabulary, depth, mode):
    """A sound reply, and the fields that it has."""
    fields = any_fields(random, vocabulary, depth, mode)
    return answered(fields), fields
