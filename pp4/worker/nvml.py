"""Questions to NVML, and the names of what it answers in numbers.

A question that a GPU, a driver or the package ``nvidia-ml-py`` has no answer to gives None and its
reason; numbers are never made up.  The numbers below are those of ``nvml.h``: they are the ABI, and
some constants of the package are not plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pp4.wire.gpus import OK, UNSUPPORTED

INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
MEMORY_V2: Final = 0x02000028
GPU_SENSOR: Final = 0
UNCORRECTED, VOLATILE, AGGREGATE = 1, 0, 1
STATES: Final = range(16)
"""Performance states; the driver says 32 where it does not know."""
MAX_LINKS: Final = 36
CLOCKS: Final = {"graphics": 0, "sm": 1, "memory": 2}
COMPUTE_MODES: Final = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
P2P_INDICES: Final = {"read": 0, "write": 1, "nvlink": 2, "atomics": 3}
P2P_STATUSES: Final = {
    0: OK,
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "ioh_topology_not_supported",
    4: "disabled_by_regkey",
    5: "not_supported",
    6: "unknown",
}
TOPOLOGIES: Final = {
    0: "internal",
    10: "single",
    20: "multiple",
    30: "hostbridge",
    40: "node",
    50: "system",
}
EVENT_REASONS: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
REASONS: Final = {INVALID_ARGUMENT: "invalid argument", NOT_SUPPORTED: UNSUPPORTED}


class Asker:
    """Asks NVML about one thing, and notes what was not answered.

    Args:
        nvml: the module ``pynvml``, initialised.
        subject: handles that stand before the arguments of every question.
    """

    def __init__(self, nvml: Any, *subject: Any) -> None:
        self._nvml, self._subject = nvml, subject
        self.unanswered: dict[str, str] = {}

    def attempt(self, names: tuple[str, ...], *arguments: Any) -> tuple[Any, str]:
        """-> the answer of the first function that gives one, or None and the last reason."""
        reason = "the package nvidia-ml-py has no such question"
        for name in names:
            function = getattr(self._nvml, name, None)
            if function is None:
                continue
            try:
                return function(*self._subject, *arguments), ""
            except self._nvml.NVMLError as error:
                reason = REASONS.get(error.value, str(error))
            except ValueError as error:
                reason = f"unreadable: {error}"
        return None, reason

    def ask(self, member: str, *names: str, of: tuple[Any, ...] = ()) -> Any:
        """-> the answer, or None; the reason is noted under the member that stays empty."""
        answer, reason = self.attempt(names, *of)
        if answer is None:
            self.note(member, reason or "no answer")
        return answer

    def text(self, member: str, name: str) -> str | None:
        """-> the answer as text; an empty one is no answer."""
        answer = self.ask(member, name)
        if answer is None:
            return None
        if not answer:
            self.note(member, "an empty text")
        return decoded(answer) or None

    def word(self, member: str, name: str, words: Mapping[int, str], *of: Any) -> str | None:
        """-> the answer's name; a number that this version has no name for stays a number."""
        answer = self.ask(member, name, of=of)
        return None if answer is None else words.get(answer, f"number_{answer}")

    def flag(self, member: str, name: str) -> bool | None:
        """-> the answer as yes or no."""
        answer = self.ask(member, name)
        return None if answer is None else answer == 1

    def note(self, member: str, reason: str) -> None:
        """Say why a member stays empty."""
        self.unanswered[member] = reason


def decoded(value: str | bytes) -> str:
    """-> text; old packages give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
