"""The receipt of a solo worker with the frozen inputs: what a pair's worker has to give as well."""

from __future__ import annotations

from pp4.errors import Code
from pp4.hold.open import OpenHold
from pp4.qualify import gpu_members, judge, whole_worker
from pp4.qualify.context import Context
from pp4.qualify.judge.whole_worker import WholeRun
from pp4.qualify.progress import Progress
from pp4.receipts.digests import sha256_hex
from pp4.receipts.hardware_checks import WORKER_BIAS, WORKER_SOLO
from pp4.run.receipt import hold_of, kernel_row, private_of_host
from pp4.wire.frozen import FrozenOutput
from pp4.wire.gpus import GpuReport

_STEP = "whole-worker"
LIMITS = (
    "One GPU held both shards: nothing here is evidence about peer memory or about a pair.",
    "An identity reference: it says what came out, not that it is right; the gates of the solo "
    "receipt of the same HOLD are about that.",
    "A worker under the grant of a HOLD, with one client and one captured batch size; no speed is "
    "claimed, and no other request was served.",
    "Not established: GB10, grammar and parser, live throughput.",
)


def record(
    hold: OpenHold, context: Context, report: GpuReport, progress: Progress
) -> dict[str, object]:
    """Run a solo worker with the frozen inputs; -> members of its receipt.

    Args:
        hold: under which it runs.
        context: of the gates before it, which have hashed the libraries and know the baseline.
        report: the GPUs as they were before.
        progress: who watches.

    Raises:
        Pp4Error: nothing came out that a receipt could be about.
    """
    progress.note("a solo worker drafts the frozen inputs")
    hold.journal.add(_STEP, "begin")
    ran = whole_worker.run(context, context.whole, solo=True)
    device = context.settings.devices[0]
    code = judge.sound(ran, (device, device), context.whole.batch, compiles=True)
    code = code or judge.loaded(ran.served, context.record.libraries)
    _, rested = context.at_rest()
    code = code or (None if rested else Code.LEAK)
    hold.journal.add(_STEP, "end", found="pass" if code is None else f"failed({code})")
    return gpu_members.bare(hold, context, report, _members(hold, context, ran, code))


def _members(
    hold: OpenHold, context: Context, ran: WholeRun, code: Code | None
) -> dict[str, object]:
    frozen = ran.frozen
    return {
        "kind": "whole_worker",
        "mode": "solo",
        "verdict": "recorded" if code is None else "wrong",
        "limits": [*LIMITS, *context.whole.limits],
        "hold": hold_of(hold),
        "definition": {"id": frozen.definition, "sha256": frozen.definition_sha256},
        "query_block": frozen.query_block,
        "n_out": min(one.n_out for one in frozen.outputs),
        "checkpoint_sha256": ran.checkpoint_sha256,
        "input_set_sha256": frozen.input_set_sha256,
        "outputs": [_output(one) for one in frozen.outputs],
        "settings": {
            **context.whole.as_facts(),
            **ran.served.versions,
            "sampled_rows": frozen.with_q,
            "greedy_rows": frozen.without_q,
            "found": "nothing wrong" if code is None else str(code),
        },
        # two processes ran on one device, and a receipt of it has one rank
        "kernels": [
            *(kernel_row(WORKER_SOLO, one) for one in ran.served.kernels[:1]),
            *(kernel_row(WORKER_BIAS, one) for one in ran.served.bias[:1]),
        ],
        "libraries": [library.model_dump() for library in context.record.libraries],
        "elapsed_ns": str(frozen.elapsed_ns),
        "private": private_of_host(),
    }


def _output(one: FrozenOutput) -> dict[str, object]:
    return {**one.model_dump(mode="json"), "sha256": sha256_hex("".join(one.blocks).encode())}
