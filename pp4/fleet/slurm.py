"""A plan as batch scripts of Slurm: for each node an array of jobs, one after another.

A script does nothing but start ``pp4 pair-qualify``, pass the end on to it and write its exit code
down.  Locks, leases and the end of every process are the business of the HOLD that it opens.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from pp4.errors import BadInputError, Code, Refusal, RefusedError
from pp4.fleet.forms import read_form
from pp4.fleet.plan import Node, Plan
from pp4.fleet.rounds import Pair, Round
from pp4.receipts.canonical import dump, shown
from pp4.receipts.envelope import Model
from pp4.receipts.store import write_new

RUN: Final = "fleet.json"
"""What was emitted, in the directory that it was emitted to."""
RESULTS: Final = "results"
LOGS: Final = "logs"
EXIT: Final = "exit"
"""The exit code of a pair's command, in the pair's directory; not there where it was killed."""
LOG: Final = "log.txt"
"""What the command said, beside it."""
SCHEMA: Final = "pp4-fleet-run/1"
END_S: Final = 120
"""Seconds before its time limit at which a job is told to end: a HOLD that is closed may take as
long.  Slurm tells it up to a minute early."""
SLACK_MINUTES: Final = 3
"""What a job has beyond the minutes of its pair, so that the telling does not cut into them."""
UNCLEAN: Final = 6
Body = Literal["qualification", "rehearsal"]
_PLACE: Final = re.compile(r"/[A-Za-z0-9._/+@,=:-]*", re.ASCII)
_PROGRAM: Final = re.compile(r"[^\s-]\S*")


class Run(Model):
    """What was emitted.

    Attributes:
        schema_: version of this form.
        body: the kind of receipt that each pair leaves.
        plan: whose pairs they are.
    """

    schema_: Literal["pp4-fleet-run/1"] = Field(alias="schema")
    body: Body
    plan: Plan


def read_run(directory: Path) -> Run:
    """Read what was emitted to a directory.

    Raises:
        RefusedError, WrongError: as :func:`pp4.fleet.plan.read_plan`.
    """
    return read_form(Run, SCHEMA, directory / RUN)


def pair_name(pair: Pair) -> str:
    """Return what the directory of a pair is called."""
    return f"{pair[0]}-{pair[1]}"


def pair_directory(directory: Path, node: Node, pair: Pair) -> Path:
    """Return where a pair leaves its receipt, its log and its exit code."""
    return directory / RESULTS / node.name / pair_name(pair)


def emit(plan: Plan, out: Path, *, program: str = "pp4", rehearse: bool = False) -> list[Path]:
    """Write a script for each node, and what they were made of, to a new directory.

    Args:
        plan: what to run.
        out: a directory that is not there yet; the nodes have to see it under the same path.
        program: how the nodes call pp4: a name, or an absolute path.
        rehearse: run rehearsals on the nodes' CPUs, which touch no GPU.

    Returns:
        The scripts, in the order of the nodes.

    Raises:
        BadInputError: UUIDs are missing, or a name that no line of a script can hold.
        RefusedError: ``EXISTS``, ``UNWRITABLE``.
    """
    place = out.absolute()
    if not _PLACE.fullmatch(str(place)):
        expected = "a path of letters, digits and ._/+@,=:- that Slurm takes as it is"
        raise BadInputError.of("--out", expected, shown(str(place)))
    if not _PROGRAM.fullmatch(program) or not program.isprintable():
        raise BadInputError.of("--pp4", "a program without blanks in its name", shown(program))
    _want_uuids(plan, rehearse)
    run = {
        "schema": SCHEMA,
        "body": "rehearsal" if rehearse else "qualification",
        "plan": plan.model_dump(mode="json", by_alias=True),
    }
    _make(place)
    try:
        for name in (LOGS, RESULTS):
            _make(place / name)
        scripts = []
        for node in plan.nodes:
            path = place / f"{node.name}.sbatch"
            write_new(path, script(plan, node, place, program, rehearse=rehearse).encode())
            scripts.append(path)
        write_new(place / RUN, dump(run))
    except BaseException:
        # half of a fleet looks like the whole of it
        shutil.rmtree(place, ignore_errors=True)
        raise
    return scripts


def _make(directory: Path) -> None:
    where = shown(str(directory))
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        expected = "a directory that is not there yet: each run of a plan has its own"
        raise RefusedError(
            Refusal(Code.EXISTS, where, expected, "one, or a file of that name")
        ) from None
    except OSError as error:
        found = error.strerror or str(error)
        raise RefusedError(Refusal(Code.UNWRITABLE, where, "a new directory", found)) from error


def _want_uuids(plan: Plan, rehearse: bool) -> None:
    """Refuse numbers where GPUs are meant: the driver's change when a GPU falls off the bus."""
    unknown = [node.name for node in plan.nodes if not node.uuids]
    if unknown and not rehearse:
        raise BadInputError(
            Refusal(
                Code.BAD_INPUT,
                f"node {unknown[0]} of the plan",
                "UUIDs of its GPUs (nvidia-smi -L): their numbers change when one is lost",
                "their number alone",
                next="pp4 fleet plan --help",
            )
        )


def script(plan: Plan, node: Node, place: Path, program: str, *, rehearse: bool) -> str:
    """Return the batch script of a node.

    Args:
        plan: whose it is.
        node: one of the plan.
        place: absolute path of the run's directory.
        program: how the node calls pp4.
        rehearse: run rehearsals.
    """
    batches = plan.batches(node)
    what = ["--dry-run"] if rehearse else ["--hold", "local"]
    words = {
        "JOB": f"pp4-{node.name}",
        "NODE": node.name,
        "LAST": str(len(batches)),
        "MINUTES": str(plan.minutes + SLACK_MINUTES),
        "END_S": str(END_S),
        "LOG": f"{place}/{LOGS}/{node.name}-%a.txt",
        "RESULTS": shlex.quote(str(place / RESULTS / node.name)),
        "SEEN": "" if rehearse else '"CUDA_VISIBLE_DEVICES=${gpus[$pair]}" ',
        "COMMAND": shlex.join([program, "pair-qualify", *what]),
        "CASES": "\n".join(_cases(node, batches)),
        "UNCLEAN": str(UNCLEAN),
    }
    return re.sub(r"@([A-Z_]+)@", lambda word: words[word[1]], _TEMPLATE)


def _cases(node: Node, batches: tuple[Round, ...]) -> Iterator[str]:
    """Yield a line for each job: the pairs that it runs, and their GPUs."""
    for number, pairs in enumerate(batches, start=1):
        words = [f"[{pair_name(pair)}]={shlex.quote(_uuids(node, pair))}" for pair in pairs]
        yield f"{number}) gpus=({' '.join(words)}) ;;"


def _uuids(node: Node, pair: Pair) -> str:
    """UUIDs of a pair as ``CUDA_VISIBLE_DEVICES`` has them; nothing where they are not known."""
    return ",".join(node.uuids[gpu] for gpu in pair) if node.uuids else ""


_TEMPLATE: Final = r"""#!/bin/bash
#SBATCH --job-name=@JOB@
#SBATCH --nodes=1
#SBATCH --nodelist=@NODE@
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --array=1-@LAST@%1
#SBATCH --time=@MINUTES@
#SBATCH --signal=B:TERM@@END_S@
#SBATCH --no-requeue
#SBATCH --output=@LOG@
# Made by 'pp4 fleet emit slurm'; docs/fleet.md says what each line is for.
set -eu

results=@RESULTS@
# Journals and compiled kernels stay on the node: a home on the network has those of all nodes.
export PP4_STATE_DIR="${PP4_STATE_DIR:-/var/tmp/pp4-fleet-$(id -u)}"

clean() {
    case $1 in
    0 | 1 | 2 | 3 | 4 | 5 | 130 | 143) ;;
    *) return 1 ;;
    esac
}
no_further_pair() {
    echo "no further pair is run on this node: exit code $1 of $2" >&2
    scancel --state=PENDING "$SLURM_ARRAY_JOB_ID" || true
}

# What was killed, or ended uncleanly, may have left something behind: an operator looks first.
mkdir -p -- "$results"
for earlier in "$results"/*/; do
    [[ -e $earlier ]] || continue
    code=none
    [[ ! -e $earlier/exit ]] || code=$(<"$earlier/exit")
    if ! clean "$code"; then
        no_further_pair "$code" "$earlier"
        exit @UNCLEAN@
    fi
done

# Each pair of this job, and the GPUs that its command may see.
declare -A gpus=()
case $SLURM_ARRAY_TASK_ID in
@CASES@
*) exit 2 ;;
esac

# A pair that has a directory has run, and is not run again.
for pair in "${!gpus[@]}"; do
    mkdir -- "$results/$pair"
done

# Slurm tells this shell alone, and the shell each command: it closes its HOLD and ends.
declare -A running=()
told=
tell() {
    local each
    told=yes
    for each in "${!running[@]}"; do
        kill -TERM "$each" 2>/dev/null || true
    done
}
trap tell TERM
for pair in "${!gpus[@]}"; do
    place=$results/$pair
    env @SEEN@@COMMAND@ --out "$place" >"$place/log.txt" 2>&1 &
    running[$!]=$pair
done

worst=0
stop=
for one in "${!running[@]}"; do
    while :; do
        told=
        code=0
        wait "$one" || code=$?
        [[ -n $told ]] || break # a signal ends the waiting, not what is waited for
    done
    echo "$code" >"$results/${running[$one]}/exit"
    clean "$code" || stop=yes
    ((code <= worst)) || worst=$code
done
[[ -z $stop ]] || no_further_pair "$worst" "$results"
exit "$worst"
"""
