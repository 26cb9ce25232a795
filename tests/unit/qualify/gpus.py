"""GPUs as a driver tells of them, for tests to change one answer at a time."""

from pp4.wire.gpus import OK, Clocks, Gpu, GpuReport, Peers

UUIDS = tuple(f"GPU-0a1b2c3d-0000-4000-8000-00000000000{number}" for number in (1, 2))
_OTHER = "GPU-0a1b2c3d-0000-4000-8000-00000000000"
PLACES = ("00000000:3B:00.0", "00000000:AF:00.0")
_UNTOLD = (
    *("vbios", "memory_total_bytes", "memory_free_bytes", "memory_reserved_bytes"),
    *("temperature_c", "power_mw", "power_limit_mw", "performance_state", "slowed_by"),
    *("ecc_uncorrected", "ecc_uncorrected_ever", "mig_pending", "compute_mode", "persistence"),
    *("nvlinks", "memory_used_bytes"),
)
_CLOCKS = Clocks(graphics=None, sm=None, memory=None)


def gpu(index=0, **changes):
    """A GPU on which nobody computes; most questions about it have no answer."""
    given = {
        **dict.fromkeys(_UNTOLD),
        "index": index,
        "uuid": f"{_OTHER}{index + 1}",
        "name": "H200",
        "pci_bus_id": f"00000000:{('3B', 'AF')[index]}:00.0" if index < len(PLACES) else None,
        "clocks": _CLOCKS,
        "max_clocks": _CLOCKS,
        "mig": False,
        "processes": (),
        "mps_processes": (),
        "unanswered": {},
    }
    return Gpu(**{**given, **changes})


def report(*gpus, bad=()):
    """What a host says of these GPUs; ``bad`` ways (source, target) cannot be written."""
    indices = [one.index for one in gpus]
    return GpuReport(
        driver_version="570.1",
        cuda_driver_version="13.0",
        nvml_version="13",
        gpus=gpus,
        unreadable=(),
        p2p=tuple(_way(a, b, (a, b) not in bad) for a in indices for b in indices if a != b),
        unanswered={},
    )


def _way(source, target, good):
    return Peers(
        source=source,
        target=target,
        read=OK,
        write=OK if good else "not_supported",
        atomics=OK,
        nvlink=OK,
        topology="node",
        unanswered={},
    )
