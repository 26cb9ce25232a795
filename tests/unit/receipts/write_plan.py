"""Write the table of required arms anew: ``python -m tests.unit.receipts.write_plan``.

Receipts import nothing of the gates, so the table stands in a file of its own.  Whoever changes a
gate runs this, and sees in the difference what receipts will demand from then on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pp4.qualify import gates
from pp4.receipts import plan

PATH = Path(plan.__file__)

_HEAD = '''"""The arms that a receipt of version 1 cannot lack, gate by gate.

Written by ``python -m tests.unit.receipts.write_plan`` from the gates; a test holds the two equal.
It is a text of its own, and not read from the gates, so that a receipt is judged by what its
version demands whatever runs today.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class PlannedGate(NamedTuple):
    """What a gate is called, and the arms, with what each has to find, that it cannot lack."""

    name: str
    arms: Mapping[str, str]


'''


def table(planned: Sequence[gates.Gate]) -> dict[int, plan.PlannedGate]:
    """Return gate to name and arms."""
    return {
        gate.number: plan.PlannedGate(
            gate.name, {arm.step.arm: arm.step.expected for arm in gate.arms}
        )
        for gate in planned
    }


def loose(planned: Sequence[gates.Gate]) -> set[str]:
    """Return the arms that are recorded without gating."""
    return {arm.step.arm for gate in planned for arm in gate.arms if not arm.step.gating}


def hardware() -> dict[int, plan.PlannedGate]:
    """Return what the gates of a physical pair have beyond those of a rehearsal."""
    rehearsed = table(gates.KERNELS)
    more = {}
    for number, gate in table(gates.PHYSICAL).items():
        known = rehearsed[number].arms
        arms = {arm: found for arm, found in gate.arms.items() if arm not in known}
        if arms:
            more[number] = plan.PlannedGate(gate.name, arms)
    return more


def text() -> str:
    """Return what the file has to say."""
    solo = getattr(gates, "SOLO", None)
    names = "".join(f'        "{name}",\n' for name in sorted(loose(gates.PHYSICAL)))
    recorded = (
        f"RECORDED: Final = frozenset(\n    {{\n{names}    }}\n)\n"
        '"""The only arms that may be recorded without gating: races that need not show in every'
        ' run."""\n'
    )
    pair = _written("PLAN", table(gates.KERNELS), "Scopes ``kernels`` and ``full``, two ranks.")
    physical = _written(
        "HARDWARE", hardware(), "What a run on GPUs has beyond :data:`PLAN`: a CPU cannot be asked."
    )
    alone = _written("SOLO_PLAN", table(solo) if solo else plan.SOLO_PLAN, "Scope ``solo``.")
    return f"{_HEAD}{recorded}\n{pair}\n{physical}\n{alone}"


def _written(name: str, rows: Mapping[int, plan.PlannedGate], words: str) -> str:
    lines = [f"{name}: Final[Mapping[int, PlannedGate]] = {{\n"]
    for number, gate in rows.items():
        lines += [f"    {number}: PlannedGate(\n", f'        "{gate.name}",\n', "        {\n"]
        lines += [f'            "{arm}": "{found}",\n' for arm, found in gate.arms.items()]
        lines += ["        },\n", "    ),\n"]
    return "".join([*lines, "}\n", f'"""{words}"""\n'])


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
