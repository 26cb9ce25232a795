"""What an arm starts: its worker and the engine program, each with the arm's own switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pp4.config import INTERPRETED, ON_GPUS, SWITCHES
from pp4.errors import Code, Refusal, WrongError
from pp4.hold.open import OpenHold
from pp4.measure.schedule import Planned
from pp4.receipts.runs import Round, Snapshot
from pp4.run.asking import Asker
from pp4.run.naming import without_names
from pp4.run.worker import Server
from pp4.wire.facts import read
from pp4.wire.frozen import Served
from pp4.wire.measured import Connect, Look, Prepare, Prepared, RunRound
from pp4.wire.measuring import Arm, Pair, Schedule
from pp4.wire.serving import ByGrant, Serve
from pp4.wire.serving import Limits as WorkerLimits

ENGINE: Final = "pp4.engine.measured"
SWITCHED_ON: Final[Mapping[Arm, bool]] = {"A1": False, "B1": True, "B2": True, "A2": False}


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anything of an arm may take, in seconds.

    Attributes:
        prepare_s: for the engine program to load the pair.
        start_s: for the worker to load, compile and capture.
        hand_over_s: for the worker to be handed its grant.
        block_s: for both ranks to answer a block.
        connect_s: for the engine to be greeted.
        round_s: for a round.
        look_s: for a snapshot.
        end_s: for a connection to be ended.
    """

    prepare_s: float = 600.0
    start_s: float = 600.0
    hand_over_s: float = 60.0
    block_s: float = 30.0
    connect_s: float = 60.0
    round_s: float = 300.0
    look_s: float = 60.0
    end_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the pair lies on this host, absolute.

    Attributes:
        target: directory of the target's checkpoint.
        drafter: directory of the drafter's.
        prompts: file of JSON lines.
    """

    target: str
    drafter: str
    prompts: str

    @classmethod
    def of(cls, pair: Pair, directory: Path) -> Places:
        """Paths of a pair whose relative ones begin in a directory."""
        target, drafter, prompts = (
            str(directory / path) for path in (pair.target, pair.drafter, pair.prompts)
        )
        return cls(target, drafter, prompts)


def worker_settings(
    hold: OpenHold,
    arm: Arm,
    places: Places,
    schedule: Schedule,
    context: int,
    compiled: Path,
    limits: Limits,
) -> Serve:
    """What the worker of an arm is started with; the same in every arm but for names.

    Args:
        hold: under which it runs; where it has no GPUs, nothing of the worker is one.
        arm: which.
        places: of the pair.
        schedule: of the half.
        context: tokens that a request may have features of.
        compiled: where compiled kernels are kept.
        limits: of the arm.
    """
    largest = max(schedule.batches)
    return Serve(
        checkpoint=places.drafter,
        target=places.target,
        device="gpu" if hold.gpus else "reference",
        gpus=hold.gpus,
        # a socket's path must be short, and a HOLD's directory may be deep
        socket=str(hold.directory / f"{arm.lower()}.s"),
        batches=tuple(sorted(schedule.batches)),
        depths=(schedule.depth,),
        slots=largest,
        context=context,
        permission=ByGrant(),
        limits=WorkerLimits(
            start_s=limits.start_s, block_s=limits.block_s, hand_over_s=limits.hand_over_s
        ),
        state=str(hold.directory / worker_label(arm)),
        compiled=str(compiled),
    )


def worker_label(arm: Arm) -> str:
    """Name of the process of an arm's worker."""
    return f"worker-{arm.lower()}"


def start_worker(hold: OpenHold, arm: Arm, settings: Serve, limits: Limits) -> Server:
    """Start the worker of an arm; its switch is on in arm B alone, whatever a shell says.

    Raises:
        Pp4Error: it cannot be started.
    """
    Path(settings.state).mkdir(mode=0o700)
    return Server(hold, worker_label(arm), settings, limits.start_s, _switch(arm, SWITCHES[0]))


def _switch(arm: Arm, name: str) -> dict[str, str]:
    # a HOLD hands no switch of its own environment on: what is not said here is off
    return {name: "1"} if SWITCHED_ON[arm] else {}


class Decoder:
    """The engine program of an arm; its switch is on in arm B alone, whatever a shell says.

    Args:
        hold: under which it runs.
        arm: which.
        words: what is said in the place of names of GPUs.
        limits: of the arm.
    """

    def __init__(self, hold: OpenHold, arm: Arm, words: Mapping[str, str], limits: Limits) -> None:
        kernels = ON_GPUS if hold.gpus else INTERPRETED
        environment = {**kernels, **_switch(arm, SWITCHES[1])}
        self._arm, self._words, self._limits = arm, words, limits
        label = f"engine-{arm.lower()}"
        self.channel = hold.start(ENGINE, [], environment=environment, label=label)
        self._asker = Asker(hold, self.channel)
        self._gpus = hold.gpus

    def prepare(self, places: Places, schedule: Schedule) -> Prepared:
        """Load the pair."""
        asked = Prepare(
            target=places.target,
            drafter=places.drafter,
            prompts=places.prompts,
            gpus=self._gpus,
            slots=max(schedule.batches),
            depth=schedule.depth,
            new_tokens=schedule.new_tokens,
            seed=schedule.seed,
        )
        told = self._asker.ask("prepare", asked.model_dump(mode="json"), self._limits.prepare_s)
        return read(Prepared, told)

    def connect(self, served: Served, owner: int) -> None:
        """Connect to the worker of the arm.

        Args:
            served: what it said.
            owner: process id of the worker's owner.
        """
        processes = {"worker": owner, "rank0": served.pids[0], "rank1": served.pids[1]}
        asked = Connect(
            socket=served.socket,
            sampled=SWITCHED_ON[self._arm],
            limit_s=self._limits.connect_s,
            processes=processes,
        )
        self._asker.ask("connect", asked.model_dump(mode="json"), self._limits.connect_s)

    def round(self, planned: Planned) -> Round:
        """Decode one round.

        Raises:
            WrongError: it refused or died; ``BAD_FRAME``, it answers about another round.
            TimedOutError: it took too long.
        """
        asked = RunRound(
            phase=planned.phase,
            index=planned.index,
            batch=planned.cell.batch,
            temperature=planned.cell.temperature,
            limit_s=self._limits.round_s,
        )
        told = self._asker.ask("round", asked.model_dump(mode="json"), asked.limit_s)
        return _round_of(planned, self._nameless(told))

    def look(self, label: str) -> Snapshot:
        """What it has counted, and who has how much memory."""
        asked = Look(label=label).model_dump(mode="json")
        told = self._asker.ask("look", asked, self._limits.look_s)
        return read(Snapshot, self._nameless(told))

    def _nameless(self, told: dict[str, Any]) -> dict[str, Any]:
        """What it told, without names: before anything is sealed by its digest."""
        return {name: without_names(one, self._words) for name, one in told.items()}

    def disconnect(self) -> None:
        """Let go of the worker."""
        self._asker.ask("disconnect", {}, self._limits.end_s)


def _round_of(planned: Planned, told: Mapping[str, Any]) -> Round:
    said = tuple(told.get(name) for name in ("phase", "index", "batch", "temperature"))
    wanted = (planned.phase, planned.index, planned.cell.batch, planned.cell.temperature)
    if said != wanted:
        expected, found = " ".join(map(str, wanted)), " ".join(map(str, said))
        raise WrongError(Refusal(Code.BAD_FRAME, ENGINE, f"round {expected}", found))
    # rounds before the baseline come into no receipt, and their phases have no place in its model
    phase = "profiled" if planned.phase == "profiled" else "headline"
    return read(Round, {**told, "phase": phase})
