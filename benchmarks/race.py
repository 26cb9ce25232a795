"""The race: pp4's kernel against what else draws one position, in one run, on the same inputs.

``python -m benchmarks.race`` takes two GPUs of one host (``--solo``: one) and tells microseconds
per position of a chain of five, the token fed to the next on the device, in one CUDA graph.  Each
contender is checked first; one that is wrong gets no time.  What goes wrong with one contender is
its line.  Ends with 0, with 1 where a check was red or pp4 itself did not run, with 3 where nothing
can be measured here.  ``--check-only --device cpu`` checks everything that needs no GPU.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.racing import conditions, table
from benchmarks.racing.crew import Crew, LostError, seats_here
from benchmarks.racing.field import BY_NAME, FIELD, PAIR

PATIENCE_S = 300.0
"""For one line: compilations, checks, graphs and times of one contender and shape."""
PATIENT_WITH = 2
"""Failures of a contender, after each of which the processes are started anew."""
MOST_ROWS = 64
# What a GPU takes by default; a CPU interprets the kernels, and small shapes show the same errors.
_DEFAULTS = {
    "cuda": {"vocab": [129280, 151936], "batches": [1, 8, 32], "rank_dim": 256, "tile": {}},
    "cpu": {"vocab": [128], "batches": [2], "rank_dim": 8, "tile": {"tile": 64}},
}


def parsed(argv):
    """The options, with what they are where none is given."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solo", action="store_true", help="one GPU, contenders of one GPU")
    parser.add_argument("--vocab", type=int, nargs="+")
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--replays", type=int, default=2000)
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), metavar="NAME")
    parser.add_argument("--json", type=Path, help="where the JSON goes; standard output without")
    parser.add_argument("--seconds", type=float, help="start no further line after this long")
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args(argv)
    vars(asked).update(
        {
            name: value
            for name, value in _DEFAULTS[asked.device].items()
            if getattr(asked, name, None) is None
        }
    )
    if any(vocab < 64 or vocab % 2 for vocab in asked.vocab):
        parser.error(f"--vocab: even numbers from 64, found {asked.vocab}")
    if any(not 1 <= batch <= MOST_ROWS for batch in asked.batches):
        parser.error(f"--batches: 1 to {MOST_ROWS} rows, found {asked.batches}")
    if asked.replays < 1:
        parser.error(f"--replays: at least one, found {asked.replays}")
    if asked.json is not None and not asked.json.parent.is_dir():
        # found out now, and not when there is something to lose
        parser.error(f"--json: a file in a folder that is there, found {asked.json}")
    return asked


def jobs(asked):
    """Every line that a run is asked for, in order."""
    for vocab in asked.vocab:
        for entry in FIELD:
            if asked.only and entry.name not in asked.only:
                continue
            if asked.solo and entry.seats == PAIR:
                continue
            for rows in ("cached", "uncached"):
                for batch in asked.batches:
                    yield {
                        "verb": "race",
                        "contender": entry.name,
                        "vocab": vocab,
                        "rows": rows,
                        "batch": batch,
                        "rank_dim": asked.rank_dim,
                        "tile": asked.tile,
                        "replays": 0 if asked.check_only else asked.replays,
                    }


class Race:
    """One run.

    Args:
        asked: the options.
        crew: the processes.
        say: is told all lines as each comes.
    """

    def __init__(self, asked, crew, say):
        self.asked, self.crew, self._say = asked, crew, say
        self._began, self._lost, self._failed = time.monotonic(), set(), Counter()
        self.lines = []

    def run(self):
        """Go through all lines; -> them."""
        for job in jobs(self.asked):
            names = ("contender", "vocab", "rows", "batch")
            line = {name: job[name] for name in names} | self._line(job)
            self.lines.append(line)
            self._say(self.lines)
        return self.lines

    def _line(self, job):
        entry = BY_NAME[job["contender"]]
        spent = time.monotonic() - self._began
        if self.asked.seconds is not None and spent > self.asked.seconds:
            return {"state": "left out", "found": f"{spent:.0f} s of {self.asked.seconds:g} spent"}
        if entry.seats == PAIR and self.crew.seats < 2:
            return {"state": "absent", "found": "needs two GPUs"}
        if entry.name in self._lost or self._failed[entry.name] == PATIENT_WITH:
            return {"state": "left out", "found": "earlier lines of it were lost or failed"}
        before = conditions.gpus() if job["replays"] else None
        try:
            answers = self.crew.ask(job, PATIENCE_S, seats=2 if entry.seats == PAIR else 1)
        except LostError as error:
            self._lost.add(entry.name)
            return {"state": "lost", "found": str(error)}
        line = told(answers)
        self._failed[entry.name] += line["state"] == "failed"
        if line["state"] in ("red", "failed"):
            # a context that saw an error, or a link whose words are set, is no good for the next
            self.crew.close()
        if line["state"] == "timed":
            line["before"], line["after"] = before, conditions.gpus()
        return line


def told(answers):
    """One line out of one answer or of both ranks': the worst state, the slower time."""
    for state in ("failed", "red", "absent"):
        for rank, answer in enumerate(answers):
            if answer["state"] == state:
                found = answer["found"]
                return {"state": state, "found": f"rank {rank}: {found}" if rank else found}
    line = {"state": answers[0]["state"]}
    if line["state"] == "timed":
        line["sets"] = answers[0]["sets"]
        for name in ("warm", "cold"):
            line[name] = max(
                (answer[name] for answer in answers), key=lambda one: one["group"]["median_us"]
            )
        line["ranks"] = answers
    return line


def status(asked, lines):
    """The exit code."""
    bad = {"red"} | ({"failed", "lost"} if asked.check_only else set())
    ours = [line for line in lines if line["contender"].startswith("pp4_")]
    wrong = any(line["state"] in bad for line in lines)
    return int(wrong or any(line["state"] in ("red", "failed", "lost") for line in ours))


def first_words(crew):
    """What the ranks run on and how quick a copy is; what cannot be told is said."""
    try:
        versions = crew.ask({"verb": "versions"}, PATIENCE_S)
        rate = None
        if crew.device == "cuda":
            rate = crew.ask({"verb": "copy"}, PATIENCE_S, seats=1)[0].get("bytes_per_s")
    except LostError as error:
        return {"lost": str(error)}, None
    return versions[0], rate


def _said(lines, record, path):
    """A word for each line as it comes, and what there is so far for whoever ends the run."""
    line = lines[-1]
    words = f"{line['contender']} V {line['vocab']} {line['rows']} B {line['batch']}"
    found = line.get("found", "")
    if line["state"] == "timed":
        found = ", ".join(f"{one} {line[one]['group']['median_us']} us" for one in ("warm", "cold"))
    print(f"{words}: {line['state']} {found}", file=sys.stderr, flush=True)
    if path is not None:
        leave(record | {"lines": lines}, path)


def main(argv=None):
    """Race, print the table, leave the JSON."""
    asked = parsed(argv)
    seats = seats_here(asked)
    if asked.device == "cpu" and not asked.check_only:
        print("race: a CPU can check (--check-only); time is measured on GPUs", file=sys.stderr)
        return 3
    if not seats:
        print(
            "race: no GPU here: neither times, nor contenders as a GPU runs them, nor FlashInfer "
            "can be measured; --check-only --device cpu checks the rest",
            file=sys.stderr,
        )
        return 3
    record = {"where": conditions.machine(sys.argv if argv is None else ["race", *argv])}
    with Crew(seats, asked.device) as crew:
        record["versions"], rate = first_words(crew)
        record["copy_bytes_per_s"] = rate
        record["start"] = conditions.gpus() if asked.device == "cuda" else None
        lines = Race(asked, crew, lambda lines: _said(lines, record, asked.json)).run()
    record |= {"lines": lines, "end": conditions.gpus() if asked.device == "cuda" else None}
    record["left_out"] = [line for line in lines if line["state"] == "left out"]
    print(table.lines_text(lines))
    if not asked.check_only:
        made = table.targets(lines, rate)
        record["targets"] = [vars(one) | {"verdicts": one.verdicts()} for one in made]
        print(f"\n{table.targets_text(made)}")
    leave(record, asked.json)
    return status(asked, lines)


def leave(record, path):
    """Write the JSON to a file, or as the last line."""
    if path is None:
        print(json.dumps(record))
    else:
        path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
