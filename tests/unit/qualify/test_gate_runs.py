"""Gates with a session that answers what a test says: what they ask, and what they make of it."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pp4.errors import Code, WrongError
from pp4.qualify import context as contexts
from pp4.qualify.context import Context
from pp4.qualify.gates import PHYSICAL, SOLO
from pp4.qualify.settings import REHEARSAL, physical
from pp4.wire import Event
from pp4.wire.facts import Exchange, Expectation, Library
from tests.unit.qualify.gpus import UUIDS, gpu, report
from tests.unit.qualify.judged import identity, one_primed
from tests.unit.qualify.test_session import Channel, Starting
from tests.unit.qualify.test_streams import streams_of
from tests.unit.wire.examples import block, exchange, kept

SHAPE = REHEARSAL.shape.model_dump()
KERNEL = "kernel sampled_fused"


def refusal(code="UNPRIMED", where=KERNEL):
    """A rank's answer that is a refusal."""
    words = dict.fromkeys(("expected", "found", "source", "host", "left", "next"), "x")
    return {"facts": None, "refusal": {"code": code, "where": where, **words}}


def facts(**given):
    """A rank's answer that is facts."""
    return {"facts": given, "refusal": None}


def of(found):
    """An answer that carries a model."""
    return facts(**found.model_dump(mode="json"))


class Scripted:
    """A session whose answers are a table; what it was asked stands in ``asked``."""

    def __init__(self, **answers):
        self.answers, self.asked, self.limits = answers, [], []

    def _answer(self, name, *given):
        self.asked.append((name, *given))
        found = self.answers.get(name, {})
        if isinstance(found, list):
            return found.pop(0)
        return found(*given) if callable(found) else found

    def names(self):
        """What was asked, without its arguments."""
        return [name for name, *_ in self.asked]

    def both(self, verb, first, second=None, *, limit_s=120.0):
        self.limits.append((verb, limit_s))
        return self._answer(verb, first)

    def one(self, rank, verb, arguments, *, limit_s=120.0):
        self.limits.append((verb, limit_s))
        return self._answer("one", rank, verb, arguments)

    def ask(self, verb, **given):
        return self._answer(verb)

    def block(self, case, launches=None, **how) -> Exchange:
        return self._answer("block")

    def expect(self, case, *by):
        return self._answer("expect", case, *by)

    def refusal(self, verb, **given):
        return self._answer("refusal")

    def ready(self, shape, controls):
        return False

    def start(self):
        return self._answer("start")

    def prime(self, shape, **how):
        return self._answer("prime-by-owner", shape)

    def link(self, rows, waits):
        return self._answer("link")

    def teardown(self):
        return {"pids": [1, 2], "dead": [True, True], "links_left": 0}


def arm_of(name, solo=False):
    """An arm of the plan, whichever run has it."""
    (arm,) = (
        arm for gate in (SOLO if solo else PHYSICAL) for arm in gate.arms if arm.step.name == name
    )
    return arm


@pytest.fixture
def hold(tmp_path, monkeypatch):
    hold = Starting(tmp_path)
    # nobody waits for a clock that moves only when it is told to
    monkeypatch.setattr(contexts, "time", SimpleNamespace(sleep=hold.clock.advance))
    # a driver that keeps memory is waited for in real time
    monkeypatch.setattr(contexts, "_AT_REST_S", 0.2)
    yield hold
    hold.journal.close()


@pytest.fixture
def run(hold):
    """Run one arm with a scripted session; -> its finding."""

    def run(name, session, settings=REHEARSAL, **record):
        context = Context(hold, settings)
        for field, facts in record.items():
            setattr(context.record, field, facts)
        context._session = session
        finding = arm_of(name, settings.solo).run(context)
        run.record = context.record
        return finding

    return run


# -- gate 0 and gate 1 ----------------------------------------------------------------------


def patterns(first, second):
    return [
        facts(rank=rank, epochs=epochs, mismatches=0) for rank, epochs in enumerate((first, second))
    ]


def test_a_pattern_needs_both_ranks_to_finish(run):
    asked = REHEARSAL.pattern_epochs
    whole = Scripted(pattern=lambda *_: patterns(asked, asked))
    assert run("gate-0/data-pattern", whole).code is None
    short = Scripted(pattern=lambda *_: patterns(asked, asked - 1))
    assert run("gate-0/data-pattern", short).code is Code.PATTERN_MISMATCH


def test_a_writer_that_refused_is_not_passed_over(run):
    refused = Scripted(pattern=lambda *_: [refusal("STEP_TIMEOUT"), patterns(0, 2000)[1]])
    with pytest.raises(WrongError):
        run("gate-0/data-pattern", refused)


def test_an_early_capture_is_caught_only_at_the_kernel(run):
    primed = [facts(), facts()]
    caught = Scripted(prime=primed, capture=lambda *_: [refusal(), refusal()])
    caught.answers["prime"] = lambda *_: primed
    assert run("gate-1/unprimed-capture", caught).code is Code.UNPRIMED
    elsewhere = Scripted(prime=lambda *_: primed, capture=lambda *_: [refusal(where="block")] * 2)
    assert run("gate-1/unprimed-capture", elsewhere).code is None


def test_priming_that_failed_is_no_early_capture(run):
    failed = Scripted(
        prime=lambda *_: [facts(), refusal("INTERNAL", "compile")],
        capture=lambda *_: [refusal(), refusal()],
    )
    with pytest.raises(WrongError):
        run("gate-1/unprimed-capture", failed)


def prepared(tmp_path, counted, primed=None):
    """Ranks that have primed, and say what they compiled since."""
    (tmp_path / "compiled").mkdir(exist_ok=True)
    (tmp_path / "compiled" / "kernel.cubin").touch()
    ones = primed or [one_primed(rank) for rank in (0, 1)]
    return Scripted(
        block=lambda *_: exchange(),
        prime=lambda *_: [of(one) for one in ones],
        compilations=lambda *_: [facts(compilations=count) for count in counted],
    )


@pytest.mark.parametrize(
    ("counted", "code", "said"),
    [
        ((None, None), None, "not exercised"),
        ((0, 0), None, "none"),
        ((1, 0), Code.COMPILED_AFTER_PRIMING, None),
        ((0, 1), Code.COMPILED_AFTER_PRIMING, None),
    ],
)
def test_a_compilation_at_a_launch_is_counted_where_it_can_be(run, tmp_path, counted, code, said):
    record = {"primed": tuple(one_primed(rank) for rank in (0, 1))}
    finding = run("gate-1/one-specialisation", prepared(tmp_path, counted), **record)
    assert finding.code is code
    if said:
        assert finding.facts["compilation_at_launch"].startswith(said)


A_LIBRARY = [{"name": "a", "sha256": "1"}]


def hashing(libraries):
    """Ranks that run a block; rank 0 hashes what it maps."""
    return Scripted(
        block=lambda *_: exchange(),
        expect=lambda *_: EXPECTED,
        one=lambda rank, verb, _: {(0, "libraries"): facts(libraries=libraries)}[rank, verb],
    )


def ranks_alive(*pids):
    return tuple(
        SimpleNamespace(pid=pid, label=f"owner-1-pair-1-rank-{rank}")
        for rank, pid in enumerate(pids)
    )


def test_libraries_are_those_that_both_ranks_map(run, hold):
    me, nobody = os.getpid(), 2**22 + 1
    hold.alive = ranks_alive(me, me)
    finding = run("gate-0/libraries", hashing(A_LIBRARY))
    assert finding.code is None
    assert run.record.libraries == tuple(Library(**one) for one in A_LIBRARY)
    for alive in ((me, nobody), (nobody, nobody), (me,), ()):
        hold.alive = ranks_alive(*alive)
        found = run("gate-0/libraries", hashing(A_LIBRARY))
        assert found.code is Code.LIBRARY_CHANGED
    hold.alive = ranks_alive(me, me)
    assert run("gate-0/libraries", hashing([])).code is Code.LIBRARY_CHANGED
    sick = hashing(A_LIBRARY)
    sick.answers["block"] = lambda *_: kept("PEER_TIMEOUT")
    with pytest.raises(WrongError) as caught:
        run("gate-0/libraries", sick)
    assert caught.value.refusal.code is Code.PEER_TIMEOUT


def test_libraries_are_those_of_the_evidence(run, hold):
    known = SimpleNamespace(libraries=[Library(**one) for one in A_LIBRARY])
    hold.admission.receipts["solo as identity_reference"] = known
    hold.alive = ranks_alive(os.getpid(), os.getpid())
    assert run("gate-0/libraries", hashing(A_LIBRARY)).code is None
    finding = run("gate-0/libraries", hashing([{"name": "a", "sha256": "2"}]))
    assert finding.code is Code.EVIDENCE_MISMATCH
    assert len(finding.facts["unlike_evidence"]) == 1


@pytest.mark.parametrize(("digest", "code"), [("p", None), ("x", Code.EVIDENCE_MISMATCH)])
def test_the_solo_kernel_is_that_of_the_evidence(run, hold, digest, code):
    ones = [one_primed(rank) for rank in (0, 1)]
    kernels = [
        SimpleNamespace(
            name="sampled_fused.solo",
            rank=rank,
            target="sm_90",
            ptx_sha256=digest,
            cubin_sha256="c",
        )
        for rank in (0, 1)
    ]
    hold.admission.receipts["solo as identity_reference"] = SimpleNamespace(kernels=kernels)
    primed = [one.model_dump(mode="json") for one in ones]
    answer = {"primed": primed, "solo": primed, "meanwhile": "UNPRIMED"}
    session = Scripted(prime=lambda *_: answer, block=lambda *_: exchange())
    finding = run("gate-1/both-primed-before-launch", session)
    assert finding.code is code
    assert bool(finding.facts["unlike_evidence"]) is (code is not None)
    assert run.record.solo == tuple(ones)


def test_a_solo_receipt_of_one_rank_fits_a_pair_that_runs_its_kernel_on_both(run, hold):
    """What a solo run on one GPU writes down is what a pair on two of them has to match."""
    ones = [one_primed(rank) for rank in (0, 1)]
    kernel = SimpleNamespace(
        name="sampled_fused.solo", rank=0, target="sm_90", ptx_sha256="p", cubin_sha256="c"
    )
    hold.admission.receipts["solo as identity_reference"] = SimpleNamespace(kernels=[kernel])
    primed = [one.model_dump(mode="json") for one in ones]
    answer = {"primed": primed, "solo": primed, "meanwhile": "UNPRIMED"}
    session = Scripted(prime=lambda *_: answer, block=lambda *_: exchange())
    assert run("gate-1/both-primed-before-launch", session).code is None


def starting(*devices):
    """Ranks that say on which devices they run."""
    pair = tuple(identity(rank, device=device) for rank, device in enumerate(devices))
    return Scripted(start=lambda *_: pair, definition=lambda *_: [facts(sha256="s")] * 2)


def test_one_gpu_is_held_against_its_own_name(run):
    settings = replace(REHEARSAL, devices=("GPU-a",), solo=True)
    assert run("gate-0/device", starting("GPU-a", "GPU-a"), settings).code is None
    assert run("gate-0/device", starting("GPU-a", "GPU-b"), settings).code is Code.DEVICE_MISMATCH
    wrong = run("gate-0/wrong-device", starting("GPU-a", "GPU-a"), settings)
    assert wrong.code is Code.DEVICE_MISMATCH
    assert run.record.versions == {"python": "3", "torch": "2", "triton": "3"}


# -- what only a GPU can be asked ---------------------------------------------------------------

ON_A_PAIR = physical(UUIDS)
QUIET = 4 << 20


def used(*amounts, **changes):
    """Two GPUs with so much memory in use."""
    return tuple(
        gpu(index, memory_used_bytes=amount, **changes) for index, amount in enumerate(amounts)
    )


def seeing(gpus, **answers):
    """A session whose owner sees these GPUs; they may be made for the moment."""

    def look(*_):
        return report(*(gpus() if callable(gpus) else gpus)).model_dump(mode="json")

    return Scripted(gpus=look, **answers)


@pytest.fixture
def on_gpus(hold):
    """The HOLD is one of two GPUs."""
    hold.gpus = UUIDS
    return hold


def test_what_idle_gpus_use_is_the_baseline(run, on_gpus):
    finding = run("gate-0/idle", seeing(used(QUIET, 0)), ON_A_PAIR)
    assert finding.code is None
    assert finding.facts["memory_used_bytes"] == (str(QUIET), "0")
    assert run.record.baseline == used(QUIET, 0)


@pytest.mark.parametrize("gpus", [used(QUIET, 2 << 30), used(None, 0)])
def test_gpus_that_are_not_idle_are_found(run, on_gpus, gpus):
    assert run("gate-0/idle", seeing(gpus), ON_A_PAIR).code is Code.NOT_IDLE


@pytest.mark.parametrize(("taken", "code"), [(2 << 30, Code.NOT_IDLE), (0, None)])
def test_memory_of_somebody_else_is_looked_for_while_it_is_taken(run, on_gpus, taken, code):
    channel = Channel(Event(sequence=0, name="occupied"))
    on_gpus.script.append(channel)

    def now():
        occupied = on_gpus.started and not on_gpus.stopped
        return used(taken if occupied else 0, 0)

    assert run("gate-0/foreign-memory", seeing(now), ON_A_PAIR).code is code
    # the control itself must not be what gate 7 is held against
    assert run.record.baseline == ()
    assert on_gpus.stopped == [channel]


def settling(gpus, ranks=()):
    return seeing(gpus, settle=lambda *_: {"ranks": list(ranks), "links": []})


LEFT = 64 << 20


@pytest.mark.parametrize(
    ("now", "places"),
    [
        ((QUIET, 0), []),
        ((0, 0), []),
        ((QUIET + LEFT, LEFT), []),
        ((QUIET + LEFT + 1, 0), [0]),
        ((QUIET, LEFT + 1), [1]),
        ((QUIET + 2 * LEFT, 2 * LEFT), [0, 1]),
        # a driver that does not tell has not shown that anything was let go
        ((None, 0), [0]),
    ],
)
def test_gpus_settle_at_their_baseline(run, on_gpus, now, places):
    baseline = used(QUIET, 0)
    finding = run("gate-7/settled", settling(used(*now)), ON_A_PAIR, baseline=baseline)
    assert finding.code is (Code.LEAK if places else None)
    above = [place for place in (0, 1) if finding.facts[f"memory_above_baseline_{place}"]]
    assert above == places


def test_a_driver_may_take_a_moment_to_take_memory_back(run, on_gpus):
    baseline, looks = used(QUIET, 0), []

    def later(*_):
        looks.append(0)
        return used(QUIET + 2 * LEFT if len(looks) < 3 else QUIET, 0)

    session = settling(later)
    assert run("gate-7/settled", session, ON_A_PAIR, baseline=baseline).code is None
    assert len(looks) > 2


def test_a_rank_that_is_left_is_no_settling_whatever_memory_says(run, on_gpus):
    baseline = used(QUIET, 0)
    owned = settling(baseline, ranks=[5])
    assert run("gate-7/settled", owned, ON_A_PAIR, baseline=baseline).code is Code.LEAK
    on_gpus.alive = ranks_alive(5)
    silent = settling(baseline)
    assert run("gate-7/settled", silent, ON_A_PAIR, baseline=baseline).code is Code.LEAK


@pytest.mark.parametrize(
    ("now", "owned", "alive", "code"),
    [
        ((4 * LEFT, 4 * LEFT), [5, 6], (5, 6), Code.LEAK),
        ((4 * LEFT, 0), [5, 6], (5, 6), None),
        ((0, 4 * LEFT), [5, 6], (5, 6), None),
        ((4 * LEFT, 4 * LEFT), [], (5, 6), None),
        ((4 * LEFT, 4 * LEFT), [5, 6], (), None),
    ],
)
def test_a_leak_on_gpus_shows_in_every_place(run, on_gpus, now, owned, alive, code):
    on_gpus.alive = ranks_alive(*alive)
    session = settling(used(*now), owned)
    assert run("gate-7/leak", session, ON_A_PAIR, baseline=used(0, 0)).code is code


def test_one_gpu_settles_alone(run, on_gpus):
    on_gpus.gpus = UUIDS[:1]
    settings = physical(UUIDS[:1])
    quiet, taken = settling(used(0, 8 * LEFT)), settling(used(8 * LEFT, 0))
    assert run("gate-7/settled", quiet, settings, baseline=used(0)).code is None
    assert run("gate-7/settled", taken, settings, baseline=used(0)).code is Code.LEAK


# -- gate 2 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "solo", "code"),
    [
        (((), ()), ((), ()), None),
        (((), ("a store",)), ((), ()), Code.PTX_ORDER),
        (((), ()), (("a store",), ()), Code.PTX_ORDER),
        ((), ((), ()), Code.PTX_ORDER),
        (((), ()), (), Code.PTX_ORDER),
    ],
)
def test_the_order_is_read_in_all_that_was_primed(run, pair, solo, code):
    record = {
        name: tuple(one_primed(rank, faults=faults) for rank, faults in enumerate(ones))
        for name, ones in (("primed", pair), ("solo", solo))
    }
    assert run("gate-2/ptx-order", Scripted(), **record).code is code


# -- gate 3 ---------------------------------------------------------------------------------

EXPECTED = (
    Expectation(by="reference", digest="d" * 64, rows=("row-0", "row-1"), tokens=((1, 2), (3, 4))),
)


def replays(spoiled=None, place=0, stream=None):
    """Replay, then an eager block, for every replay; one of them is spoiled."""
    count = 2 * len(REHEARSAL.depths) * REHEARSAL.replays
    blocks = [exchange() for _ in range(count)]
    if spoiled is not None:
        blocks[place] = spoiled
    return Scripted(
        capture=lambda *_: [facts(), facts()],
        select=lambda *_: {"ranks": [facts(), facts()]},
        expect=lambda *_: EXPECTED,
        block=blocks,
        stream=stream or streams_of,
    )


def test_every_replay_has_an_eager_run_beside_it(run):
    session = replays()
    finding = run("gate-3/replay-equals-eager", session)
    each = REHEARSAL.replays + REHEARSAL.streamed_replays
    assert (finding.code, finding.repetitions) == (None, len(REHEARSAL.depths) * each)
    assert session.answers["block"] == []
    streams = [given for name, *given in session.asked if name == "stream"]
    # the original selector's graph stands between the replays of both kinds
    assert [(one["n_out"], one["off"]) for (one,) in streams] == [
        (depth, True) for depth in REHEARSAL.depths
    ]


@pytest.mark.parametrize("place", range(len(REHEARSAL.depths)))
def test_a_replay_of_a_stream_that_differs_is_found(run, place):
    seen = []

    def stream(asked):
        seen.append(asked)
        return streams_of(asked, {1: {"mismatches": 1}} if len(seen) == place + 1 else {})

    finding = run("gate-3/replay-equals-eager", replays(stream=stream))
    assert finding.code is Code.OUTPUT_MISMATCH
    assert finding.facts["depth"] == REHEARSAL.depths[place]
    assert finding.facts["mismatches"] == (0, 1)


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (kept("PROTOCOL"), Code.PROTOCOL),
        # one that went well, or that ended otherwise, has not met the stale epoch
        (exchange(), None),
        (kept("PEER_TIMEOUT"), Code.PEER_TIMEOUT),
    ],
)
def test_a_reused_epoch_is_met_at_the_second_replay(run, second, code):
    session = Scripted(
        capture=lambda *_: [facts(), facts()],
        block=[exchange(), second],
        expect=lambda *_: EXPECTED,
    )
    finding = run("gate-3/reused-epoch", session)
    assert finding.code is code
    assert finding.facts["first"] == "released"


@pytest.mark.parametrize("first", [kept("INCOMPLETE"), kept("PROTOCOL"), kept("PEER_TIMEOUT")])
def test_a_first_replay_that_was_kept_ends_the_arm(run, first):
    session = Scripted(
        capture=lambda *_: [facts(), facts()],
        block=[first, kept("PROTOCOL")],
        expect=lambda *_: EXPECTED,
    )
    finding = run("gate-3/reused-epoch", session)
    assert finding.code is None
    assert finding.facts["first"] != "released"


@pytest.mark.parametrize("place", range(2 * len(REHEARSAL.depths) * REHEARSAL.replays))
def test_a_replay_or_an_eager_run_that_is_not_healthy_is_found(run, place):
    # rank 1 alone is wrong: rank 0 has the right digest in every one of these
    spoiled = [
        (kept("PEER_TIMEOUT"), Code.PEER_TIMEOUT),
        (exchange(block(0), block(1, digest="x")), Code.RANKS_DIFFER),
        (exchange(block(0), block(1, stamps=())), Code.INCOMPLETE),
    ]
    for found, code in spoiled:
        assert run("gate-3/replay-equals-eager", replays(found, place)).code is code


# -- gate 4 ---------------------------------------------------------------------------------


def test_a_refusal_by_another_name_fails_by_its_own(run):
    session = Scripted(
        select=lambda *_: {"ranks": [refusal("UNSUPPORTED_HEAD_MODE"), refusal("UNPRIMED")]}
    )
    finding = run("gate-4/refusals", session)
    assert finding.code is Code.NOT_ORIGINAL
    assert finding.facts["wanted"] == "UNSUPPORTED_HEAD_MODE"
    assert finding.facts["found"] == ("UNSUPPORTED_HEAD_MODE", "UNPRIMED")


# -- gate 5 ---------------------------------------------------------------------------------

SECOND = 1_000_000_000
BUDGET = REHEARSAL.hasty.first_polls


def late(rank, seconds=0.1, **changes):
    given = {
        "own_error": 3,
        "errors": ((0, 3), (0, 3)),
        "elapsed_ns": round(seconds * SECOND),
        # its budget in polls, of which the acknowledgement has taken a little
        "waited": ((0, BUDGET - 1), (0, 0)),
    }
    return block(rank, **{**given, **changes})


def again(rank, waited=0):
    return of(late(rank, errors=((3, 3), (3, 3)), waited=((waited, 0), (0, 0))))


def failed(name, *blocks, relaunched, **more):
    """A failed block, then ranks that are launched alone, then a healthy pair."""
    return Scripted(
        block=[kept("PEER_TIMEOUT", *blocks, **more), exchange()],
        refusal=Code.STICKY,
        one=lambda rank, verb, _: relaunched[rank],
    )


def alone(session):
    """Ranks that were launched past the owner, one or both."""
    return [asked[:3] for asked in session.asked if asked[0] in ("one", "run")]


def test_the_survivor_of_a_killed_peer_is_launched_again_alone(run):
    session = failed("killed", late(0, 2), relaunched=[again(0)], died=(1,))
    assert run("gate-5/killed", session).code is None
    assert alone(session) == [("one", 0, "run")]


def test_a_survivor_that_waits_again_is_found(run):
    session = failed("killed", late(0, 2), relaunched=[again(0, 2)], died=(1,))
    assert run("gate-5/killed", session).code is Code.STICKY


@pytest.mark.parametrize(("more", "code"), [(0, None), (2 * LEFT, Code.NOT_TORN_DOWN)])
def test_memory_that_stays_is_no_teardown(run, on_gpus, more, code):
    session = failed("late", late(0, 2), late(1), relaunched=[again(0), again(1)])
    session.answers["gpus"] = seeing(used(QUIET + more, 0)).answers["gpus"]
    assert run("gate-5/late-first", session, baseline=used(QUIET, 0)).code is code


def test_ranks_are_launched_again_one_after_the_other(run):
    session = failed("late", late(0, 2), late(1), relaunched=[again(0), again(1)])
    assert run("gate-5/late-first", session).code is None
    assert alone(session) == [("one", 0, "run"), ("one", 1, "run")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_again_is_found(run, rank):
    relaunched = [again(one, 1 if one == rank else 0) for one in (0, 1)]
    session = failed("late", late(0, 2), late(1), relaunched=relaunched)
    assert run("gate-5/late-first", session).code is Code.STICKY


def test_a_wait_far_beyond_its_bound_is_found(run):
    slow = REHEARSAL.failed_block_s + 1
    session = failed("late", late(0, slow), late(1), relaunched=[again(0), again(1)])
    assert run("gate-5/late-first", session).code is Code.WAIT_NOT_BOUNDED


@pytest.mark.parametrize("arm", ["never-launched", "late-first", "late-next"])
@pytest.mark.parametrize("wait", [0, BUDGET // 2, BUDGET + BUDGET // 10 + 1])
def test_a_wait_that_did_not_take_its_budget_is_found(run, arm, wait):
    """A rank that says that it timed out has to have waited, and not for longer."""
    short = [late(0, 2, waited=((0, wait), (0, 0))), late(1, waited=((0, 0), (0, 0)))]
    session = failed("late", *short, relaunched=[again(0), again(1)])
    assert run(f"gate-5/{arm}", session).code is Code.WAIT_NOT_BOUNDED


def test_waits_are_bounded_in_the_unit_of_the_run(run):
    settings = replace(REHEARSAL, unit="ns")
    polls = failed("late", late(0, 2), late(1), relaunched=[again(0), again(1)])
    assert run("gate-5/late-first", polls, settings).code is Code.WAIT_NOT_BOUNDED
    whole = {"waited": ((0, settings.hasty.first_ns), (0, 0))}
    timed = failed("late", late(0, 2, **whole), late(1), relaunched=[again(0), again(1)])
    finding = run("gate-5/late-first", timed, settings)
    assert (finding.code, finding.facts["unit"]) == (None, "ns")
    assert finding.facts["budget"] == str(settings.hasty.first_ns)


def answered(**changes):
    """Rank 0 gave up; rank 1 has something to say."""
    both = late(0, errors=((3, 3), (3, 3))), block(1, **{"peer_error": 3, **changes})
    return Scripted(block=lambda *_: kept("PEER_TIMEOUT", *both))


def test_a_late_rank_that_failed_as_well_controls_nothing(run):
    assert run("gate-5/late-answer", answered()).code is Code.PEER_TIMEOUT
    assert run("gate-5/late-answer", answered(own_error=3)).code is None
    assert run("gate-5/late-answer", answered(stamps=((0, 0), (0, 0)))).code is None
    assert run("gate-5/late-answer", answered(errors=((3, 3), (3, 3)))).code is None


# -- gate 7 ---------------------------------------------------------------------------------


def test_a_workspace_of_an_owner_that_ended_is_not_settled(run, tmp_path):
    session = Scripted(settle=lambda *_: {"ranks": [], "links": []})
    assert run("gate-7/settled", session).code is None
    (tmp_path / "careless-owner-2").mkdir()
    (tmp_path / "careless-owner-2" / "link-1-rank-0").touch()
    finding = run("gate-7/settled", session)
    assert finding.code is Code.LEAK
    assert finding.facts["workspaces_on_disk"] == ("careless-owner-2/link-1-rank-0",)


def test_a_leak_that_shows_in_one_place_only_is_not_caught(run, tmp_path):
    (tmp_path / "link-1-rank-0").touch()
    session = Scripted(settle=lambda *_: {"ranks": [4], "links": ["link-1-rank-0"]})
    assert run("gate-7/leak", session).code is None


def test_libraries_are_hashed_again_at_the_end(run):
    session = hashing(A_LIBRARY)
    # nothing was recorded in gate 0: there is nothing that it could be the same as
    assert run("gate-7/libraries-unchanged", session).code is Code.LIBRARY_CHANGED
    known = tuple(Library(**one) for one in A_LIBRARY)
    assert run("gate-7/libraries-unchanged", session, libraries=known).code is None
