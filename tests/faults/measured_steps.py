"""The two steps of a measuring HOLD, played: ``python -m tests.faults.measured_steps`` is either.

Gates that find what samples say, and a measurement whose rounds are made up; both as the product's
own steps are started, told and heard.  What they do beside that stands in ``behaviour.json``,
beside the state directory: ``gates`` is the verdict, ``hang`` an arm of which no more comes after
some rounds, ``fail`` one whose failed rounds grow, ``fill`` one that then fills a directory's disk;
``differ`` answers with another round than was told; ``refuse`` is the code of what keeps the first
arm from being begun; ``slow`` is how long each part of a budget takes.
"""

import json
import os
import sys
from pathlib import Path

from pp4.hold.program import run_step
from pp4.measure import schedule
from pp4.measure.budgeting import CLOSING, OF_COORDINATOR, times
from pp4.measure.programs import SWITCHED_ON
from pp4.receipts.journal import head
from pp4.wire.facts import read
from pp4.wire.measuring import ARMS, Measure, Measured, Sampled
from tests.faults.windows import until
from tests.unit.measure import evidence
from tests.unit.receipts import samples

MODULE = "tests.faults.measured_steps"
REFUSAL = {
    "code": "FAILED_ROUNDS",
    "where": "arm",
    "expected": "none",
    "found": "timeout by 1 rows",
    "source": "pp4",
    "host": "local",
    "left": "nothing",
    "next": "pp4 explain FAILED_ROUNDS",
}
CUT = 5
"""Rounds of an arm before it does what its behaviour says."""
GROWN = "failed_rounds_grew"


def _fill(directory):
    with open(os.path.join(directory, "fill"), "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def rounds_in(directory):
    return Path(directory).glob("*.rounds.jsonl")


def behaviour(granted):
    path = Path(granted.compiled).parents[1] / "behaviour.json"
    return json.loads(path.read_text()) if path.exists() else {}


class Journal:
    """Lines of the HOLD's journal, written by the supervisor."""

    def __init__(self, supervisor):
        self._supervisor, self.lines = supervisor, []

    def add(self, step, event, found=None):
        line = {"step": step, "event": event, "found": found, "after": len(self.lines)}
        self.lines += self._supervisor.ask("journal", line)["lines"]


def hold_of(granted, lines):
    named = {"id": granted.hold, "fence": str(granted.fence), "boot_id": "boot-1"}
    return samples.hold(**named, journal_head=head(lines))


def gates(granted, supervisor):
    """The gates, all of which passed unless the behaviour says something else."""
    made = samples.qualification()
    verdict = behaviour(granted).get("gates", "qualified")
    journal = Journal(supervisor)
    rows = [{"gate": gate["gate"], "arm": "sound"} for gate in made["gates"]]
    told = [{**row, "expected": "pass", "what": "a sample"} for row in rows]
    supervisor.tell({"planned": told})
    for gate, step in zip(made["gates"], told, strict=True):
        supervisor.tell({"started": step})
        for row in gate["arms"]:
            name = f"gate-{gate['gate']}/{row['arm']}"
            journal.add(name, "begin")
            if verdict != "qualified" and row is gate["arms"][0]:
                row["found"] = "failed(LEAK)"
            journal.add(name, "end", row["found"])
        supervisor.tell({"finished": step, "found": "pass", "elapsed_s": 0.1})
    changes = {"hold": hold_of(granted, journal.lines), "journal": journal.lines}
    return {"bodies": [{**made, **changes, "verdict": verdict}]}


class Half:
    """Arms whose rounds are made up."""

    def __init__(self, granted, asked, supervisor):
        self._does, self._asked, self._supervisor = behaviour(granted), asked, supervisor
        self._told = 0

    def arm(self, name):
        """Play one arm; -> it, as receipts have it."""
        switch, faster = ("ON", 1.03) if SWITCHED_ON[name] else ("OFF", 1.0)
        made, told = evidence.arm(name, switch, faster, self._asked.schedule), []
        self._step(name, "begin")
        first, *later = made["snapshots"]
        self._tell(name, snapshot=first)
        for phase, snapshot in zip(schedule.TIMED, later, strict=False):
            for one in (one for one in made["rounds"] if one["phase"] == phase):
                if self._does.get("fill", [])[:1] == [name] and len(told) == CUT:
                    self._fill(self._does["fill"][1])
                if self._does.get("hang") == name and len(told) == CUT:
                    self._hang()
                told.append(one)
                self._tell(name, round=one)
            if self._does.get("fail") == name:
                snapshot = {**snapshot, "failed_rounds": {"timeout": "2"}}
                self._tell(name, snapshot=snapshot)
                self._step(name, "end", GROWN)
                return {**made, "verdict": GROWN, "snapshots": [first, snapshot], "rounds": told}
            self._tell(name, snapshot=snapshot)
        self._tell(name, snapshot=later[-1])
        self._step(name, "end", "complete")
        return made

    def _hang(self):
        """Nothing more comes: until the end of the input, which is the end of the HOLD."""
        self._supervisor.tell({"note": "hanging"})
        while os.read(self._supervisor._pipes._source, 1 << 16):
            pass

    def _fill(self, directory):
        """Fill a disk once all that was told is on it."""
        until(
            lambda: (
                sum(path.read_bytes().count(b"\n") for path in rounds_in(directory)) > self._told
            )
        )
        _fill(directory)

    def _step(self, arm, event, found=None):
        self._told += 1
        self._supervisor.tell({"arm": arm, "phase": None, "event": event, "found": found})

    def _tell(self, arm, **what):
        self._told += 1
        self._supervisor.tell({"arm": arm, "round": None, "snapshot": None, **what})


def measure(granted, asked, supervisor):
    """A half, or the samples of a budget."""
    journal = Journal(supervisor)
    half, arms, refusal = Half(granted, asked, supervisor), [], None
    if does := behaviour(granted).get("refuse"):
        refusal = {**REFUSAL, "code": does}
    for name in () if asked.work == "budget" or refusal else ARMS[asked.work]:
        journal.add(f"arm-{name}", "begin")
        arms.append(half.arm(name))
        journal.add(f"arm-{name}", "end", arms[-1]["verdict"])
        if arms[-1]["verdict"] != "complete":
            refusal = REFUSAL
            break
    if behaviour(granted).get("differ"):
        # a round that is none of those that were told
        arms[-1]["rounds"][-1] = {**arms[-1]["rounds"][-1], "elapsed_ns": "99999999"}
    journal.add("measure", "note")
    parts = set(times(asked.schedule)) - {*OF_COORDINATOR, CLOSING}
    worst_ns = behaviour(granted).get("slow", 10**4)
    sampled = [Sampled(name=name, worst_ns=worst_ns, samples=2) for name in sorted(parts)]
    members = {
        "hold": hold_of(granted, journal.lines),
        "journal": journal.lines,
        "kernels": samples.kernels(2),
        "libraries": samples.LIBRARIES,
        **samples.gpus(2),
    }
    return Measured(
        arms=tuple(arms),
        sampled=tuple(sampled) if asked.work == "budget" else (),
        members=members,
        refusal=refusal,
    ).model_dump(mode="json")


def work(told, supervisor):
    if "schedule" in told.arguments:
        return measure(told.granted, read(Measure, told.arguments), supervisor)
    return gates(told.granted, supervisor)


if __name__ == "__main__":
    sys.exit(run_step(MODULE, work))
