"""What lets a worker switch on, judged twice, and everything that does not."""

import copy
import hashlib
import json
import os
import subprocess
import sys

import pytest

from pp4.clock import ManualClock
from pp4.errors import Code, Exit, RefusedError
from pp4.hold.processes import start_token
from pp4.receipts.build import build, seal
from pp4.receipts.digests import file_digest, installed_source
from pp4.receipts.private import redact
from pp4.wire.facts import Library, Primed
from pp4.wire.holds import Granted
from pp4.wire.machine import MachineGpu
from pp4.wire.serving import settings_of
from pp4.worker import permission as module
from pp4.worker.permission import Here, Loaded, Permission, look_here
from tests.unit.qualify.gpus import gpu, report
from tests.unit.receipts import samples

RAW = samples.sample("qualification")
SOURCE = samples.SOURCE["digest"]
GPUS = tuple(MachineGpu(uuid=u, name="H200", driver="570.1", vbios="96") for u in samples.UUIDS)
HERE = Here(SOURCE, "boot-1", GPUS)
END_NS = 60_000_000_000


def settings(**changes):
    return settings_of(
        {
            "checkpoint": "/c",
            "device": "gpu",
            "gpus": samples.UUIDS,
            "socket": "/s",
            "state": "/a",
            "compiled": "/b",
            **changes,
        }
    )


def by_receipt(tmp_path, raw=RAW, **changes):
    path = tmp_path / "q.json"
    path.write_bytes(raw)
    allowed = {"kind": "qualification", "path": str(path), "sha256": file_digest(raw)}
    return settings(permission=allowed, **changes)


def primed(rank, **changes):
    """The kernel that the sample's receipt names, as a rank reports it."""
    given = {
        "rank": rank,
        "key": "sampled_fused[...]",
        "target": "sm_90",
        "ptx_sha256": samples.digest("1"),
        "cubin_sha256": samples.digest("2"),
        "faults": (),
        "primed_ns": 1,
        **changes,
    }
    return Primed(**given)


BIAS = {"key": "bias_rows[256]", "ptx_sha256": "4" * 64, "cubin_sha256": "5" * 64}


def loaded(*kernels, libraries=None, bias=None):
    known = [Library(**row) for row in samples.LIBRARIES]
    return Loaded(
        kernels or (primed(0), primed(1)),
        known if libraries is None else libraries,
        [primed(rank, **BIAS) for rank in (0, 1)] if bias is None else bias,
    )


def refused(call, *arguments):
    with pytest.raises(RefusedError) as caught:
        call(*arguments)
    assert caught.value.exit is Exit.REFUSED
    return caught.value.refusal


def test_a_qualification_of_these_gpus_and_kernels_allows(tmp_path):
    allowed = Permission(by_receipt(tmp_path), sampled=True)
    allowed.before_start(HERE)
    allowed.after_priming(loaded())
    assert allowed.deadline is None
    assert allowed.words == f"switch on, by qualification {file_digest(RAW)}"


def kernels_only():
    return build(samples.qualification("kernels"))


def failed_run():
    body = samples.qualification()
    body["gates"][2]["arms"][0]["found"] = "failed(OUTPUT_MISMATCH)"
    body["verdict"] = "wrong"
    return build(samples.with_journal(body))


def tampered():
    return RAW.replace(b"570.1", b"570.2")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (kernels_only, Code.NOT_PROVEN),
        (failed_run, Code.NOT_PROVEN),
        (lambda: samples.sample("rehearsal"), Code.WRONG_KIND),
        (lambda: samples.sample("solo"), Code.WRONG_KIND),
        (lambda: samples.sample("whole_worker"), Code.WRONG_KIND),
        (tampered, Code.DIGEST_MISMATCH),
        (lambda: RAW + b"\n", Code.NOT_CANONICAL),
        (lambda: b"", Code.NOT_JSON),
        (lambda: seal(redact(json.loads(RAW))), Code.SUBJECT_MISMATCH),
    ],
)
def test_a_receipt_that_opens_nothing(tmp_path, raw, code):
    allowed = Permission(by_receipt(tmp_path, raw()), sampled=True)
    assert refused(allowed.before_start, HERE).code is code


def test_a_receipt_that_was_replaced_since_it_was_judged(tmp_path):
    serve = by_receipt(tmp_path)
    other = samples.qualification()
    other["limits"] = ["something else"]
    (tmp_path / "q.json").write_bytes(build(other))
    refusal = refused(Permission(serve, sampled=True).before_start, HERE)
    assert refusal.code is Code.EVIDENCE_MISMATCH
    assert file_digest(RAW) in refusal.expected


def test_a_receipt_that_is_gone(tmp_path):
    serve = by_receipt(tmp_path)
    (tmp_path / "q.json").unlink()
    assert refused(Permission(serve, sampled=True).before_start, HERE).code is Code.UNREADABLE


def test_another_source_is_historical(tmp_path):
    allowed = Permission(by_receipt(tmp_path), sampled=True)
    refusal = refused(allowed.before_start, Here(samples.digest("0"), "boot-1", GPUS))
    assert refusal.code is Code.HISTORICAL
    assert SOURCE in refusal.found


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"gpus": samples.UUIDS[::-1]}, "rank 0, UUID"),
        ({"gpus": [samples.UUIDS[0], gpu(1).uuid]}, "rank 1, UUID"),
    ],
)
def test_other_gpus_or_other_ranks_of_them(tmp_path, change, word):
    refusal = refused(Permission(by_receipt(tmp_path, **change), sampled=True).before_start, HERE)
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert word in refusal.where


@pytest.mark.parametrize(
    ("rank", "change", "word"),
    [
        (0, {"name": "B200"}, "rank 0, model"),
        (1, {"driver": "580"}, "rank 1, driver"),
        (1, {"uuid": gpu(1).uuid}, "rank 1"),
    ],
)
def test_gpus_that_changed_since(tmp_path, rank, change, word):
    gpus = list(GPUS)
    gpus[rank] = gpus[rank].model_copy(update=change)
    allowed = Permission(by_receipt(tmp_path), sampled=True)
    refusal = refused(allowed.before_start, Here(SOURCE, "boot-1", gpus))
    assert refusal.code is Code.SUBJECT_MISMATCH
    assert word in refusal.where


def test_firmware_counts_where_the_receipt_tells_it(tmp_path):
    """As for ``pp4 gate``: a driver that tells it no more is another one than it was."""
    body = samples.qualification()
    body["gpus"][1]["facts"] = {"vbios": "97"}
    serve = by_receipt(tmp_path, build(body))
    refusal = refused(Permission(serve, sampled=True).before_start, HERE)
    assert (refusal.code, refusal.expected, refusal.found) == (Code.SUBJECT_MISMATCH, "97", "96")
    untold = [one.model_copy(update={"vbios": None}) for one in GPUS]
    here = Here(SOURCE, "boot-1", untold)
    refusal = refused(Permission(serve, sampled=True).before_start, here)
    assert (refusal.expected, refusal.found) == ("97", "not told")
    body["gpus"][1]["facts"] = {"vbios": "not told"}
    serve = by_receipt(tmp_path, build(body))
    for found in (HERE, here):
        Permission(serve, sampled=True).before_start(found)


# Each is one thing that a worker has loaded and that was not qualified.
OTHERS = {
    "ptx of rank 0": lambda: loaded(primed(0, ptx_sha256=samples.digest("0")), primed(1)),
    "cubin of rank 1": lambda: loaded(primed(0), primed(1, cubin_sha256=samples.digest("0"))),
    "the solo kernel": lambda: loaded(
        *(primed(r, ptx_sha256="8" * 64, cubin_sha256="9" * 64) for r in (0, 1))
    ),
    "ptx of one kernel and cubin of another": lambda: loaded(
        *(primed(r, cubin_sha256="9" * 64) for r in (0, 1))
    ),
    "another target": lambda: loaded(primed(0, target="sm_100"), primed(1, target="sm_100")),
    "one more": lambda: loaded(primed(0), primed(1), primed(1, ptx_sha256=samples.digest("0"))),
    "of one rank alone": lambda: loaded(primed(0)),
    "none": lambda: Loaded((), loaded().libraries, loaded().bias),
    "nothing that makes bias rows": lambda: loaded(bias=()),
    "bias rows of one rank": lambda: loaded(bias=[primed(0, **BIAS)]),
    "another maker of bias rows": lambda: loaded(
        bias=[primed(0, **BIAS), primed(1, **{**BIAS, "cubin_sha256": samples.digest("0")})]
    ),
    "a pair's kernel in its place": lambda: loaded(bias=[primed(0), primed(1)]),
    "a library": lambda: loaded(
        libraries=[Library(name="libcuda.so.1", sha256=samples.digest("0"))]
    ),
    "a second library of the same name": lambda: loaded(
        libraries=[*loaded().libraries, Library(name="libcuda.so.1", sha256=samples.digest("0"))]
    ),
    "no library": lambda: loaded(libraries=[]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_was_loaded_has_to_be_what_was_qualified(tmp_path, name):
    allowed = Permission(by_receipt(tmp_path), sampled=True)
    allowed.before_start(HERE)
    assert refused(allowed.after_priming, OTHERS[name]()).code is Code.SUBJECT_MISMATCH


def test_a_further_kernel_of_the_pair_counts_and_one_of_another_name_does_not(tmp_path):
    """A receipt may list kernels of several shapes; all begin with the name of the pair's."""
    mine = (samples.digest("5"), samples.digest("6"))
    for name, counts in (("sampled_fused.pair.v151936", True), ("sampled_fused.pairs", False)):
        body = samples.qualification()
        body["kernels"] += [
            {**row, "name": name, "ptx_sha256": mine[0], "cubin_sha256": mine[1]}
            for row in copy.deepcopy(body["kernels"][:2])
        ]
        allowed = Permission(by_receipt(tmp_path, build(body)), sampled=True)
        allowed.before_start(HERE)
        found = loaded(*(primed(r, ptx_sha256=mine[0], cubin_sha256=mine[1]) for r in (0, 1)))
        if counts:
            allowed.after_priming(found)
        else:
            assert refused(allowed.after_priming, found).code is Code.SUBJECT_MISMATCH


def test_a_switch_that_is_on_needs_something():
    refusal = refused(Permission(settings(), sampled=True).before_start, HERE)
    assert refusal.code is Code.EVIDENCE_MISSING
    assert "qualification" in refusal.expected


def test_a_switch_that_is_off_needs_nothing():
    allowed = Permission(settings(), sampled=False)
    allowed.before_start(Here("", "", ()))
    allowed.after_priming(Loaded((), ()))
    assert (allowed.deadline, allowed.words) == (None, "switch off")


@pytest.mark.parametrize("device", ["interpreter", "reference"])
def test_what_is_no_gpu_needs_nothing_and_says_so(device):
    allowed = Permission(settings(device=device, gpus=[]), sampled=True)
    allowed.before_start(Here("", "", ()))
    allowed.after_priming(Loaded((), ()))
    assert device in allowed.words
    assert "no GPU" in allowed.words


class Hold:
    """An open HOLD of the sample's GPUs, as its host wrote it down."""

    def __init__(self, directory):
        self.clock = ManualClock()
        self.public = directory / "public"
        self.public.mkdir()
        self.granted = Granted(
            hold="00112233aabbccdd",
            fence=7,
            nonce="secret",
            exclusion="host",
            boot_id="boot-1",
            gpus=samples.UUIDS,
            opened_at="2026-03-01T12:00:00Z",
            bound_s=60.0,
            ttl_s=30.0,
            deadline_boottime_ns=END_NS,
            transport="local",
            rehearsal=False,
            directory="/h",
            public=str(self.public),
            work="/w",
            compiled="/k",
        )
        self.written = {
            "hold": self.granted.hold,
            "fence": "7",
            "boot_id": "boot-1",
            "gpus": list(samples.UUIDS),
            "nonce_sha256": hashlib.sha256(b"secret").hexdigest(),
            "deadline_boottime_ns": str(END_NS),
            "source_digest": SOURCE,
            "coordinator": {"pid": os.getpid(), "start_token": start_token(os.getpid())},
        }
        self.register()

    def register(self, **changes):
        tree = {**self.written, **changes}
        (self.public / "registration.json").write_text(json.dumps(tree))

    def permission(self, serve=None, *, sampled=True, **changes):
        return Permission(
            serve or settings(permission={"kind": "grant"}),
            sampled=sampled,
            granted=self.granted.model_copy(update=changes),
            clock=self.clock,
        )


@pytest.fixture
def hold(tmp_path):
    return Hold(tmp_path)


def test_a_grant_allows_until_its_deadline(hold):
    allowed = hold.permission()
    allowed.before_start(HERE)
    allowed.after_priming(Loaded((), ()))
    assert allowed.words == "switch on, in HOLD 00112233aabbccdd"
    hold.clock.advance(20)
    assert allowed.deadline.remaining_s() == 40
    # a machine that sleeps does not stop the HOLD
    hold.clock.suspend(40)
    assert allowed.deadline.expired()
    assert refused(allowed.after_priming, loaded()).code is Code.DEADLINE
    assert refused(allowed.before_start, HERE).code is Code.DEADLINE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"boot_id": "boot-0"}, Code.SUBJECT_MISMATCH),
        ({"gpus": (samples.UUIDS[0],)}, Code.SUBJECT_MISMATCH),
        ({"gpus": ()}, Code.SUBJECT_MISMATCH),
        ({"rehearsal": True}, Code.WRONG_KIND),
        ({"deadline_boottime_ns": 0}, Code.DEADLINE),
        ({"fence": 8}, Code.STALE_FENCE),
        ({"nonce": "guess"}, Code.UNKNOWN_HOLD),
        ({"hold": "ffffffffffffffff"}, Code.UNKNOWN_HOLD),
        ({"deadline_boottime_ns": END_NS * 2}, Code.UNKNOWN_HOLD),
        ({"public": "/nowhere"}, Code.UNKNOWN_HOLD),
    ],
)
def test_a_grant_that_is_not_for_this_worker(hold, changes, code):
    refusal = refused(hold.permission(**changes).before_start, HERE)
    assert refusal.code is code
    assert "secret" not in str(refusal)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"fence": "9"}, Code.STALE_FENCE),
        ({"source_digest": samples.digest("0")}, Code.UNKNOWN_HOLD),
        ({"gpus": list(samples.UUIDS[::-1])}, Code.UNKNOWN_HOLD),
    ],
)
def test_what_the_host_wrote_down_counts(hold, changes, code):
    hold.register(**changes)
    assert refused(hold.permission().before_start, HERE).code is code


@pytest.mark.parametrize("name", ["closing.json", "closed.json"])
def test_a_hold_that_ends_allows_nothing(hold, name):
    (hold.public / name).write_text("{}")
    assert refused(hold.permission().before_start, HERE).code is Code.UNKNOWN_HOLD


def test_a_hold_whose_supervisor_was_killed_allows_nothing(hold):
    """It leaves no tombstone, and the kernel has let go of its locks."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as supervisor:
        told = {"pid": supervisor.pid, "start_token": start_token(supervisor.pid)}
        hold.register(coordinator=told)
        hold.permission().before_start(HERE)
        supervisor.kill()
        # dead and not reaped: its process id is still its own
        os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOWAIT)
        assert refused(hold.permission().before_start, HERE).code is Code.UNKNOWN_HOLD
    refusal = refused(hold.permission().before_start, HERE)
    assert (refusal.code, refusal.next) == (Code.UNKNOWN_HOLD, "pp4 hold status")
    assert "supervisor" in refusal.expected


@pytest.mark.parametrize(
    "coordinator",
    [None, {}, {"pid": os.getpid(), "start_token": "1"}, {"pid": "\0", "start_token": "1"}],
)
def test_a_registration_without_a_supervisor_that_lives(hold, coordinator):
    hold.register(coordinator=coordinator)
    assert refused(hold.permission().before_start, HERE).code is Code.UNKNOWN_HOLD


def test_a_registration_that_cannot_be_read(hold):
    (hold.public / "registration.json").write_text("[")
    assert refused(hold.permission().before_start, HERE).code is Code.UNKNOWN_HOLD


def test_work_of_a_hold_ends_with_it_also_with_the_switch_off(hold):
    allowed = hold.permission(sampled=False)
    allowed.before_start(HERE)
    assert allowed.deadline.remaining_s() == 60
    assert allowed.words == "switch off, in HOLD 00112233aabbccdd"
    hold.clock.advance(60)
    assert refused(hold.permission(sampled=False).before_start, HERE).code is Code.DEADLINE


def test_one_gpu_of_a_hold_may_work_alone(hold):
    serve = settings(gpus=samples.UUIDS[1:], solo=True, permission={"kind": "grant"})
    hold.permission(serve).before_start(HERE)


def test_a_rehearsal_holds_no_gpu_and_serves_where_none_is(hold):
    serve = settings(device="interpreter", gpus=[], permission={"kind": "grant"})
    allowed = hold.permission(serve, rehearsal=True, public="/nowhere", gpus=("GPU-rehearsal",))
    allowed.before_start(HERE)
    assert allowed.deadline.remaining_s() == 60
    late = hold.permission(serve, rehearsal=True, boot_id="boot-0")
    assert refused(late.before_start, HERE).code is Code.SUBJECT_MISMATCH


def test_a_grant_that_was_never_handed_over():
    allowed = Permission(settings(permission={"kind": "grant"}), sampled=True)
    assert refused(allowed.before_start, HERE).code is Code.EVIDENCE_MISSING


def test_a_grant_is_no_word_for_settings_that_ask_for_none(hold):
    """Whoever hands one over without saying so has made a mistake, and the switch stays off."""
    assert refused(hold.permission(settings()).before_start, HERE).code is Code.EVIDENCE_MISSING


def test_no_gpu_is_asked_where_none_has_to_be(monkeypatch):
    def asked():
        raise AssertionError("the driver was asked")

    monkeypatch.setattr(module, "read_gpus", asked)
    here = look_here(settings(), sampled=False)
    assert here.source_digest == installed_source().digest
    assert len(here.boot_id) == 36
    assert look_here(settings(device="reference", gpus=[]), sampled=True).gpus == ()


def test_the_gpus_of_this_machine(monkeypatch):
    monkeypatch.setattr(module, "read_gpus", lambda: report(gpu(0), gpu(1, vbios="96")))
    seen = look_here(settings(), sampled=True).gpus
    assert [one.uuid for one in seen] == [gpu(0).uuid, gpu(1).uuid]
    assert {(one.name, one.driver) for one in seen} == {("H200", "570.1")}
    assert [one.vbios for one in seen] == [None, "96"]
