"""What a run in a HOLD takes of the GPUs that there are, and what it tells its step."""

from dataclasses import replace

import pytest

from pp4.config import load_settings
from pp4.config.hold_file import Evidence, local_hold_file
from pp4.errors import Code, RefusedError
from pp4.qualify.wanted import REHEARSAL_GPUS, Wanted, choose, evidence_for
from pp4.receipts.admission import Command
from pp4.receipts.digests import file_digest, installed_source
from tests.unit.qualify.gpus import gpu, report

GPUS = (gpu(0), gpu(1), gpu(2, pci_bus_id="00000000:D8:00.0"))
A, B, C = (one.uuid for one in GPUS)
THREE = report(*GPUS)
LOCAL = local_hold_file(load_settings())


def naming(*uuids):
    """A HOLD file that names its GPUs."""
    return replace(LOCAL, host=replace(LOCAL.host, gpus=uuids))


def chosen(file, wanted, there=THREE):
    return choose(file, wanted, wanted.evidence, installed_source(), lambda: there)


def refused(file, wanted, there=THREE):
    with pytest.raises(RefusedError) as caught:
        chosen(file, wanted, there)
    assert caught.value.refusal.code is Code.NO_GPU_PAIR
    return caught.value.refusal


@pytest.mark.parametrize(
    ("file", "wanted", "gpus"),
    [
        (LOCAL, Wanted("pair"), (A, B)),
        # rank 0 is the first that the file names
        (naming(C, A), Wanted("pair"), (C, A)),
        (LOCAL, Wanted("solo"), (A,)),
        (LOCAL, Wanted("solo", checkpoint="/models/d"), (A,)),
        (LOCAL, Wanted("solo", gpu="2"), (C,)),
        (LOCAL, Wanted("solo", gpu=B), (B,)),
        (naming(C, B), Wanted("solo"), (C,)),
        (naming(C, B), Wanted("solo", gpu="1"), (B,)),
    ],
)
def test_gpus_that_a_run_takes(file, wanted, gpus):
    found = chosen(file, wanted)
    assert found.gpus == gpus
    assert found.report == THREE
    command = {"pair": Command.PAIR_KERNELS, "solo": Command.SOLO}[wanted.work]
    assert found.admitted.command is command
    assert (found.told.work, found.told.soak_minutes) == (wanted.work, 0)
    assert found.told.checkpoint == wanted.checkpoint


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (naming(C, B), Wanted("solo", gpu="0")),
        (naming(C, B), Wanted("solo", gpu=A)),
        (LOCAL, Wanted("solo", gpu="3")),
        (naming(A, "GPU-ffffffff-0000-4000-8000-000000000000"), Wanted("pair")),
        (naming(A, "GPU-ffffffff-0000-4000-8000-000000000000"), Wanted("solo")),
    ],
)
def test_gpus_that_are_not_to_be_had(file, wanted):
    assert "GPU-" in refused(file, wanted).found


@pytest.mark.parametrize(
    ("named", "command"),
    [("local", "pp4 pair-qualify --hold local"), ("a.toml", "pp4 pair-qualify --hold FILE")],
)
def test_two_gpus_that_are_no_pair_are_refused_by_the_command_s_name(named, command):
    far = report(*GPUS, bad={(1, 2)})
    assert refused(naming(B, C), Wanted("pair", named), far).where == command
    # of three, two others are one
    assert chosen(LOCAL, Wanted("pair", named), far).gpus == (A, B)


def test_a_rehearsal_asks_no_driver_and_takes_names():
    def look():
        pytest.fail("asked")

    wanted = Wanted("rehearsal")
    for file, gpus in ((LOCAL, REHEARSAL_GPUS), (naming(A, C), (A, C))):
        found = choose(file, wanted, [], installed_source(), look)
        assert (found.gpus, found.report) == (gpus, None)
        assert found.admitted.command is Command.REHEARSAL


@pytest.mark.parametrize(
    ("wanted", "command", "option"),
    [
        (Wanted("pair"), "pp4 pair-qualify --hold local", ""),
        (Wanted("full"), "pp4 pair-qualify --hold local --scope full", ""),
        (Wanted("full", "a"), "pp4 pair-qualify --hold FILE --scope full", " --hold FILE"),
        (Wanted("solo"), "pp4 solo-qualify", ""),
        (Wanted("rehearsal"), "pp4 pair-qualify --hold local --dry-run-device", ""),
        (Wanted("pair", "a"), "pp4 pair-qualify --hold FILE", " --hold FILE"),
        (Wanted("solo", "a"), "pp4 solo-qualify --hold FILE", " --hold FILE"),
        (Wanted("rehearsal", "a"), "pp4 pair-qualify --hold FILE --dry-run-device", " --hold FILE"),
    ],
)
def test_a_run_is_named_as_somebody_asked_for_it(wanted, command, option):
    assert (wanted.command, wanted.option) == (command, option)


def test_evidence_of_a_file_is_a_pair_s(tmp_path):
    """One GPU alone is held against nothing, and a rehearsal rests on nothing."""
    (tmp_path / "solo.json").write_bytes(b"solo")
    named = Evidence("identity_reference", tmp_path / "solo.json", file_digest(b"solo"))
    file = replace(LOCAL, evidence=(named,))
    more = [("budget", b"more")]
    assert evidence_for(file, Wanted("pair", "a", more)) == [("identity_reference", b"solo"), *more]
    assert evidence_for(file, Wanted("rehearsal", "a")) == []
    assert evidence_for(file, Wanted("solo", "a")) == []
    (tmp_path / "solo.json").unlink()
    for work in ("pair", "rehearsal"):
        with pytest.raises(RefusedError) as caught:
            evidence_for(file, Wanted(work, "a"))
        assert caught.value.refusal.code is Code.EVIDENCE_MISSING
