"""The whole worker inside a HOLD: the product's own server, and a client with the frozen inputs.

The server gets the grant of the HOLD on its standard input and ends with it, so it serves nobody
once the run is over; what it is asked is the frozen set alone, and nothing of it is a measurement.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pp4.config import SWITCHES
from pp4.hold.open import OpenHold
from pp4.qualify.context import Context
from pp4.qualify.judge.whole_worker import Binary, Identity, WholeRun, binaries
from pp4.qualify.whole_settings import Whole
from pp4.run.asking import Asker
from pp4.run.mapped import shared_objects
from pp4.run.worker import ASK_S, Server, require_socket
from pp4.wire.facts import read
from pp4.wire.frozen import Checkpoint, CheckpointFacts, FrozenFacts, RunFrozen
from pp4.wire.serving import ByGrant, Limits, Serve

CLIENT: Final = "pp4.worker.frozen"
_CHECKPOINT_S: Final = 180.0


class _Client:
    """The program that sends the frozen inputs."""

    def __init__(self, hold: OpenHold, label: str) -> None:
        # it has no kernels: what a worker's ranks need would only slow it down
        channel = hold.start(CLIENT, [], environment={}, label=label)
        self._asker, self.channel = Asker(hold, channel), channel

    def checkpoint(self, asked: Checkpoint) -> CheckpointFacts:
        """Make a checkpoint up, or look at one."""
        facts = self._asker.ask("checkpoint", asked.model_dump(), _CHECKPOINT_S)
        return read(CheckpointFacts, facts)

    def run(self, asked: RunFrozen) -> FrozenFacts:
        """Send a set."""
        return read(FrozenFacts, self._asker.ask("run", asked.model_dump(), asked.limit_s))


def settings_for(
    context: Context, whole: Whole, checkpoint: Path, label: str, *, solo: bool
) -> Serve:
    """What a worker is started with.

    Args:
        context: of the run.
        whole: its numbers.
        checkpoint: what it loads.
        label: of its process; its directory in the HOLD has that name.
        solo: whether both shards are in one launch.
    """
    hold = context.hold
    home = hold.directory / label
    return Serve(
        checkpoint=str(checkpoint),
        device="gpu" if hold.gpus else "interpreter",
        gpus=hold.gpus[:1] if solo else hold.gpus,
        solo=solo,
        # a socket's path must be short, and a HOLD's directory may be deep
        socket=str(hold.directory / f"{label}.s"),
        batches=(whole.batch,),
        slots=whole.batch,
        context=whole.context,
        cache_mib=whole.cache_mib,
        permission=ByGrant(),
        waits=context.settings.ordinary,
        limits=Limits(start_s=whole.start_s, hand_over_s=_CHECKPOINT_S + ASK_S),
        state=str(home),
        compiled=str(context.compiled),
    )


def run(context: Context, whole: Whole, *, solo: bool) -> WholeRun:
    """Start a worker, send it the frozen inputs, and tear it down.

    Args:
        context: of the run; no pair of its own may compute meanwhile.
        whole: numbers of the run.
        solo: whether the worker holds both shards in one launch.

    Raises:
        WrongError: the worker or the client refused or died.
        TimedOutError: ``STEP_TIMEOUT``.
    """
    hold, label = context.hold, context.label("worker")
    path = Path(whole.checkpoint or hold.directory / "checkpoint")
    # the same bytes every time: a second run of one HOLD takes what the first has written
    sizes = None if whole.checkpoint or path.exists() else whole.sizes
    settings = settings_for(context, whole, path, label, solo=solo)
    Path(settings.state).mkdir(mode=0o700)
    with ExitStack() as stack:
        # it reads no checkpoint before it has the grant: until then it loads its libraries
        server = Server(hold, label, settings, whole.start_s, {SWITCHES[0]: "1"})
        stack.callback(hold.stop, server.channel)
        client = _Client(hold, context.label("frozen"))
        stack.callback(hold.stop, client.channel)
        made = client.checkpoint(Checkpoint(path=str(path), sizes=sizes))
        served = server.serve()
        require_socket(served, settings)
        mapped = tuple(shared_objects(pid, context.compiled) for pid in served.pids)
        asked = RunFrozen(socket=served.socket, inputs=whole.inputs, limit_s=whole.run_s)
        frozen = client.run(asked)
        return WholeRun(
            checkpoint_sha256=made.sha256,
            served=served,
            frozen=frozen,
            settled=server.settle(),
            mapped=mapped,
            ended=server.tear_down(),
        )


def identity_of(context: Context, ran: WholeRun, solo_kernels: frozenset[Binary]) -> Identity:
    """What the outputs of a run are bound to.

    Args:
        context: of the run; on GPUs the driver names their model, as it does for receipts.
        ran: what was seen.
        solo_kernels: the solo kernel of the worker's shape as it is compiled here.
    """
    frozen = ran.frozen
    models = sorted({gpu.name for gpu in context.gpus()}) if context.hold.gpus else [frozen.device]
    return Identity(
        gpu_model=" and ".join(models),
        definition_sha256=frozen.definition_sha256,
        query_block=frozen.query_block,
        checkpoint_sha256=ran.checkpoint_sha256,
        input_set_sha256=frozen.input_set_sha256,
        solo_kernels=solo_kernels | binaries(ran.served.bias),
        outputs=frozen.outputs,
    )
