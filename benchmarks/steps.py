"""What each step of a position costs on a GPU, by small kernels of the product's own functions.

``python -m benchmarks.steps`` takes two GPUs of one host (``--solo``: one).  Each probe's answer is
checked first.  Ends with 0, with 1 where a check was red, with 3 where nothing can be measured
here.  ``--check-only --device cpu`` runs each in Triton's interpreter, ``--compile`` compiles each
for an H200 where none is.
"""

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path

from benchmarks.racing import conditions
from benchmarks.racing.crew import Crew, LostError, seats_here
from benchmarks.racing.field import PAIR
from benchmarks.racing.probe_field import BY_NAME, STEPS

PATIENCE_S = 240.0
# One tile of one row shows what a whole shard would: the interpreter is slow.
_SMALL = {
    "select": lambda given: {"columns": given["tile"] - 3},
    "look_into": lambda given: {"columns": given["tile"] - 3},
    "products": lambda given: {"columns": 600},
    "dependent": lambda given: {"rows": 64},
}


def parsed(argv):
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solo", action="store_true", help="one GPU, no exchange")
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--replays", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), metavar="NAME")
    parser.add_argument("--json", type=Path, help="where the JSON goes; standard output without")
    parser.add_argument("--seconds", type=float, help="start no further line after this long")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--compile", action="store_true", help="compile for sm_90, run nothing")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args(argv)
    if asked.batches is None:
        asked.batches = [1, 8, 32] if asked.device == "cuda" else [2]
    if asked.replays < 1 or any(not 1 <= batch <= 64 for batch in asked.batches):
        parser.error("--replays: at least one; --batches: 1 to 64 rows")
    if asked.json is not None and not asked.json.parent.is_dir():
        # found out now, and not when there is something to lose
        parser.error(f"--json: a file in a folder that is there, found {asked.json}")
    return asked


def jobs(asked):
    """Every line that a run is asked for, in order."""
    for step in STEPS:
        if (asked.only and step.name not in asked.only) or (asked.solo and step.seats == PAIR):
            continue
        small = _SMALL.get(step.make) if asked.device == "cpu" else None
        for batch in asked.batches if step.batched else [1]:
            yield {
                "verb": "probe",
                "step": step.name,
                "batch": batch,
                "given": small(step.given) if small else {},
                "replays": 0 if asked.check_only else asked.replays,
            }


def priced(crew, job):
    """One line: the worst state of the ranks, the slower one's time."""
    paired = BY_NAME[job["step"]].seats == PAIR
    if paired and crew.seats < 2:
        return {"state": "absent", "found": "needs two GPUs"}
    try:
        answers = crew.ask(job, PATIENCE_S, seats=2 if paired else 1)
    except LostError as error:
        return {"state": "lost", "found": str(error)}
    for state in ("failed", "red", "absent"):
        for answer in answers:
            if answer["state"] == state:
                if state != "absent":
                    crew.close()
                return answer
    return max(answers, key=lambda answer: answer.get("median_us", 0))


def text(lines):
    """Markdown: microseconds of each step."""
    rows = ["| step | B | median us | p99 | what |", "|---|---|---|---|---|"]
    for line in lines:
        found = " ".join(f"{line['state']} {line.get('found', '')}".split()).replace("|", "/")
        cells = [found[:200], ""]
        if line["state"] == "timed":
            cells = [f"{line['median_us']:.3f}", f"{line['p99_us']:.3f}"]
        what = BY_NAME[line["step"]].what
        rows.append("| " + " | ".join(map(str, [line["step"], line["batch"], *cells, what])) + " |")
    return "\n".join(rows)


def compile_all(asked):
    """Compile every probe, of a link in this process; -> a line for each."""
    import torch

    from benchmarks.racing import probing
    from pp4.kernels.link import SoloLink

    cpu, lines = torch.device("cpu"), []
    for job in jobs(asked):
        step = BY_NAME[job["step"]]
        given = dict(step.given) | ({"rows": 64} if step.make == "dependent" else {})
        if step.seats == PAIR:
            given["link"] = SoloLink(1)
        began = time.monotonic()
        ptx = probing.compiled(getattr(probing, step.make)(cpu, 1, **given))
        digest = hashlib.sha256(ptx.encode()).hexdigest()
        lines.append({"step": step.name, "ptx_sha256": digest, "s": time.monotonic() - began})
    return lines


def main(argv=None):
    """Check and time, or compile; print the table, leave the JSON."""
    asked = parsed(argv)
    record = {"where": conditions.machine(sys.argv if argv is None else ["steps", *argv])}
    if asked.compile:
        asked.batches = [1]
        record["compiled"] = compile_all(asked)
        return leave(record, asked.json, 0)
    seats = seats_here(asked)
    if not seats or (asked.device == "cpu" and not asked.check_only):
        print(
            "steps: times are measured on GPUs, and there is none here; --check-only --device cpu "
            "runs each probe in the interpreter, --compile compiles it",
            file=sys.stderr,
        )
        return 3
    with Crew(seats, asked.device) as crew:
        record |= run(asked, crew)
    print(text(record["lines"]))
    bad = {"red"} | ({"failed", "lost"} if asked.check_only else set())
    return leave(record, asked.json, int(any(line["state"] in bad for line in record["lines"])))


def run(asked, crew):
    """Every line; -> what is to be left."""
    began, lines = time.monotonic(), []
    try:
        versions = crew.ask({"verb": "versions"}, PATIENCE_S)
    except LostError as error:
        versions = [{"lost": str(error)}]
    before = conditions.gpus() if asked.device == "cuda" else None
    for job in jobs(asked):
        line = {"state": "left out", "found": f"{asked.seconds} s spent"}
        if asked.seconds is None or time.monotonic() - began <= asked.seconds:
            line = priced(crew, job)
        lines.append({"step": job["step"], "batch": job["batch"]} | line)
        print(f"{job['step']} B {job['batch']}: {line['state']}", file=sys.stderr, flush=True)
    after = conditions.gpus() if asked.device == "cuda" else None
    return {"versions": versions[0], "before": before, "lines": lines, "after": after}


def leave(record, path, code):
    """Write the JSON to a file, or as the last line; -> the exit code."""
    if path is None:
        print(json.dumps(record))
    else:
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
