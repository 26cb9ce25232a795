"""What allows a worker to switch the sampled path on, judged twice: at the start, and once primed.

A qualification of scope ``full`` for these very GPUs, or the grant of an open HOLD; whoever starts
a worker has judged it before, and a worker believes nobody.  Devices that are no GPUs need neither:
nothing of theirs can serve one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pp4.clock import Clock, Deadline, SystemClock
from pp4.errors import Code, Refusal, RefusedError
from pp4.receipts.canonical import read_file, shown
from pp4.receipts.digests import file_digest, installed_source
from pp4.receipts.gates import Qualification
from pp4.wire.holds import Granted
from pp4.wire.machine import MachineGpu
from pp4.wire.serving import ByGrant, ByQualification, Serve
from pp4.worker.gpus import read_gpus
from pp4.worker.granted import require_grant, require_registered, require_time
from pp4.worker.qualified import UNTOLD, WHERE, Loaded, qualified, require_gpus, require_loaded

__all__ = ["Here", "Loaded", "Permission", "look_here"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Here:
    """What a worker knows of itself before anything of it runs.

    Attributes:
        source_digest: of the source that it runs.
        boot_id: of the running system.
        gpus: as the driver names them; none where no GPU is used.
    """

    source_digest: str
    boot_id: str
    gpus: Sequence[MachineGpu] = ()


class Permission:
    """What allows the switch, for as long as it does.

    Args:
        serve: the settings.
        sampled: whether the switch is on.
        granted: what was handed over, where the settings say that a HOLD's grant is.
        clock: where time comes from; the system's where None.
    """

    def __init__(
        self,
        serve: Serve,
        *,
        sampled: bool,
        granted: Granted | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._serve, self._sampled, self._granted = serve, sampled, granted
        self._clock = clock or SystemClock()
        self._receipt: Qualification | None = None

    @property
    def words(self) -> str:
        """By what the switch is on, or that it is off: for the log and for whoever asks."""
        allowed = self._serve.permission
        hold = f", in HOLD {self._granted.hold}" if self._granted else ""
        if not self._sampled:
            return f"switch off{hold}"
        if self._serve.device != "gpu":
            return (
                f"switch on{hold}: device {self._serve.device} is no GPU, nothing has to allow it"
            )
        if isinstance(allowed, ByQualification):
            return f"switch on, by qualification {allowed.sha256}"
        return f"switch on{hold}"

    @property
    def deadline(self) -> Deadline | None:
        """When the worker has to have ended; None where it may go on for as long as it likes."""
        if self._granted is None:
            return None
        now = self._clock.boottime_ns()
        return Deadline(self._clock, now, max(0, self._granted.deadline_boottime_ns - now))

    def before_start(self, here: Here) -> None:
        """Judge what is known before a rank exists.

        Raises:
            RefusedError: it allows nothing here; what was expected and what is.
        """
        allowed = self._serve.permission
        if isinstance(allowed, ByGrant):
            # also with the switch off: what a HOLD has started ends with it
            self._require_grant(here)
        elif self._sampled and self._serve.device == "gpu":
            self._require_qualification(here)

    def after_priming(self, loaded: Loaded) -> None:
        """Judge what was loaded, before anything of it is launched for a request.

        Raises:
            RefusedError: ``SUBJECT_MISMATCH``, another kernel or library than was qualified;
                ``DEADLINE``, the HOLD is over by now.
        """
        if self._receipt is not None:
            require_loaded(self._receipt, loaded)
        if self._granted is not None:
            require_time(self._granted, self._clock)

    def _require_grant(self, here: Here) -> None:
        granted = self._granted
        if granted is None:
            expected = "a HOLD's grant on standard input"
            raise RefusedError(Refusal(Code.EVIDENCE_MISSING, "worker", expected, "none"))
        require_grant(granted, self._serve, here.boot_id, self._clock)
        if self._serve.device == "gpu":
            require_registered(granted, here.source_digest)

    def _require_qualification(self, here: Here) -> None:
        allowed = self._serve.permission
        if not isinstance(allowed, ByQualification):
            expected = "a qualification of scope full, or a HOLD's grant"
            again = "pp4 worker serve CHECKPOINT --qualification FILE"
            raise RefusedError(Refusal(Code.EVIDENCE_MISSING, WHERE, expected, "none", next=again))
        raw, file = read_file(Path(allowed.path)), shown(allowed.path)
        found = file_digest(raw)
        if found != allowed.sha256:
            expected = f"the file that was judged, sha256 {allowed.sha256}"
            raise RefusedError(Refusal(Code.EVIDENCE_MISMATCH, file, expected, found))
        receipt = qualified(raw, here.source_digest, file)
        require_gpus(receipt, self._serve.gpus, here.gpus)
        self._receipt = receipt


def look_here(serve: Serve, *, sampled: bool) -> Here:
    """Look at this machine; makes no context on any GPU.

    Args:
        serve: the settings.
        sampled: whether the switch is on; otherwise no GPU is asked.

    Raises:
        RefusedError: ``UNREADABLE``; what :func:`pp4.worker.gpus.read_gpus` refuses.
    """
    gpus: tuple[MachineGpu, ...] = ()
    if sampled and serve.device == "gpu":
        report = read_gpus()
        driver = report.driver_version or UNTOLD
        gpus = tuple(
            MachineGpu(uuid=gpu.uuid, name=gpu.name, driver=driver, vbios=gpu.vbios)
            for gpu in report.gpus
        )
    try:
        boot_id = _BOOT_ID.read_text().strip()
    except OSError as error:
        found = error.strerror or str(error)
        refusal = Refusal(Code.UNREADABLE, str(_BOOT_ID), "the id of this boot", found)
        raise RefusedError(refusal) from error
    return Here(installed_source().digest, boot_id, gpus)
