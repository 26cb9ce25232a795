"""A rendezvous of as many rows as blocks are resident is refused, whichever is known first."""

from types import SimpleNamespace

import pytest

from pp4.wire import Reply, Request
from pp4.wire.facts import Primed
from pp4.worker.compiling import Homes
from pp4.worker.device import Seats
from pp4.worker.owner import Owner
from tests.unit.worker.owners import PATIENT, SHAPE, case


class Pair:
    """Two ranks whose kernels are loaded and fit so many times; writes down what both are asked."""

    broken = None

    def __init__(self, *resident):
        self.told = []
        self.ends = [
            SimpleNamespace(rank=rank, settled=True, answer=lambda _, rank=rank: self.primed(rank))
            for rank in (0, 1)
        ]
        self.resident = resident

    def __getitem__(self, rank):
        return self.ends[rank]

    def primed(self, rank):
        facts = Primed(
            rank=rank, key="k", target="sm_90", ptx_sha256="p", cubin_sha256="c", faults=(),
            primed_ns=1, resident=self.resident[rank],
        )  # fmt: skip
        return Reply(sequence=1, facts=facts.model_dump(mode="json"))

    def ask(self, rank, verb, arguments):
        """Answered at once, see ``ends``."""

    def until(self, condition, deadline, doing):
        assert condition()

    def both(self, verb, arguments, limit_s):
        self.told.append(verb)
        return Reply(sequence=1, facts={}), Reply(sequence=1, facts={})


@pytest.fixture
def owner(tmp_path):
    def made(*resident, solo=False):
        seats = Seats(("GPU-a",), solo=True) if solo else Seats()
        one = Owner(Homes(tmp_path, tmp_path), seats)
        one._pair = Pair(*resident)
        return one

    return made


def asked(owner, verb, **arguments):
    return owner.answer(Request(sequence=1, verb=verb, arguments=arguments))


def link(owner, rows):
    return asked(owner, "link", nonce="n", fence=0, rows=rows, waits=[PATIENT, PATIENT])


@pytest.mark.parametrize(("rows", "made"), [(1, True), (131, True), (132, False), (999, False)])
def test_after_priming_the_rendezvous_is_refused_and_nobody_is_asked(owner, rows, made):
    one = owner(264, 132)
    assert asked(one, "prime", shape=SHAPE).facts
    one._pair.told.clear()
    reply = link(one, rows)
    assert one._pair.told == (["link", "connect"] if made else [])
    if not made:
        assert reply.refusal["code"] == "OCCUPANCY"
        assert "132 blocks" in reply.refusal["expected"]
        assert reply.refusal["found"] == f"{rows} rows"


@pytest.mark.parametrize(("rows", "sealed"), [(131, True), (132, False)])
def test_after_the_rendezvous_priming_is_refused_and_nothing_launches(owner, rows, sealed):
    one = owner(132, 264)
    assert link(one, rows).facts
    reply = asked(one, "prime", shape=SHAPE)
    assert ("seal" in one._pair.told) is sealed
    if not sealed:
        assert reply.refusal["code"] == "OCCUPANCY"
        assert asked(one, "block", case=case()).refusal["code"] == "UNPRIMED"


def test_what_is_not_known_refuses_nothing(owner):
    one = owner(None, None)
    assert asked(one, "prime", shape=SHAPE).facts
    assert link(one, 10_000).facts


def test_solo_nobody_waits(owner):
    one = owner(132, 132, solo=True)
    assert asked(one, "prime", shape=SHAPE).facts
    assert link(one, 10_000).facts


def test_another_pair_is_measured_anew(owner, monkeypatch):
    one = owner(132, 132)
    assert asked(one, "prime", shape=SHAPE).facts
    monkeypatch.setattr("pp4.worker.owner.Pair", lambda *_: Pair(None, None))
    one._pair = None
    asked(one, "start")
    assert link(one, 10_000).facts
