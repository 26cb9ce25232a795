"""What NVML says of a host's GPUs, and what is said where it does not answer."""

import inspect
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pp4.errors import Code, RefusedError
from pp4.wire.facts import read
from pp4.wire.gpus import OK, UNSUPPORTED, Clocks, GpuReport, Process, first_pair
from pp4.worker import gpus as module
from pp4.worker import nvml as names
from pp4.worker.gpus import main, read_gpus
from tests.unit.worker import nvml_double as double
from tests.unit.worker.nvml_double import Nvml, error, fails, gpu, uuid


def two(**changed):
    """A host of two GPUs; ``changed`` answers are those of GPU 0."""
    return Nvml({**gpu(0), **changed}, gpu(1))


def first(**changed):
    return read_gpus(two(**changed)).gpus[0]


def test_two_healthy_gpus_are_read_whole():
    host = two()
    report = read_gpus(host)
    one, other = report.gpus
    assert (report.driver_version, report.cuda_driver_version) == ("580.159.04", "13.0")
    assert (report.source, report.nvml_version) == ("nvml", "13.580.159.04")
    assert (one.index, one.uuid, other.index, other.uuid) == (0, uuid(0), 1, uuid(1))
    assert (one.name, one.pci_bus_id, one.vbios) == (
        "NVIDIA H200",
        "00000000:01:00.0",
        "96.00.D9.00.01",
    )
    memory = (one.memory_total_bytes, one.memory_used_bytes, one.memory_free_bytes)
    assert (*memory, one.memory_reserved_bytes) == (1000, 10, 900, 90)
    assert one.clocks == Clocks(graphics=345, sm=346, memory=3201)
    assert one.max_clocks == Clocks(graphics=1980, sm=1981, memory=3202)
    assert (one.temperature_c, one.power_mw, one.power_limit_mw) == (31, 76_543, 700_000)
    assert (one.performance_state, one.slowed_by) == (0, ("gpu_idle",))
    assert (one.ecc_uncorrected, one.ecc_uncorrected_ever) == (0, 4)
    assert (one.mig, one.mig_pending, one.compute_mode) == (False, False, "default")
    assert (one.persistence, one.nvlinks) == (True, 17)
    assert one.processes == one.mps_processes == ()
    assert one.unanswered == other.unanswered == report.unanswered == {}
    assert [(way.source, way.target) for way in report.p2p] == [(0, 1), (1, 0)]
    for way in report.p2p:
        assert (way.read, way.write, way.atomics, way.nvlink) == (OK, OK, OK, OK)
        assert (way.topology, way.unanswered) == ("system", {})
    assert first_pair(report) == (uuid(0), uuid(1))
    assert (host.open, host.closed) == (0, 1)


def test_a_report_crosses_the_wire():
    report = read_gpus(two(nvmlDeviceGetMigMode=fails(double.NOT_SUPPORTED)))
    assert read(GpuReport, json.loads(report.model_dump_json())) == report


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (double.READ, "read"),
        (double.WRITE, "write"),
        (double.ATOMICS, "atomics"),
        (double.NVLINK, "nvlink"),
    ],
)
@pytest.mark.parametrize("way", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("status", "word"),
    [
        (1, "chipset_not_supported"),
        (2, "gpu_not_supported"),
        (3, "ioh_topology_not_supported"),
        (4, "disabled_by_regkey"),
        (5, "not_supported"),
        (6, "unknown"),
        (7, "number_7"),
    ],
)
def test_what_one_way_lacks_is_named_and_only_there(kind, member, way, status, word):
    report = read_gpus(Nvml(gpu(0), gpu(1), p2p={(*way, kind): status}))
    for found in report.p2p:
        members = {name: getattr(found, name) for name in ("read", "write", "atomics", "nvlink")}
        here = (found.source, found.target) == way
        assert members == {name: word if here and name == member else OK for name in members}
    needed = member in ("read", "write")
    assert first_pair(report) == (None if needed else (uuid(0), uuid(1)))


def test_a_way_that_is_not_answered_is_no_way():
    report = read_gpus(
        Nvml(gpu(0), gpu(1), p2p={(1, 0, double.WRITE): fails(double.NO_PERMISSION)})
    )
    back = report.p2p[1]
    assert (back.write, back.read) == (None, OK)
    assert back.unanswered == {"write": "Insufficient Permissions"}
    assert first_pair(report) is None


@pytest.mark.parametrize(
    ("modes", "mig", "pending", "pair"),
    [
        ([1, 1], True, True, None),
        ([1, 0], True, False, None),
        ([0, 1], False, True, (uuid(0), uuid(1))),
        (fails(double.NOT_SUPPORTED), None, None, (uuid(0), uuid(1))),
        (fails(double.NO_PERMISSION), None, None, None),
    ],
)
def test_a_sliced_gpu_is_in_no_pair_nor_one_that_may_be(modes, mig, pending, pair):
    host = two(nvmlDeviceGetMigMode=modes)
    one = read_gpus(host).gpus[0]
    assert (one.mig, one.mig_pending) == (mig, pending)
    assert first_pair(read_gpus(host)) == pair


MEMBERS = {
    "nvmlDeviceGetPciInfo": ["pci_bus_id"],
    "nvmlDeviceGetVbiosVersion": ["vbios"],
    "nvmlDeviceGetMemoryInfo": [
        f"memory_{part}_bytes" for part in ("total", "used", "free", "reserved")
    ],
    "nvmlDeviceGetClockInfo": [f"clocks.{clock}" for clock in ("graphics", "sm", "memory")],
    "nvmlDeviceGetMaxClockInfo": [f"max_clocks.{clock}" for clock in ("graphics", "sm", "memory")],
    "nvmlDeviceGetTemperatureV": ["temperature_c"],
    "nvmlDeviceGetPowerUsage": ["power_mw"],
    "nvmlDeviceGetEnforcedPowerLimit": ["power_limit_mw"],
    "nvmlDeviceGetPerformanceState": ["performance_state"],
    "nvmlDeviceGetCurrentClocksEventReasons": ["slowed_by"],
    "nvmlDeviceGetTotalEccErrors": ["ecc_uncorrected", "ecc_uncorrected_ever"],
    "nvmlDeviceGetMigMode": ["mig", "mig_pending"],
    "nvmlDeviceGetComputeMode": ["compute_mode"],
    "nvmlDeviceGetPersistenceMode": ["persistence"],
    "nvmlDeviceGetNvLinkState": ["nvlinks"],
    "nvmlDeviceGetComputeRunningProcesses": ["processes"],
    "nvmlDeviceGetMPSComputeRunningProcesses": ["mps_processes"],
}


def leaves(one):
    """Every member by the name that ``unanswered`` has for it."""
    for name in type(one).model_fields:
        value = getattr(one, name)
        if isinstance(value, Clocks):
            yield from ((f"{name}.{clock}", speed) for clock, speed in dict(value).items())
        elif name != "unanswered":
            yield name, value


def test_the_table_of_questions_is_complete():
    assert set(MEMBERS) == set(gpu(0)) - {"nvmlDeviceGetUUID", "nvmlDeviceGetName"}
    named = {member for members in MEMBERS.values() for member in members}
    assert named == {name for name, _ in leaves(first())} - {"index", "uuid", "name"}


@pytest.mark.parametrize("question", MEMBERS)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (double.NOT_SUPPORTED, UNSUPPORTED),
        (double.NO_PERMISSION, "Insufficient Permissions"),
        (double.GPU_IS_LOST, "GPU is lost"),
    ],
)
def test_a_question_without_an_answer_is_none_with_its_reason_and_nothing_else(
    question, value, reason
):
    healthy = dict(leaves(first()))
    one = first(**{question: fails(value)})
    missing = MEMBERS[question]
    assert one.unanswered == dict.fromkeys(missing, reason)
    assert dict(leaves(one)) == {**healthy, **dict.fromkeys(missing)}


def test_a_host_that_answers_nothing_but_names_is_still_a_report():
    mute = {question: fails(double.NOT_SUPPORTED) for question in MEMBERS}
    versions = ("DriverVersion", "CudaDriverVersion_v2", "NVMLVersion")
    host = {f"nvmlSystemGet{version}": fails(double.UNKNOWN) for version in versions}
    report = read_gpus(Nvml({**gpu(0), **mute}, host=host))
    empty = ("driver_version", "cuda_driver_version", "nvml_version")
    assert report.unanswered == dict.fromkeys(empty, "Unknown Error")
    assert [getattr(report, member) for member in empty] == [None, None, None]
    told = {name for name, value in leaves(report.gpus[0]) if value is not None}
    assert told == {"index", "uuid", "name"}
    assert report.p2p == ()


@pytest.mark.parametrize("broken", [0, 1])
def test_a_gpu_that_cannot_be_opened_is_counted_and_the_other_is_read(broken):
    host = [gpu(0), gpu(1)]
    host[broken] = fails(double.GPU_IS_LOST)
    report = read_gpus(Nvml(*host))
    assert [one.index for one in report.gpus] == [1 - broken]
    assert [(one.index, one.reason) for one in report.unreadable] == [(broken, "GPU is lost")]
    assert report.p2p == ()


@pytest.mark.parametrize("question", ["nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_a_gpu_without_a_name_is_unreadable(question):
    report = read_gpus(two(**{question: fails(double.UNKNOWN)}))
    assert [one.index for one in report.gpus] == [1]
    assert [(one.index, one.reason) for one in report.unreadable] == [(0, "Unknown Error")]
    assert read_gpus(two(**{question: ""})).unreadable[0].reason == "an empty text"


def test_processes_are_counted_and_unknown_use_stays_unknown():
    found = [
        SimpleNamespace(pid=4711, usedGpuMemory=1 << 30),
        SimpleNamespace(pid=0, usedGpuMemory=None),
    ]
    one = first(nvmlDeviceGetComputeRunningProcesses=found)
    assert one.processes == (
        Process(pid=4711, used_bytes=1 << 30),
        Process(pid=0, used_bytes=None),
    )
    assert first(nvmlDeviceGetMPSComputeRunningProcesses=found).mps_processes == one.processes


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ()),
        (0x8 | 0x40, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x4 | 0x20 | 0x80, ("sw_power_cap", "sw_thermal_slowdown", "hw_power_brake_slowdown")),
        (0x1 << 20, ("bit_0x100000",)),
    ],
)
def test_what_slows_a_gpu_is_named(mask, words):
    assert first(nvmlDeviceGetCurrentClocksEventReasons=mask).slowed_by == words


@pytest.mark.parametrize(
    ("new", "old", "member", "answer"),
    [
        (
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "slowed_by",
            ("hw_slowdown",),
        ),
        ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", "temperature_c", 8),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_the_older_question_is_asked_where_the_newer_has_no_answer(new, old, member, answer, gone):
    answers = {**gpu(0), new: fails(double.NOT_SUPPORTED), old: lambda *_: 8}
    if gone:
        del answers[new]
    one = read_gpus(Nvml(answers)).gpus[0]
    assert getattr(one, member) == answer
    assert one.unanswered == {}


def test_a_package_that_cannot_ask_is_named():
    answers = gpu(0)
    del answers["nvmlDeviceGetVbiosVersion"]
    one = read_gpus(Nvml(answers)).gpus[0]
    assert one.vbios is None
    assert one.unanswered == {"vbios": "the package nvidia-ml-py has no such question"}


def test_words_and_states_that_nobody_knows_are_not_turned_into_others():
    assert first(nvmlDeviceGetComputeMode=3).compute_mode == "exclusive_process"
    assert first(nvmlDeviceGetComputeMode=9).compute_mode == "number_9"
    one = first(nvmlDeviceGetPerformanceState=32)
    assert one.performance_state is None
    assert one.unanswered == {"performance_state": "unknown to the driver"}
    assert first(nvmlDeviceGetPerformanceState=15).performance_state == 15


def test_bytes_of_old_packages_are_text():
    one = first(
        nvmlDeviceGetUUID=b"GPU-x",
        nvmlDeviceGetPciInfo=SimpleNamespace(busId=b"00000000:01:00.0"),
        nvmlDeviceGetVbiosVersion=b"96\xff",
    )
    assert (one.uuid, one.pci_bus_id, one.vbios) == ("GPU-x", "00000000:01:00.0", "96\ufffd")


def test_text_that_cannot_be_read_is_no_answer():
    def undecodable(*_):
        return b"\xff".decode("ascii")

    one = first(nvmlDeviceGetVbiosVersion=undecodable)
    assert one.vbios is None
    assert one.unanswered["vbios"].startswith("unreadable: ")


def test_links_are_unknown_where_one_of_them_fails():
    one = first(nvmlDeviceGetNvLinkState=lambda link: error(double.GPU_IS_LOST) if link == 3 else 1)
    assert (one.nvlinks, one.unanswered) == (None, {"nvlinks": "GPU is lost"})
    assert first(nvmlDeviceGetNvLinkState=lambda link: error(2) if link else 0).nvlinks == 0


# -- nobody to ask ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        Nvml(init=double.DRIVER_NOT_LOADED),
        Nvml(host={"nvmlDeviceGetCount": fails(double.DRIVER_NOT_LOADED)}),
    ],
)
def test_without_a_driver_there_is_a_refusal(host, capsys):
    with pytest.raises(RefusedError) as caught:
        read_gpus(host)
    refusal = caught.value.refusal
    assert (refusal.code, refusal.where, refusal.found) == (
        Code.NO_GPU_PAIR,
        "NVML",
        "Driver Not Loaded",
    )
    assert host.open == 0
    assert main(host) == 3
    assert json.loads(capsys.readouterr().out) == {"refusal": refusal.as_dict()}


def test_a_host_without_gpus_is_a_report_of_none():
    report = read_gpus(Nvml())
    assert (report.gpus, report.p2p, first_pair(report)) == ((), (), None)


def test_main_writes_the_report_and_nothing_else(capsys):
    assert main(two()) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert read(GpuReport, json.loads(out)) == read_gpus(two())


def test_the_library_is_let_go_where_reading_fails():
    host = two(nvmlDeviceGetPowerUsage=lambda: -1)
    with pytest.raises(ValueError, match="power_mw"):
        read_gpus(host)
    assert (host.open, host.closed) == (0, 1)


PROGRAM = """
import runpy, sys
try:
    runpy.run_module("pp4.worker.gpus", run_name="__main__")
finally:
    sys.stderr.write(repr({"torch", "triton"} & set(sys.modules)))
"""


def test_the_program_answers_on_any_machine_without_torch():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == "set()"
    tree = json.loads(done.stdout)
    if done.returncode == 0:
        read(GpuReport, tree)
    else:
        assert done.returncode == 3
        assert list(tree) == ["refusal"]
        assert tree["refusal"]["code"] in (Code.NO_GPU_PAIR, Code.MISSING_PACKAGE)
        assert tree["refusal"]["where"] == "NVML"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(RefusedError) as caught:
        read_gpus()
    assert caught.value.refusal.code is Code.MISSING_PACKAGE
    assert caught.value.refusal.expected == "the package nvidia-ml-py"


# -- the package itself -----------------------------------------------------------------------


def test_every_question_exists_in_the_package_and_sets_nothing():
    package = pytest.importorskip("pynvml")
    asked = {*gpu(0), *Nvml().host, "nvmlDeviceGetP2PStatus", "nvmlDeviceGetTemperature"}
    asked |= {"nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetHandleByIndex"}
    assert [name for name in sorted(asked) if not hasattr(package, name)] == []
    text = inspect.getsource(module)
    assert "Set" not in text
    assert {name for name in asked if f'"{name}"' not in text and f".{name}(" not in text} == set()


def number(constant):
    """Some constants of the package are tuples of one number, by a stray comma."""
    return constant[0] if isinstance(constant, tuple) else constant


def test_the_numbers_are_those_of_the_package():
    package = pytest.importorskip("pynvml")

    def of(prefix, word):
        return number(getattr(package, f"{prefix}{word}"))

    assert package.NVML_ERROR_INVALID_ARGUMENT == names.INVALID_ARGUMENT
    assert package.NVML_ERROR_NOT_SUPPORTED == names.NOT_SUPPORTED
    assert package.nvmlMemory_v2 == names.MEMORY_V2
    assert package.NVML_NVLINK_MAX_LINKS <= names.MAX_LINKS
    assert package.NVML_PSTATE_UNKNOWN not in names.STATES
    assert package.NVML_TEMPERATURE_GPU == names.GPU_SENSOR
    assert package.NVML_MEMORY_ERROR_TYPE_UNCORRECTED == names.UNCORRECTED
    assert (package.NVML_VOLATILE_ECC, package.NVML_AGGREGATE_ECC) == (
        names.VOLATILE,
        names.AGGREGATE,
    )
    assert names.CLOCKS == {
        "graphics": package.NVML_CLOCK_GRAPHICS,
        "sm": package.NVML_CLOCK_SM,
        "memory": package.NVML_CLOCK_MEM,
    }
    for value, word in names.COMPUTE_MODES.items():
        assert of("NVML_COMPUTEMODE_", word.upper()) == value
    for word, value in names.P2P_INDICES.items():
        assert of("NVML_P2P_CAPS_INDEX_", word.upper()) == value
    for value, word in names.P2P_STATUSES.items():
        assert of("NVML_P2P_STATUS_", word.upper()) == value
    for value, word in names.TOPOLOGIES.items():
        assert of("NVML_TOPOLOGY_", word.upper()) == value
    for value, word in names.EVENT_REASONS.items():
        camel = "".join(part.capitalize() for part in word.split("_"))
        assert of("nvmlClocksThrottleReason", camel) == value
