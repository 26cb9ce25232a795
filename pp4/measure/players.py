"""Worker and engine of one arm, and what is asked of them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Final, Literal

from pp4.errors import Code, Refusal, TimedOutError, WrongError
from pp4.measure import budgeting
from pp4.measure.bench import Bench, Ran, sealed
from pp4.measure.judging import (
    Grown,
    grown,
    require_bound,
    require_dead,
    require_sealed,
    require_switched,
    with_worker,
)
from pp4.measure.members import kernels_of
from pp4.measure.programs import SWITCHED_ON, Decoder, start_worker, worker_settings
from pp4.measure.schedule import Phase, Planned, Timed, rounds
from pp4.receipts.bindings import kernel_facts
from pp4.receipts.envelope import Fact
from pp4.receipts.gates import Kernel
from pp4.receipts.runs import Round, Snapshot
from pp4.run.worker import Server, require_socket
from pp4.wire.frozen import Served
from pp4.wire.measured import Prepared
from pp4.wire.measuring import Step

Label = Literal["baseline", "headline", "profiled", "final"]
_CODES: Final[Mapping[Grown, Code]] = {
    "failed_rounds_grew": Code.FAILED_ROUNDS,
    "memory_grew": Code.LEAK,
}


class Players:
    """Worker and engine of an arm.

    Args:
        bench: what arms share.
        ran: what is found goes here.
        stack: what was started is stopped with it.

    Raises:
        Pp4Error: they did not come up.
    """

    def __init__(self, bench: Bench, ran: Ran, stack: ExitStack) -> None:
        self._bench, self._ran = bench, ran
        with self._phase("engine") as facts, bench.watch.part(budgeting.ENGINE):
            self._engine = Decoder(bench.hold, ran.arm, bench.words, bench.limits)
            stack.callback(bench.hold.stop, self._engine.channel)
            prepared = self._engine.prepare(bench.places, bench.schedule)
            facts |= _facts_of(prepared)
            bench.loaded.require(ran.arm, "engine", facts)
        with self._phase("worker") as facts, bench.watch.part(budgeting.WORKER):
            self._worker, self._served = self._serve(prepared.context, stack)
            ran.served = self._served
            facts |= {f"version.{name}": text for name, text in self._served.versions.items()}
            bench.loaded.require(ran.arm, "worker", facts)
        with self._phase("connection"):
            self._engine.connect(self._served, self._worker.channel.pid)
        self._labels = {one.label for one in bench.hold.running()}

    def _phase(self, phase: Step) -> AbstractContextManager[dict[str, Fact]]:
        return self._bench.recorder.phase(self._ran.arm, phase)

    def _serve(self, context: int, stack: ExitStack) -> tuple[Server, Served]:
        """Start the worker for sequences of this length, and wait until it serves."""
        bench, arm = self._bench, self._ran.arm
        settings = worker_settings(
            bench.hold,
            arm,
            bench.places,
            bench.schedule,
            context,
            bench.compiled,
            bench.limits,
        )
        server = start_worker(bench.hold, arm, settings, bench.limits)
        stack.callback(bench.hold.stop, server.channel)
        served = server.serve()
        require_socket(served, settings)
        self._require_loaded(served)
        return server, served

    def _require_loaded(self, served: Served) -> None:
        bench, arm = self._bench, self._ran.arm
        if bench.hold.gpus:
            require_switched(served, on=SWITCHED_ON[arm])
        kernels = [Kernel.model_validate(row) for row in kernels_of(served)]
        libraries = {one.name: one.sha256 for one in served.libraries}
        require_bound(bench.hold.admission, kernels, libraries)
        bench.loaded.require(arm, "kernels", kernel_facts(kernels))
        bench.loaded.require(arm, "libraries", libraries)

    # -- rounds -----------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Rounds that nothing is told of, and the greedy pass."""
        phases: tuple[Phase, ...] = (budgeting.WARM_UP, budgeting.GREEDY)
        for phase in phases:
            with self._phase(phase), self._bench.watch.part(phase):
                for planned in rounds(self._bench.schedule, phase):
                    self._round(planned)

    def timed(self, phase: Timed) -> None:
        """Every round of a phase, each recorded before the next one."""
        bench, ran = self._bench, self._ran
        with self._phase(phase):
            for planned in rounds(bench.schedule, phase):
                with bench.watch.part(budgeting.part_of(phase, planned.cell)):
                    found = self._round(planned)
                    ran.rounds.append(found)
                    # a disk takes its time too, and does so in every round
                    bench.recorder.round(ran.arm, found)
                self._require_alive()

    def _round(self, planned: Planned) -> Round:
        """Decode one; a text that is another than the first arm's is no measurement."""
        self._require_time()
        try:
            found = self._engine.round(planned)
        except TimedOutError:
            # a wait never outlasts the HOLD: then it is the HOLD that has ended it
            self._require_time()
            raise
        self._bench.texts.require(planned.phase, found)
        return found

    def _require_time(self) -> None:
        deadline = self._bench.hold.deadline
        if deadline is not None and deadline.expired():
            where = f"HOLD {self._bench.hold.hold_id}, arm {self._ran.arm}"
            expected = f"a round within {deadline.limit_ns / 1e9:g} s"
            raise TimedOutError(Refusal(Code.DEADLINE, where, expected, "none is left of it"))

    def _require_alive(self) -> None:
        """A process that is gone is said at once: rounds without it would only take long."""
        here = {one.label for one in self._bench.hold.running()}
        gone = sorted(self._labels - here)
        if gone:
            where, expected = f"arm {self._ran.arm}", "every process of it alive"
            raise WrongError(Refusal(Code.RANK_DIED, where, expected, f"{', '.join(gone)} ended"))

    # -- snapshots --------------------------------------------------------------------------

    def look(self, label: Label) -> None:
        """Take a snapshot, and hold it against the baseline.

        Raises:
            WrongError: ``FAILED_ROUNDS`` or ``LEAK``; the worker does not answer.
        """
        bench, ran = self._bench, self._ran
        snapshot, trouble = self._seen(label)
        ran.snapshots.append(snapshot)
        bench.recorder.snapshot(ran.arm, snapshot, sealed(snapshot))
        over = label in ("profiled", "final")
        found = grown(ran.snapshots, ran.rounds if over else ())
        if found is not None:
            verdict, what = found
            ran.verdict = verdict
            where, expected = f"arm {ran.arm}, snapshot {label}", "nothing over the baseline"
            raise WrongError(Refusal(_CODES[verdict], where, expected, f"grew: {what}"))
        if trouble is not None:
            raise trouble

    def _seen(self, label: Label) -> tuple[Snapshot, WrongError | None]:
        """What engine and worker count; a worker that has failed does not hide what that cost."""
        snapshot = self._engine.look(label)
        try:
            settled = self._worker.settle()
        except WrongError as error:
            return snapshot, error
        require_sealed(self._served, settled, compiles=bool(self._bench.hold.gpus))
        return with_worker(snapshot, settled), None

    # -- the end ----------------------------------------------------------------------------

    def part(self) -> None:
        """The engine lets go of the worker."""
        self._engine.disconnect()

    def tear_down(self) -> None:
        """End the worker, which proves its ranks dead."""
        with self._phase("teardown") as facts:
            ended = self._worker.tear_down()
            facts |= {"elapsed_ns": str(ended.elapsed_ns)}
            require_dead(self._served, ended)


def _facts_of(prepared: Prepared) -> dict[str, Fact]:
    """What was loaded, for the journal: no other member of a receipt has a place for it."""
    facts: dict[str, Fact] = {
        "target_sha256": prepared.target_sha256,
        "drafter_sha256": prepared.drafter_sha256,
        "prompts_sha256": prepared.prompts_sha256,
        "prompts": prepared.prompts,
        "vocab": prepared.vocab,
        "context": prepared.context,
        "device": prepared.device,
    }
    return facts | {f"version.{name}": text for name, text in prepared.versions.items()}
