"""No launcher, unit, example, script or page of this repository turns a switch on.

A page may show one command: a worker whose device is the reference, which drafts on a CPU for
people who try things out, and beside it an engine that asks that worker.
"""

import re
from pathlib import Path

import pytest

from pp4.config import SWITCHES
from pp4.launch.launchers import PAGES, launcher_findings
from pp4.launch.texts import assignments

ROOT = Path(__file__).parents[3]
PLACES = ("launch", "examples", "benchmarks", ".ci", "Makefile", "pyproject.toml")
WRITTEN = ("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "receipts")
WORKER, ENGINE = SWITCHES
REFERENCE = re.compile(r"\bpp4 worker serve\b.*--device[ =]reference\b")
FENCE = re.compile(r" {0,3}(```|~~~)")


def files(names):
    for name in names:
        place = ROOT / name
        found = sorted(place.rglob("*")) if place.is_dir() else [place]
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def commands(text):
    """Yield (line, command, whether its block serves a reference worker) of a page.

    A command is a line of a fenced block with those that it goes on in; any other line is prose,
    and no block of commands.
    """
    block, number, fenced = [], 0, False
    rows = iter(enumerate(text.split("\n"), 1))
    for number, row in rows:
        if FENCE.match(row):
            yield from _served(block)
            block, fenced = [], not fenced
        elif fenced:
            while row.endswith("\\"):
                row = f"{row[:-1]} {next(rows, (0, ''))[1]}"
            block.append((number, row))
        else:
            yield number, row, False
    yield from _served(block)


def _served(block):
    served = any(REFERENCE.search(row) for _, row in block)
    return [(number, row, served) for number, row in block]


def shown(text):
    """Lines of a page that show what no page may show."""
    return [
        number
        for number, row, served in commands(text)
        for _, what in assignments(row, "plain")
        if not served or (ENGINE not in what and not REFERENCE.search(row))
    ]


def test_no_launcher_enables_a_switch():
    read = [path for path in files(PLACES) if path.suffix not in PAGES]
    names = {str(path.relative_to(ROOT)) for path in read}
    assert {"launch/pp4-worker.service", "launch/runner/start.sh", ".ci/run", "Makefile"} <= names
    assert {"benchmarks/verifier.py", "examples/mini/generate.py"} <= names
    found = [
        one
        for path in read
        for one in launcher_findings(str(path.relative_to(ROOT)), path.read_bytes())
    ]
    assert found == []


def test_pages_show_a_switch_for_a_reference_worker_alone():
    pages = [path for path in files((*PLACES, *WRITTEN)) if path.suffix in PAGES]
    assert len(pages) > 20
    found = {str(path): shown(path.read_text("utf-8")) for path in pages}
    assert {path: lines for path, lines in found.items() if lines} == {}
    # and the README does show it, or this would show nothing
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len([1 for _, row, _ in commands(readme) for _ in assignments(row, "plain")]) >= 2


SERVE = "pp4 worker serve DIR"


def page(*rows, fence="```sh"):
    return "\n".join(["# A page", fence, *rows, fence[:3], "More."])


@pytest.mark.parametrize(
    "text",
    [
        page(f"{WORKER}=1 {SERVE} --device reference"),
        page(f"{WORKER}=1 {SERVE} \\", "    --device reference &", f"{ENGINE}=1 python -m a"),
        page(f"{WORKER}=1 {SERVE} --device=reference", fence="~~~"),
        page(f"{WORKER}=0 {SERVE}"),
        f"`{WORKER}` is off; it takes 0 or 1.",
    ],
)
def test_what_a_page_may_show(text):
    assert shown(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (page(f"{WORKER}=1 {SERVE}"), 3),
        (page(f"{WORKER}=1 {SERVE} --device cuda"), 3),
        (page(f"{SERVE} --device reference", f"{WORKER}=1 {SERVE}"), 4),
        (page(f"{SERVE} --device reference", f"export {WORKER}=1"), 4),
        (page("a \\", "  b", f"{ENGINE}=1 python -m a"), 5),
        (page(f"{WORKER}=1 {SERVE} --device reference") + "\n" + page(f"{ENGINE}=1 run"), 8),
        (f"Set {WORKER}=1 and `{SERVE} --device reference`.", 1),
        (f"    {WORKER}=1 {SERVE} --device reference", 1),
        (page(f"{WORKER}=1 other --device reference"), 3),
        (page("environment:", f"  {WORKER}: 1"), 4),
    ],
)
def test_what_it_may_not(text, line):
    assert shown(text) == [line]
