"""What the README shows of a rehearsal is what one gives; the seconds are those of a day."""

import json
import re
from types import SimpleNamespace

from pp4.console import Console
from pp4.errors import Exit
from tests.pages import ROOT, Shell, blocks, differs, section, steps

README = (ROOT / "README.md").read_text()


def test_the_table_at_the_top_is_that_of_a_rehearsal(rehearsed, capsys):
    record = json.loads(rehearsed.stdout)
    outcome = SimpleNamespace(**record, more=())
    Console().outcome(outcome)
    printed = capsys.readouterr().out.splitlines()
    top = README.partition("<!-- BEGIN output")[2].partition("<!-- END output")[0]
    ((_, block),) = [one for one in blocks(top) if one[0] == "text"]
    shown, _, checked = block.partition("\nreceipt: ")
    assert [cells(row) for row in shown.splitlines()] == [
        cells(row, without="kind") for row in printed[: len(shown.splitlines())]
    ]
    assert printed[len(shown.splitlines())].startswith("receipt: ")
    assert re.match(r"build/rehearsal/rehearsal-[0-9a-f]{16}\.json\n", checked)


def cells(row, without=""):
    """Cells of a line of a table, times as one word; the third column is left out where told."""
    found = re.split(r" {2,}", row.strip())
    if without and len(found) == 7:
        del found[2]
    return ["a time" if re.fullmatch(r"\d+\.\d\d", one) else one for one in found]


def test_the_rehearsal_of_the_walk_is_checked_as_shown(rehearsed, tmp_path):
    shell = Shell(tmp_path)
    (tmp_path / "rehearsal").symlink_to(rehearsed.out)
    walk = list(steps(section(README, "## A first walk, without a GPU")))
    ((lines, shown),) = [one for one in walk if "--dry-run" in one[0]]
    rehearse, check = lines.splitlines()
    assert rehearse == "pp4 pair-qualify --dry-run --out rehearsal"
    done = shell.run(check)
    assert done.exit == Exit.DONE, done.said
    assert differs(shown, done.said) == ""
