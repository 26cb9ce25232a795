"""The README's walk: each command as it stands there prints what stands below it.

What takes a GPU is not run: what is shown of it is held to the receipt that was archived.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pp4.console import Console
from pp4.errors import Exit
from tests.pages import ROOT, Shell, differs, section, steps

README = (ROOT / "README.md").read_text()
WALK = [
    step
    for title in ("## A first walk, without a GPU", "## On with one GPU")
    for step in steps(section(README, title))
]
REHEARSAL = "pp4 pair-qualify --dry-run --out rehearsal\n"
SOLO = "pp4 solo-qualify --checkpoint mini\n"
HELD = "6a416c013ce0a3d7"
"""HOLD of the run that the README shows."""
ENDS = {"pp4 gate": Exit.REFUSED, "pp4 status": Exit.REFUSED}
"""Commands that refuse where nothing was qualified; all others end well."""
WITHOUT_GPU = ("pp4 doctor", "pp4 gate")


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path, ("examples", "launch", "receipts"))


def expected_end(lines):
    last = lines.splitlines()[-1]
    return next((code for start, code in ENDS.items() if last.startswith(start)), Exit.DONE)


def test_the_walk_is_long_and_most_of_it_is_shown():
    assert len(WALK) >= 10
    assert all(shown for _, shown in WALK)


@pytest.mark.parametrize(
    "lines", [lines for lines, _ in WALK if REHEARSAL not in lines and lines != SOLO]
)
def test_a_step_prints_what_the_readme_shows(shell, lines):
    if lines.startswith(WITHOUT_GPU) and list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("the walk is one without a GPU")
    done = shell.run(lines)
    assert done.exit == expected_end(lines), done.said
    assert differs(dict(WALK)[lines], done.said) == ""


def printed_of(name, *more):
    """What ``pp4 solo-qualify`` prints where it leaves the archived receipt ``name``, and more."""
    receipt = json.loads((ROOT / "receipts" / name).read_bytes())
    outcome = SimpleNamespace(
        receipt=receipt,
        verdict=receipt["verdict"],
        differences=(),
        receipt_path=Path("/receipts") / name,
        more=[Path("/receipts") / one for one in more],
    )
    Console().outcome(outcome)


def test_what_is_shown_of_one_gpu_is_what_its_receipt_says(capsys):
    printed_of(f"solo-{HELD}.json", f"whole_worker-{HELD}.json")
    assert differs(dict(WALK)[SOLO], capsys.readouterr().out) == ""


def test_a_difference_is_seen():
    shown, printed = (
        dict(WALK)["pp4 status\n"],
        "qualified for nothing: there is no qualification\n",
    )
    assert differs(shown, printed) == ""
    assert differs(shown, printed.replace("no", "one", 1))
    assert differs("a\n...\nd\n", "a\nb\nc\nd\n") == ""
    assert differs("a\n...\nd\n", "a\nb\nc\n")
    assert differs("a\n...\nd\n", "a\nd\n") == ""
    assert differs("a  ...  d\n", "a d\n") == ""
