"""What a person, or a program that reads ``--json``, sees; the only part of pp4 that prints.

A terminal gets tables and a moving bar, anything else plain lines that ``grep`` and a log file can
live with.  Results go to standard output, progress and refusals to standard error.  rich is
imported where it is used: most calls never need it.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pp4.console import checkpoints, fleets, measurements, replays, seen_holds, workers
from pp4.console import pages as explained
from pp4.console import standings as qualifications
from pp4.console.progress import LiveProgress, PlainProgress
from pp4.console.streams import Stream, visible
from pp4.console.watching import Silent, Watching
from pp4.errors import Exit, Refusal, RefusedError

if TYPE_CHECKING:
    from pp4.doctor import Diagnosis
    from pp4.explain import Page
    from pp4.fleet.plan import Plan
    from pp4.fleet.report import FleetReport
    from pp4.qualify.standing import Answer, Standing
    from pp4.receipts.checks import Check
    from pp4.receipts.report import Report
    from pp4.report.document import Document
    from pp4.report.evidence import Link
    from pp4.report.listing import Row
    from pp4.wire.drafts import Standing as WorkerStanding

__all__ = ["Console", "Outcome", "Stream", "visible"]


class Outcome(Protocol):
    """What a rehearsal hands back, as far as a person sees it."""

    @property
    def verdict(self) -> str:
        """The verdict's word."""

    @property
    def receipt_path(self) -> Path:
        """Where the receipt lies."""

    @property
    def exit(self) -> Exit:
        """The exit code of the run."""

    @property
    def receipt(self) -> Mapping[str, Any]:
        """The receipt, parsed."""

    @property
    def differences(self) -> Sequence[str]:
        """What a physical run would do otherwise."""

    @property
    def more(self) -> Sequence[Path]:
        """Where further receipts of the run lie."""


class Console:
    """Renders results, refusals and progress.

    Args:
        as_json: one JSON document on standard output instead of text for people.
        color: whether a terminal may be coloured.
    """

    def __init__(self, *, as_json: bool = False, color: bool = True) -> None:
        self.as_json = as_json
        self.color = color
        self._out = Stream(sys.stdout, "standard output")
        self._err = Stream(sys.stderr, "standard error")

    def close(self) -> None:
        """Let go of both streams; what cannot be flushed any more is dropped."""
        self._out.close()
        self._err.close()

    def reader_left(self) -> bool:
        """Whether somebody else met the broken pipe of standard output before us."""
        return self._out.file is not sys.stdout

    def line(self, text: str = "") -> None:
        """Print one line of a result."""
        self._out.write(f"{visible(text)}\n")

    def document(self, content: Mapping[str, object]) -> None:
        """Print the one JSON document of a ``--json`` run."""
        self._out.write(json.dumps(content, indent=2, ensure_ascii=True) + "\n")

    def refusal(self, refusal: Refusal) -> None:
        """Print a refusal: text on standard error, or the same object as the JSON document."""
        record = refusal.as_dict()
        if self.as_json:
            self.document(record)
            return
        order = ("code", "where", "host", "expected", "source", "found", "left", "next")
        names = {"source": "from"}
        text = "".join(f"{names.get(key, key):<9} {visible(record[key])}\n" for key in order)
        self._complain(text)

    def trace(self, error: BaseException) -> None:
        """Print the traceback of an unexpected error; for ``PP4_DEBUG=1`` alone."""
        self._complain("".join(traceback.format_exception(error)))

    def diagnosis(self, diagnosis: Diagnosis) -> None:
        """Print what the doctor found."""
        if self.as_json:
            self.document(diagnosis.as_dict())
            return
        rows = [(c.status, c.name, c.found, c.needed_for, c.todo) for c in diagnosis.checks]
        self._table(("status", "what", "found", "needed for", "to do"), rows)

    def page(self, page: Page) -> None:
        """Print the page of one code."""
        if self.as_json:
            self.document(page.as_dict())
            return
        width = shutil.get_terminal_size().columns if self._out.terminal else None
        for line in explained.lines(page, width):
            self.line(line)

    def pages(self, pages: Sequence[Page]) -> None:
        """Print every code with its cause."""
        if self.as_json:
            self.document({"codes": [page.as_dict() for page in pages]})
            return
        self._table(("code", "cause"), [(page.code, page.cause) for page in pages])

    def report(self, report: Report) -> None:
        """Print every check of a verification and what the receipts prove."""
        if self.as_json:
            self.document(report.as_dict())
            return
        for file in report.files:
            self.line(
                f"{file.file}: {file.kind or 'no receipt'}, sha256 {file.sha256 or 'unknown'}"
            )
            self._checks(file.checks)
            for text in file.shows:
                self.line(f"shows: {text}")
            for text in file.does_not_show if file.kind else ():
                self.line(f"does not show: {text}")
            self.line()
        if report.overall:
            self.line("all files together:")
            self._checks(report.overall)
        if report.failures:
            # The table says it all; the refusal says the first thing in the shape of all others.
            first, *more = report.failures
            found = f"{first.found} (and {len(more)} more)" if more else first.found
            where = f"{first.file}: {first.name}" if first.file else first.name
            self.refusal(Refusal(first.code, where, first.expected, found, "verify-receipt"))

    def _checks(self, checks: Sequence[Check]) -> None:
        rows = [
            (c.status, c.name, c.code if c.status == "fail" else "", c.expected, c.found)
            for c in checks
        ]
        self._table(("status", "check", "code", "expected", "found"), rows)

    def outcome(self, outcome: Outcome) -> None:
        """Print a rehearsal: its gates, what it does not show, and how to check its receipt."""
        if self.as_json:
            self.document(_outcome_record(outcome))
            return
        rows = [
            (
                f"{gate['gate']} {gate['name']}",
                arm["arm"],
                "must be caught" if arm["expected"].startswith("caught") else "must pass",
                arm["expected"],
                arm["found"],
                f"{int(arm['elapsed_ns']) / 1e9:.2f}",
                _judged(arm),
            )
            for gate in outcome.receipt["gates"]
            for arm in gate["arms"]
        ]
        self._table(("gate", "arm", "kind", "expected", "found", "seconds", "result"), rows)
        self.line()
        self.line(f"verdict: {outcome.verdict}")
        if outcome.differences:
            self.line("A physical run would do differently:")
        for difference in outcome.differences:
            self.line(f"  - {difference}")
        for one in (outcome.receipt_path, *outcome.more):
            self.line(f"receipt: {one}")
        kind = shlex.quote(str(outcome.receipt["kind"]))
        path = shlex.quote(str(outcome.receipt_path))
        self.line(f"check it with: pp4 verify-receipt --kind {kind} {path}")

    def projection(self, budget: Mapping[str, Any]) -> None:
        """Print how long a window is projected to take, by a budget; nothing under ``--json``."""
        if not self.as_json:
            self._table(measurements.PARTS, measurements.parts(budget))

    def measurement(self, made: Mapping[str, Any]) -> None:
        """Print how a budget, a half or a rehearsal of one ended: members of the document."""
        if self.as_json:
            self.document(made)
            return
        for head, rows in measurements.tables(made):
            self._table(head, rows)
            self.line()
        for line in measurements.lines(made):
            self.line(line)

    def answer(self, answer: Answer) -> None:
        """Print whether a worker may start on one receipt, and everything against it."""
        if self.as_json:
            self.document(answer.as_dict())
            return
        self._table(qualifications.HEAD, qualifications.rows([answer.standing]))
        if answer.refusal is not None:
            self.refusal(answer.refusal)

    def standings(self, standings: Sequence[Standing], line: str, code: Exit) -> None:
        """Print what this machine is qualified for, and what ended each other qualification."""
        if self.as_json:
            self.document(qualifications.record(standings, line, code))
            return
        self.line(line)
        if standings:
            self._table(qualifications.HEAD, qualifications.rows(standings))

    def facts(self, facts: Mapping[str, object]) -> None:
        """Print what a command did, a line for each fact."""
        if self.as_json:
            self.document(facts)
            return
        for name, fact in facts.items():
            for one in fact if isinstance(fact, list | tuple) else [fact]:
                self.line(f"{name.replace('_', ' ')}: {one}")

    def overview(self, overview: Mapping[str, Any]) -> None:
        """Print the HOLDs and GPUs of a host: members of :class:`pp4.hold.overview.Overview`."""
        if self.as_json:
            self.document(overview)
            return
        self.line(f"{overview['exclusion']} locks in {overview['directory']}")
        if overview["holds"]:
            self._table(seen_holds.HOLDS, seen_holds.holds(overview["holds"]))
        if overview["gpus"]:
            self._table(seen_holds.GPUS, seen_holds.gpus(overview["gpus"]))
        for fault in overview["unreadable"]:
            self.line(f"unreadable: {fault['path']}: {fault['found']}")

    def checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Print a drafter's checkpoint: what :mod:`pp4.drafter.inspection` says of it."""
        if self.as_json:
            self.document(checkpoint)
            return
        self._table(checkpoints.HEAD, checkpoints.rows(checkpoint["tensors"]))
        self.line()
        for line in checkpoints.lines(checkpoint):
            self.line(line)

    def replay(self, found: Mapping[str, Any]) -> None:
        """Print a replay: what :mod:`pp4.engine.replay.replaying` says of it."""
        if self.as_json:
            self.document(found)
            return
        self._table(replays.HEAD, replays.rows(found))
        self.line()
        self._table(replays.POSITIONS, replays.positions(found))
        self.line()
        for line in replays.lines(found):
            self.line(line)

    def fleet_plan(self, plan: Plan) -> None:
        """Print a plan: its rounds, how long they take, and what it cannot tell."""
        if self.as_json:
            self.document(plan.as_dict())
            return
        self._table(fleets.ROUNDS, fleets.rounds(plan))
        for note in plan.notes:
            self.line(note)

    def fleet_report(self, report: FleetReport) -> None:
        """Print what the receipts of a fleet say: its nodes, suspects, pairs that did not pass."""
        if self.as_json:
            self.document(report.as_dict())
            return
        self._table(fleets.NODES, fleets.nodes(report))
        for head, rows in (
            (fleets.SUSPECTS, fleets.suspects(report)),
            (fleets.PAIRS, fleets.pairs(report)),
        ):
            if rows:
                self.line()
                self._table(head, rows)
        for line in fleets.lines(report):
            self.line(line)

    def drawn(self, document: Document, html: Path | None) -> None:
        """Print a report of receipts, and where its page lies."""
        if self.as_json:
            self.document({**document.as_dict(), "html": None if html is None else str(html)})
            return
        from pp4.console import reports

        for part in reports.told(document):
            if isinstance(part, str):
                self.line(part)
            else:
                self._table(part.head, part.rows, part.words)
        if html is not None:
            self.line(f"page: {html}")

    def receipts_table(self, rows: Sequence[Row], code: Exit) -> None:
        """Print many receipts at a glance."""
        from pp4.console import reports

        if self.as_json:
            self.document({"exit": int(code), "receipts": [asdict(row) for row in rows]})
        elif rows:
            self._table(reports.RECEIPTS, reports.receipts(rows))
        else:
            self.line("no receipts")

    def receipts_tree(self, chain: Sequence[Link]) -> None:
        """Print chains of evidence."""
        from pp4.console import reports

        if self.as_json:
            self.document({"chain": [asdict(link) for link in chain]})
            return
        for line in reports.tree(chain):
            self.line(line)

    def worker(self, standing: WorkerStanding) -> None:
        """Print how a worker is, and the refusal that it answers with once it has failed."""
        if self.as_json:
            self.document(workers.record(standing))
            return
        from pp4.wire.facts import refusal_of

        for line in workers.lines(standing):
            self.line(line)
        if standing.refusal is not None:
            self.refusal(refusal_of(standing.refusal))

    @contextmanager
    def progress(self) -> Iterator[Watching]:
        """Watch a run for as long as the block lasts; silent under ``--json``."""
        if self.as_json:
            yield Silent()
        elif not self._err.terminal:
            yield PlainProgress(self._complain)
        else:
            from rich.console import Console as Screen
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            screen = Screen(file=self._err.file, no_color=not self.color, markup=False)
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            text = TextColumn("{task.description}", markup=False)
            with Bar(*columns, text, console=screen, transient=True) as bar:
                yield LiveProgress(bar)

    def _complain(self, text: str) -> None:
        try:
            self._err.write(text)
        except RefusedError:
            # There is no third stream to say it on; the exit code still does.
            return

    def _table(
        self, head: Sequence[str], rows: Sequence[Sequence[object]], words: int | None = None
    ) -> None:
        """Print rows; columns after the first ``words`` are numbers and end at one edge."""
        cells = [[visible(str(cell)) for cell in row] for row in rows]
        left = len(head) if words is None else words
        if self._out.terminal:
            self._out.write(_rich_table(head, cells, left, color=self.color))
            return
        width = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
        for row in (head, *cells):
            padded = (
                cell.ljust(size) if place < left else cell.rjust(size)
                for place, (cell, size) in enumerate(zip(row, width, strict=True))
            )
            self._out.write("  ".join(padded).rstrip() + "\n")


def _judged(arm: Mapping[str, Any]) -> str:
    if arm["found"] == arm["expected"]:
        return "ok"
    return "WRONG" if arm["gating"] else "recorded"


def _outcome_record(outcome: Outcome) -> dict[str, object]:
    return {
        "verdict": outcome.verdict,
        "exit": int(outcome.exit),
        "receipt_path": str(outcome.receipt_path),
        "more_receipts": [str(path) for path in outcome.more],
        "differences": list(outcome.differences),
        "receipt": dict(outcome.receipt),
    }


def _rich_table(
    head: Sequence[str], cells: Sequence[Sequence[str]], words: int, *, color: bool
) -> str:
    from rich import box
    from rich.console import Console as Screen
    from rich.table import Table
    from rich.text import Text

    # Numbers stand in many narrow columns, which have to fit beside each other.
    padding = (0, 1) if words == len(head) else (0, 1, 0, 0)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
    for place, name in enumerate(head):
        justify: Literal["left", "right"] = "left" if place < words else "right"
        table.add_column(name, overflow="fold", justify=justify)
    for row in cells:
        table.add_row(*(Text(cell, style=_STYLE.get(cell, "")) for cell in row))
    screen = Screen(file=sys.stdout, no_color=not color)
    with screen.capture() as capture:
        screen.print(table)
    return capture.get()


_STYLE = {
    "ok": "green",
    "pass": "green",
    "stands": "green",
    "warn": "yellow",
    "missing": "yellow",
    "skipped": "yellow",
    "recorded": "yellow",
    "fail": "bold red",
    "void": "bold red",
    "WRONG": "bold red",
}
